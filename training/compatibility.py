"""Upgrades of older configs: moved classes, renamed and added fields.

Run directories and records of results contain the config that they were made with. The
tables below list the later changes, one per line.

A field is written "GROUP.FIELD", as in `--config.GROUP.FIELD`, with

    "optimizer|generator|discriminator.name"  for the same field of several groups,
    "Transformer: model.bias"                 for a field only of configs whose `task`
                                              or `architecture` is this class.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

# Added fields, each with the JSON value that keeps the behaviour of older runs. A field
# is added if its group exists and lacks it. A field that only some architectures have
# must name their class; otherwise every architecture gets it.
ADDED: dict[str, Any] = {
    "non_finite": "stop",
    "mesh.tensor": 1,
    "optimizer|generator|discriminator.name": "adam",
    "optimizer|generator|discriminator.scale": 1.0,
    "optimizer|generator|discriminator.clip_by": "norm",
    "Luong: model.decoder_layers": 0,
    "Luong: model.residual": "none",
    "Luong: model.score_gradient": True,
    "Bahdanau: model.score_gradient": True,
    "MemoryNetwork: model.position_length": 0,
    "Listening: data.test_voice": 0,
    "Listening: data.damaged": "refuse",
    "Captioning: data.damaged": "refuse",
    "Adversarial: data.damaged": "refuse",
    "Listening: data.resampling": 0.0,
    "Listening: data.equalizer": 0.0,
    "Listening: data.gain": 6.0,
    "Listening: data.time_masks": 0,
    "Listening: data.time_mask": 0.1,
    "Listening: data.frequency_masks": 0,
    "Listening: data.frequency_mask": 6,
    "Listening: data.one_voice": False,
    "Listening: data.normalisation": "mean_variance",
    "Listening: evaluation.language_model": "",
    "Listening: evaluation.language_model_weight": 0.008,
}

# Old to new names of fields or of whole groups; one line for each group, without "|".
RENAMED: dict[str, str] = {
    "data.rows": "data.batch_size",
    "data.rows_multiple": "data.batch_size_multiple",
    "data.smallest": "data.min_size",
    "data.largest": "data.max_size",
    "data.shortest": "data.min_length",
    "data.least": "data.min_objects",
    "data.most": "data.max_objects",
    "data.extra": "data.extra_corpora",
    "data.files.train.pictures": "data.files.train.images",
    "data.files.validation.pictures": "data.files.validation.images",
    "data.files.test.pictures": "data.files.test.images",
    "evaluation.rows": "evaluation.batch_size",
    "evaluation.pictures": "evaluation.images",
    "evaluation.extra": "evaluation.max_extra_length",
    "NeuralTuringMachine: model.rows": "model.slots",
    "ShowAttendTell: model.expected": "model.soft_prob",
    "Generator: model.start": "model.initial_size",
    "Generator: model.local": "model.spatial_noise",
    "Generator: model.widest": "model.channel_multiplier",
    "Generator: model.body": "model.blocks",
    "Generator: model.shrink": "model.key_reduction",
    "Generator: model.value_shrink": "model.value_reduction",
    "Generator: noise": "latent_size",
    "opponent": "discriminator_architecture",
}

# Old to new paths of classes, such as "models.old:Name".
MOVED: dict[str, str] = {}


def upgrade(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with the current fields, names and classes.

    Idempotent: current settings are returned as an equal copy.

    Args:
        settings: a config as `configuration.encode` writes it: nested dicts, lists and
            plain values, classes as "module:Name". It is not modified.

    Returns:
        New nested dicts.
    """
    upgraded: dict[str, Any] = _move(settings)
    for old, new in RENAMED.items():
        for path in _paths(upgraded, old):
            _rename(upgraded, path, new.split("."))
    for name, value in ADDED.items():
        for *groups, field in _paths(upgraded, name):
            parent = _group(upgraded, groups)
            if parent is not None:
                parent.setdefault(field, copy.deepcopy(value))
    return upgraded


def new_names(field: str) -> list[str]:
    """Returns the new names of a renamed field, such as "data.rows", of any class."""
    return [new for old, new in RENAMED.items() if old.rpartition(": ")[2] == field]


def _move(value: Any) -> Any:
    """Returns a copy of settings with the current class paths."""
    if isinstance(value, Mapping):
        return {name: _move(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_move(inner) for inner in value]
    return MOVED.get(value, value) if isinstance(value, str) else value


def _paths(settings: Mapping[str, Any], name: str) -> Iterator[list[str]]:
    """Yields the paths of a table entry, as lists of names."""
    owner, _, fields = name.rpartition(": ")
    classes = {
        str(settings.get(field)).rpartition(":")[2]
        for field in ("task", "architecture")
    }
    if owner and owner not in classes:
        return
    groups, _, rest = fields.rpartition("|")
    first, *others = rest.split(".")
    for group in [*filter(None, groups.split("|")), first]:
        yield [group, *others]


def _group(settings: dict[str, Any], names: list[str]) -> dict[str, Any] | None:
    """Returns the group at a path; None if it does not exist."""
    group: Any = settings
    for name in names:
        group = group.get(name)
        if not isinstance(group, dict):
            return None
    return group


def _rename(settings: dict[str, Any], old: list[str], new: list[str]) -> None:
    """Renames a field if it exists and its new name does not.

    A group that becomes empty is removed.
    """
    parent = _group(settings, old[:-1])
    target = _group(settings, new[:-1])
    if parent is None or old[-1] not in parent or (target and new[-1] in target):
        return
    value = parent.pop(old[-1])
    outer = _group(settings, old[:-2])
    if not parent and len(old) > 1 and outer is not None:
        del outer[old[-2]]
    for name in new[:-1]:
        settings = settings.setdefault(name, {})
    settings[new[-1]] = value
