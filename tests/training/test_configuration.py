"""Tests of configs: overrides, errors, and the config of a run directory."""

import json
import re
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from tracing import leaves

from base.errors import FieldError, UserError
from configs import transformer_nmt
from models.bahdanau import Bahdanau
from tasks.translation.task import Translation
from training import checks, configuration
from training.task import Task

TOY = str(Path(__file__).parents[1] / "toy.py")


def test_an_override_takes_the_type_of_the_value_it_replaces():
    config = configuration.read(
        TOY,
        [
            "model.width=7",
            "model.dropout=0",
            "model.name=1e3",
            "data.batch_size=8,24",
            "data.shuffle=false",
            "seed=1",
            "seed=2",
        ],
    )
    assert config.model.to_dict() == {"width": 7, "dropout": 0.0, "name": "1e3"}
    assert isinstance(config.model.dropout, float)
    assert config.data.batch_size == (8, 24)
    assert config.data.shuffle is False
    assert config.seed == 2


@pytest.mark.parametrize(
    "text, sizes",
    [("5,10x20", (5, (10, 20))), ("7", (7,)), ("(3, 4), 2", ((3, 4), 2))],
)
@pytest.mark.parametrize(
    "name", ["ntm_repeat_copy", "ntm_repeat_copy:smoke", "ntm_ngrams"]
)
def test_sizes_are_numbers_or_tuples_written_with_x(name, text, sizes):
    file, _, variant = name.partition(":")
    path = Path(configuration.__file__).parents[1] / "configs" / f"{file}.py"
    config = configuration.read(f"{path}:{variant}", [f"evaluation.sizes={text}"])
    assert config.evaluation.sizes == sizes


@pytest.mark.parametrize(
    "override, message",
    [
        ("model.widht=7", "config.model.widht is unknown; did you mean config.model.w"),
        ("width=7", "config.width is unknown; did you mean config.model.width?"),
        ("model.width.x=7", "config.model.width.x is unknown"),
        ("zzzz=7", "config.zzzz is unknown: config has checkpoints, "),
        ("model.zzzz=7", "config.model.zzzz is unknown: config.model has dropout, "),
        ("learning_rate=7", "did you mean config.optimizer.learning_rate?"),
        ("optimizer.lr=7", "did you mean config.optimizer.learning_rate?"),
        ("lr=7", "did you mean config.optimizer.learning_rate?"),
        ("mesh.sizes=7", "config.mesh.sizes is unknown: config.mesh has data, fsdp, "),
        ("model=7", "config.model is a group: set one of config.model.dropout"),
        ("model.width=0.5", "config.model.width is '0.5': must be a whole number"),
        ("model.width=", "config.model.width is '': must be a whole number"),
        ("model.dropout=None", "config.model.dropout is 'None': must be a number"),
        ("model.name=None", "config.model.name is 'None': must be text"),
        ("data.shuffle=maybe", "config.data.shuffle is 'maybe': must be true or false"),
        (
            "data.batch_size=a,b",
            "is 'a,b': must be a list with commas, each a whole number",
        ),
        ("data.batch_size=(1, 'b')", "'b')': must be a list with commas"),
        (
            "data.batch_size=8x24",
            "is '8x24': must be a list with commas, each a whole number",
        ),
        (
            "task=os:system",
            "config.task is 'os:system': must be a class of tasks/, such",
        ),
    ],
)
def test_a_wrong_override_is_reported_in_one_line(override, message):
    with pytest.raises(UserError) as error:
        configuration.read(TOY, [override])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "flag, message",
    [
        (None, "--config is missing"),
        (TOY.replace("toy", "toi"), "toi.py is not a file; did you mean .*/toy.py?"),
        (
            f"{TOY.replace('toy', 'toi')}:x",
            r"toi.py is not a file; did you mean .*/toy.py:x\?",
        ),
        (f"{TOY}:huge", "the variant is smoke or none, got huge"),
        (__file__, "has no get_config"),
        (str(Path(TOY).parent), "tests is a folder: must be a config file"),
        ("runs/x/config.json", "config.json is not a file"),
        (str(Path(TOY).parents[1] / "README.md"), "is not a Python file: must be as"),
        ("x" * 300, "^--config=x*: File name too long"),
    ],
)
def test_an_unreadable_config_is_reported(flag, message):
    with pytest.raises(UserError, match="(?s).*" + message):
        configuration.read(flag)


FAULTS = {
    "bytes": ("\0\1\2", "null bytes"),
    "module": ("import absent_module\n", ":1: ModuleNotFoundError: No module named"),
    "inside": ("def get_config(variant):\n    return 1 / 0\n", ":2: ZeroDivisionErr"),
    "result": ("def get_config(variant):\n    pass\n", "get_config returns None: must"),
    "field": (
        "from ml_collections import ConfigDict\n"
        "def get_config(variant):\n    return ConfigDict({'x': {'y': {1, 2}}})\n",
        "config.x.y is {1, 2}: must be a number, text, tuple, class or None",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_config_is_reported_with_its_line(tmp_path, name):
    (path := tmp_path / f"{name}.py").write_text(FAULTS[name][0])
    with pytest.raises(UserError) as error:
        configuration.read(str(path))
    line = str(error.value)
    assert FAULTS[name][1] in line and "\n" not in line
    assert name == "field" or line.startswith(str(path))


def test_an_error_in_an_imported_module_is_reported_with_its_line(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "faulty_helper.py").write_text("\n\nx = undefined\n")
    (tmp_path / "config.py").write_text("import faulty_helper\n")
    with pytest.raises(UserError, match="faulty_helper.py:3: NameError: name 'undef"):
        configuration.read(str(tmp_path / "config.py"))
    (tmp_path / "faulty_helper.py").write_text("def f(:\n")
    with pytest.raises(UserError, match="faulty_helper.py:1: invalid syntax"):
        configuration.read(str(tmp_path / "config.py"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "config.json is damaged"),
        ("{", "config.json is damaged"),
        ("\xff", "config.json is damaged"),
        ("{}", "task is None: must be a class in tasks"),
        ("[1]", r"config.json is \[1\]: must be an object"),
        ("null", "config.json is None: must be an object"),
        ("[" * 100_000, r"config.json is damaged \(.*\): restore it from a copy"),
        ('{"task": 3}', "task is 3: must be a class in tasks"),
    ],
)
def test_a_damaged_config_of_a_run_is_reported(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content, "latin-1")
    with pytest.raises(UserError, match=message) as error:
        configuration.load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_recurrent_translator_takes_a_sentence_per_row():
    config = configuration.defaults(Translation, Bahdanau)
    fields = transformer_nmt.get_config()
    config.optimizer, config.checkpoints = fields.optimizer, fields.checkpoints
    config.update({"train_steps": 5, "eval_every": 5, "save_every": 5})
    message = "config.data.pack is True: must be false, as Bahdanau takes one sentence"
    with pytest.raises(UserError, match=message):
        configuration.check(config, Task)


def test_errors_of_a_model_name_the_field_of_the_config():
    config = configuration.defaults(Translation, Bahdanau)
    model = Bahdanau(vocab_size=7)
    with pytest.raises(
        UserError, match="^config.architecture is Bahdanau: must have dr"
    ):
        with checks.model_errors(config):
            model.drawings  # noqa: B018
    for field, name in {"hidden": "model.hidden", "pack": "data.pack"}.items():
        with pytest.raises(UserError, match=f"^config.{name} is 3: must be odd"):
            with checks.model_errors(config):
                raise FieldError(field, 3, "odd")


def test_a_checkpoint_may_be_a_step_of_the_run():
    config = transformer_nmt.get_config()
    config.evaluation.checkpoint = f"{config.train_steps}"
    configuration.check(config, Task)
    config.evaluation.checkpoint = after = f"{config.train_steps + 1}"
    with pytest.raises(UserError, match=f"is '{after}': must be at most config.train_"):
        configuration.check(config, Task)


def test_only_evaluation_fields_of_a_trained_run_can_be_overridden(tmp_path):
    config = transformer_nmt.get_config()
    configuration.record(config, tmp_path)
    changed = configuration.load(tmp_path, ["evaluation.average=7"])
    assert changed.evaluation.average == 7 != config.evaluation.average
    changed = configuration.load(tmp_path)
    assert changed.to_dict() == config.to_dict()
    for override in ("model.d_model=8", "evaluation=3", "seed=1"):
        with pytest.raises(UserError, match="only config.evaluation of a trained run"):
            configuration.load(tmp_path, [override])
    with pytest.raises(UserError, match="evaluation.bean is unknown"):
        configuration.load(tmp_path, ["evaluation.bean=1"])


def example():
    inner = ConfigDict({"rate": 1.0, "sizes": (2, 3), "nothing": None, "text": "a:b"})
    return ConfigDict(
        {
            "task": Translation,
            "model": inner,
            "seed": 3,
            "train_steps": 5,
            "non_finite": "stop",
        }
    )


def test_classes_are_recorded_by_name_and_read_from_tasks_and_models(tmp_path):
    configuration.record(example(), tmp_path)
    recorded = json.loads((tmp_path / "config.json").read_text())
    assert recorded["task"] == "tasks.translation.task:Translation"
    loaded = configuration.load(tmp_path)
    assert loaded.to_dict() == example().to_dict() and loaded.task is Translation
    assert isinstance(loaded.model.rate, float) and loaded.model.sizes == (2, 3)
    for name in ("tasks.nowhere:Thing", "models.transformer:jax", "toy:Toy"):
        (tmp_path / "config.json").write_text(json.dumps({"task": name}))
        with pytest.raises(UserError, match=name):
            configuration.load(tmp_path)


def test_a_flipped_bit_of_a_config_is_refused_or_changes_no_field(tmp_path):
    config, path = example(), tmp_path / "config.json"
    configuration.record(config, tmp_path)
    content, refused = path.read_bytes(), 0
    for number in range(len(content)):
        flipped = bytearray(content)
        flipped[number] ^= 1
        path.write_bytes(flipped)
        try:
            loaded = configuration.load(tmp_path).to_dict()
            assert loaded | config.to_dict() == loaded  # perhaps with a field "rha256"
        except UserError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
    assert refused == len(content) - len("sha256")


def test_an_edited_config_is_accepted_once_its_digest_is_deleted(tmp_path):
    configuration.record(example(), tmp_path)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    settings["model"]["rate"] = 0.75
    path.write_text(json.dumps(settings))
    with pytest.raises(
        UserError, match="does not match its sha256: .*; if you have edited it"
    ):
        configuration.load(tmp_path)
    del settings["sha256"]
    path.write_text(json.dumps(settings))
    assert configuration.load(tmp_path).model.rate == 0.75


def test_a_folder_without_checkpoints_accepts_another_config(tmp_path):
    configuration.record(example(), tmp_path)
    other = example()
    other.model.rate = 0.5
    configuration.record(other, tmp_path)
    assert configuration.load(tmp_path).model.rate == 0.5


def test_a_run_of_another_config_is_rejected_with_the_difference(tmp_path):
    configuration.record(example(), tmp_path)
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    other = example()
    other.model.rate = 0.5
    other.extra = "new"
    with pytest.raises(UserError) as error:
        configuration.record(other, tmp_path)
    assert "config.model.rate: 1.0 there, 0.5 now" in str(error.value)
    assert 'config.extra: absent there, "new" now' in str(error.value)
    assert "seed" not in str(error.value)


def test_a_run_may_not_end_before_its_last_checkpoint(tmp_path):
    config = example()
    config.train_steps = 11
    finished(tmp_path, config, 7)
    config.train_steps = 7
    configuration.record(config, tmp_path)
    config.train_steps = 6
    with pytest.raises(UserError, match="^config.train_steps is 6, but .* at step 7: "):
        configuration.record(config, tmp_path)
    assert configuration.load(tmp_path).train_steps == 7


def cosine(steps, *, ends, kind="warmup_cosine"):
    """A config with two optimizers, whose schedules end at these steps."""
    others = {"name": "adam", "scale": 1.0, "clip_by": "norm"}
    groups = {
        name: {"schedule": kind, "decay_steps": end, **others}
        for name, end in zip(("generator", "discriminator"), ends, strict=True)
    }
    return ConfigDict({"train_steps": steps, "non_finite": "stop", **groups})


def finished(folder, config, step):
    """A run directory of a config with a complete checkpoint."""
    configuration.record(config, folder)
    (folder / "checkpoints" / f"{step}").mkdir(parents=True)
    (folder / "checkpoints" / f"{step}" / "SHA256SUMS").touch()


def test_the_end_of_a_schedule_may_grow_with_the_run_which_is_recorded(tmp_path):
    finished(tmp_path, cosine(7, ends=(7, 11)), 5)
    configuration.record(cosine(9, ends=(9, 11)), tmp_path)
    finished(tmp_path, cosine(9, ends=(9, 11)), 9)  # the same again
    configuration.record(cosine(13, ends=(13, 17)), tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings.pop("extended") == [
        {"step": 5, "before": ["train_steps=7", "generator.decay_steps=7"]},
        {
            "step": 9,
            "before": [
                "train_steps=9",
                "discriminator.decay_steps=11",
                "generator.decay_steps=9",
            ],
        },
    ]
    del settings["sha256"]
    assert settings == cosine(13, ends=(13, 17)).to_dict()


def test_a_longer_run_with_the_schedule_of_before_is_not_marked(tmp_path):
    finished(tmp_path, cosine(7, ends=(11, 11)), 7)
    configuration.record(cosine(11, ends=(11, 11)), tmp_path)
    assert "extended" not in json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (cosine(9, ends=(9, 6)), "discriminator.decay_steps: 7 there, 6 now"),
        (cosine(6, ends=(6, 6)), "generator.decay_steps: 7 there, 6 now"),
        (
            cosine(7, ends=(9, 7)),
            "generator.decay_steps: 7 there, 9 now, which needs a larger "
            "config.train_steps",
        ),
        (
            cosine(9, ends=(9, 9), kind="constant"),
            'generator.schedule: "warmup_cosine" there, "constant" now',
        ),
    ],
)
def test_another_change_of_a_schedule_is_refused(tmp_path, other, field):
    finished(tmp_path, cosine(7, ends=(7, 7)), 7)
    before = (tmp_path / "config.json").read_text()
    with pytest.raises(UserError, match=re.escape(field)):
        configuration.record(other, tmp_path)
    assert (tmp_path / "config.json").read_text() == before


def test_a_field_that_the_schedule_does_not_read_may_not_grow(tmp_path):
    finished(tmp_path, cosine(7, ends=(7, 7), kind="constant"), 7)
    with pytest.raises(UserError, match="generator.decay_steps: 7 there, 9 now"):
        configuration.record(cosine(9, ends=(9, 7), kind="constant"), tmp_path)


def test_a_folder_without_a_run_is_reported(tmp_path):
    with pytest.raises(UserError, match="has no run: .*config.json is missing"):
        configuration.load(tmp_path)
    (tmp_path / "config.json").touch()
    with pytest.raises(UserError, match="--workdir="):
        configuration.record(example(), tmp_path / "config.json")


def test_only_length_logging_and_layout_may_change_when_a_run_is_resumed(tmp_path):
    config = transformer_nmt.get_config("smoke")
    configuration.record(config, tmp_path)
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    accepted = set()
    for name in leaves(config):
        other = transformer_nmt.get_config("smoke")
        with other.ignore_type():
            other.update_from_flattened_dict(
                {name: 99 if name == "train_steps" else "changed"}
            )
        try:
            configuration.compare(other, tmp_path)
        except UserError as error:
            assert f"config.{name}: " in str(error)
        else:
            accepted.add(name)
    assert accepted == {
        "train_steps",
        "eval_every",
        "save_every",
        "log_every",
        "moments",
        "mesh.data",
        "mesh.fsdp",
        "mesh.tensor",
        "parallel",
        "checkpoints.keep",
        "non_finite",
    }
