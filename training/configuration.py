"""Configs: `get_config(variant)` of a file, overrides from flags, and config.json.

An override is parsed as the type of the value that it replaces. A run directory has a
copy of its config in `config.json`, with classes as "module:Name", so evaluation and
prediction need no config file. Loading it imports only modules in `tasks` and `models`.

A run may be made longer together with its schedule. Since the run then is not the one
that its config describes, `extended` in config.json lists the former ends, and the
steps up to which they counted.
"""

import contextlib
import difflib
import importlib
import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict

from base import fields, ranges, storage
from base.errors import (
    FieldError,
    UserError,
    fault,
    one_line,
    parse_literal,
    parse_number,
    shorten,
)
from base.fields import Fields
from base.options import KINDS
from base.ranges import COUNT, SEED, SIZE, STEPS, Kind, Range
from training import checks, encoding, optimizers, run_directory
from training.checks import MODEL
from training.encoding import encode, leaves

_DEVICES = Range(-1, 10**6, whole=True)


class Kept(Fields):
    """`config.checkpoints`."""

    # Number of last checkpoints that are kept, in addition to the best.
    keep: Annotated[int, SIZE] = 1


class Mesh(Fields):
    """`config.mesh`: numbers of devices."""

    # Number of devices that split a batch; -1 for all that are left.
    data: Annotated[int, _DEVICES] = -1
    # Number of devices that split the parameters and a batch.
    fsdp: Annotated[int, _DEVICES] = 1
    # Number of devices that split heads, hidden units and vocabulary.
    tensor: Annotated[int, _DEVICES] = 1


class EvaluationConfig(Fields):
    """`config.evaluation`: the checkpoint of eval.py and predict.py."""

    # Checkpoint to evaluate: "last", "best", "average" or a step.
    checkpoint: str = "last"
    # Number of last checkpoints whose parameters are averaged for "average".
    average: Annotated[int, SIZE] = 1

    def __post_init__(self):
        names = "last", "best", "average"
        if self.checkpoint not in names and not self.checkpoint.isdecimal():
            accepted = "last, best, average or a step"
            raise FieldError("checkpoint", self.checkpoint, accepted)


_TASK = Kind("a subclass of training.task.Task", type)


class Config(Fields):
    """The fields that the training loop reads; base of every task's config."""

    # Class of the task.
    task: Annotated[type, _TASK]
    evaluation: EvaluationConfig = EvaluationConfig()
    # Seed of the initial parameters, the data and all random numbers.
    seed: Annotated[int, SEED] = 0
    # Number of training steps.
    train_steps: Annotated[int, STEPS]
    # Steps between evaluations.
    eval_every: Annotated[int, STEPS]
    # Steps between checkpoints.
    save_every: Annotated[int, STEPS]
    # Steps between logged metrics.
    log_every: Annotated[int, STEPS] = 100
    # Maximum number of steps after which the attention on up to ten validation
    # examples is stored, for `explore.py --checkpoints=all`; 0 for none.
    moments: Annotated[int, COUNT] = 20
    checkpoints: Kept = Kept()
    mesh: Mesh = Mesh()
    # Distribution of a step over devices: "jit" for a mesh, "pmap" for a whole state on
    # each, "cores" for CPU cores as devices, which is faster for small steps.
    parallel: Literal["jit", "pmap", "cores"] = "jit"
    # Treatment of updates that are not finite: "stop" the training or "skip" them.
    non_finite: Literal["stop", "skip"] = "stop"

    def __post_init__(self):
        which, average = self.evaluation.checkpoint, self.evaluation.average
        if which.isdecimal() and float(which) > self.train_steps:
            accepted = f"at most config.train_steps={self.train_steps}"
            raise FieldError("evaluation.checkpoint", which, accepted)
        if average > (keep := self.checkpoints.keep):
            accepted = f"at most config.checkpoints.keep={keep}, the number kept"
            raise FieldError("evaluation.average", average, accepted)


class ModelConfig(Config):
    """The fields of a task with one model and one optimizer."""

    # Class of the model.
    architecture: Annotated[type, MODEL]
    model: ConfigDict
    optimizer: ConfigDict


# Fields that may change when a run is resumed.
CHANGEABLE = (
    "train_steps eval_every save_every log_every moments mesh parallel checkpoints "
    "non_finite"
).split()
_ENDS = {"warmup_cosine": "decay_steps"}  # fields that end a schedule
_EXTENDED = "extended"  # field of config.json: the former ends of a longer run
_MAX_DIFFERENCES = 6  # fields listed if a run has another config
_NAMES = KINDS | {tuple: "such as 5 or 10x5"}  # an element of a list
_SHORT_NAMES = {"lr": "learning_rate", "steps": "train_steps", "batch": "batch_size"}
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def read(flag: str | None, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the config that a flag names, with overrides applied, locked.

    Args:
        flag: "configs/name.py" or "configs/name.py:variant".
        overrides: such as "model.d_model=256"; a later one replaces an earlier one.

    Raises:
        UserError: for a missing or faulty file, an unknown variant or field, a wrong
            type, or a class outside `tasks` and `models`.
    """
    if not flag:
        raise UserError(
            "--config is missing: give a config file, as in --config=configs/NAME.py"
        )
    path, _, variant = flag.partition(":")
    config = _load(Path(path), variant)
    for override in overrides:
        _override(config, override)
    encode(config)
    for name, value in leaves(config):
        if isinstance(value, type):
            _check_importable(name, value)
    return config.lock()


def _check_importable(name: str, value: type) -> None:
    """Checks that a run of this class can be loaded again."""
    text, folder = encode(value), "tasks" if name == "task" else "models"
    if not encoding.CLASS.fullmatch(text) or encoding.load_class(text) is not value:
        raise UserError(
            f"config.{name} is {text}: must be in a module of {folder}/, such as "
            f"{folder}/{value.__module__.split('.')[-1]}.py, to be loaded again"
        )


def execute(path: Path, flag: str, variant: str = "") -> ModuleType:
    """Returns the module of a Python file that a flag names, before any `:variant`.

    Raises:
        UserError: for a missing or faulty file.
    """
    if not storage.is_file(path, f"{flag}={path}"):
        if path.is_dir():
            raise UserError(f"{flag}={path} is a folder: must be a {flag[2:]} file")
        end = f":{variant}" if variant else ""
        near = [f"{each}{end}" for each in _similar_configs(path)]
        raise UserError(f"{flag}={path} is not a file{_near(near)}")
    spec = importlib.util.spec_from_file_location(f"configs.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(
            f"{flag}={path} is not a Python file: must be as configs/NAME.py"
        )
    module = importlib.util.module_from_spec(spec)
    with faults(path):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turns an error of a file's code into a UserError with file and line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise UserError(fault(path, error)) from error


def _load(path: Path, variant: str) -> ConfigDict:
    module = execute(path, "--config", variant)
    if not hasattr(module, "get_config"):
        raise UserError(f"{path} has no get_config(variant)")
    variants = getattr(module, "VARIANTS", ())
    try:
        config = module.get_config(variant)
    except (Exception, SystemExit) as error:
        if not isinstance(error, ValueError | KeyError) or variant in ("", *variants):
            raise UserError(fault(path, error)) from error
        near = difflib.get_close_matches(variant, filter(None, variants))
        flags = [f"--config={path}:{name}" for name in near]
        raise UserError(f"--config={path}:{variant}: {error}{_near(flags)}") from error
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"{path}: get_config returns {one_line(config)}: must return a ConfigDict"
        )
    return config


def _similar_configs(path: Path) -> list[str]:
    """Returns the paths of configs whose names are similar to the name of `path`."""
    folder = path.parent if path.parent.name and path.parent.is_dir() else "configs"
    files = {file.stem: str(file) for file in sorted(Path(folder).glob("[!_]*.py"))}
    if path.stem in files:
        return [files[path.stem]]
    return [files[name] for name in difflib.get_close_matches(path.stem, files)]


def _override(config: ConfigDict, override: str, group: str = "") -> None:
    """Applies an override; errors suggest fields of a group, such as "evaluation."."""
    name, _, text = override.partition("=")
    *parents, last = name.split(".")
    parent = config
    for part in parents:
        parent = parent[part] if part in parent else None
        if not isinstance(parent, ConfigDict):
            break
    if not isinstance(parent, ConfigDict) or last not in parent:
        near = [n for n in similar_fields(config, name) if n.startswith(group)]
        owner = ".".join(["config", *parents])
        hint = _near([f"config.{n}" for n in near])
        if not near and isinstance(parent, ConfigDict):
            hint = f": {owner} has {', '.join(parent)}"
        elif not near:
            hint = f": {owner} is not a group of fields"
        raise UserError(f"config.{name} is unknown{hint}")
    old = parent[last]
    if isinstance(old, ConfigDict):
        inner = ", ".join(f"config.{name}.{n}" for n in old)
        raise UserError(f"config.{name} is a group: set one of {inner}")
    kind = type(old) if old is not None else parent.get_type(last)
    try:
        parent[last] = _parse(text, kind, old)
    except UserError as error:
        raise UserError(f"config.{name}: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
        accepted = _NAMES.get(kind, kind.__name__)
        if kind is tuple:
            kinds = {_NAMES.get(type(x), type(x).__name__) for x in old or ()}
            accepted = "a list with commas" + "".join(f", each {k}" for k in kinds)
        if isinstance(old, type):
            folder = "tasks" if name == "task" else "models"
            accepted = f"a class of {folder}/, such as {encode(old)}"
        raise UserError(
            f"config.{name} is '{shorten(text)}': must be {accepted}"
        ) from error


def similar_fields(config: ConfigDict, name: str) -> list[str]:
    """Returns the fields of a config that an unknown name may mean.

    Args:
        config: the config.
        name: the unknown name, such as "model.widht" or "lr".
    """
    *_, last = name.split(".")
    last = _SHORT_NAMES.get(last, last)
    names = {field: field.split(".")[-1] for field, _ in leaves(config)}
    ends = sorted({*names.values()})
    near = [last] if last in ends else []
    words = set(last.lower().split("_"))  # beam_size contains beam
    near = near or [end for end in ends if words > set(end.split("_"))]
    near = near or difflib.get_close_matches(last, ends, cutoff=0.7)
    fields = [field for field, end in names.items() if end in near]
    return difflib.get_close_matches(name, fields, n=3, cutoff=0.0)


def _parse(text: str, kind: type[Any], old: Any) -> Any:
    if kind is bool:
        return _BOOLS[text.lower()]
    if kind is str:
        if text == "None":
            raise ValueError
        return text
    if kind is tuple:
        return _parse_tuple(text, {type(x) for x in old or ()})
    if kind is type or issubclass(kind, type):
        return encoding.load_class(text)
    if kind is type(None):
        return _literal(text)
    return parse_number(text, kind)


def _parse_tuple(text: str, kinds: set[type]) -> tuple[Any, ...]:
    if text.startswith(("(", "[")):
        parts = tuple(_literal(text))
    else:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if len(kinds) == 1 and not kinds & {tuple, dict}:
            (kind,) = kinds
            parts = tuple(_parse(part, kind, None) for part in parts)
        else:
            parts = tuple(map(_item, parts))
    allowed = kinds | ({int} if tuple in kinds else set())  # sizes: 10x5 or 5
    if len(kinds) == 1 and {type(part) for part in parts} - allowed:
        raise TypeError
    return parts


def _item(text: str) -> Any:
    """Parses a list element of unknown type: 5 is a number, 10x5 a tuple."""
    if re.fullmatch(r"\d+(x\d+)+", text):
        return tuple(parse_number(part, int) for part in text.split("x"))
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return parse_number(text, kind)
    return text


def _literal(text: str) -> Any:
    """Parses a Python literal; numbers with underscores are refused."""
    value = parse_literal(text)
    if "_" in text and ranges.has_number(value):
        raise ValueError(text)
    return value


def _near(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""


def defaults(task: Any, architecture: type | None = None) -> ConfigDict:
    """Returns a config with the defaults of a task and of a model.

    Args:
        task: a subclass of `training.task.Task`.
        architecture: a Flax module; its fields without a default depend on the data.
    """
    config = ConfigDict({"task": task, **fields.defaults(task.Config)})
    if architecture:
        config.architecture, config.model = architecture, fields.defaults(architecture)
    return config


def check(config: ConfigDict, base: type) -> None:
    """Checks a config; reads no data.

    Args:
        config: the config.
        base: the base class of tasks, `training.task.Task`.

    Raises:
        UserError: for a field that is missing, unknown or out of range, or fields that
            contradict each other.
    """
    task: Any = config.get("task", "missing")
    if not (isinstance(task, type) and issubclass(task, base)):
        text = encode(task) if isinstance(task, type) else one_line(task)
        raise UserError(f"config.task is {text}: must be {_TASK.accepted}")
    optimizers.check(config)
    checks.check_models(config)
    given = {name: config[name] for name in config if name != _EXTENDED}
    fields.check(config.task.Config, given)
    for name, _ in optimizers.groups(config):
        optimizers.make_optimizer(config, name=name)


def prepare(config: ConfigDict, workdir: Path) -> None:
    """Creates a run directory if it can hold a run of the config.

    Raises:
        UserError: see `compare`; for a damaged directory, or one that cannot be made.
    """
    run_directory.check(workdir)
    compare(config, workdir)
    storage.make_folder(workdir, f"--workdir={workdir}")


def record(config: ConfigDict, workdir: Path) -> None:
    """Writes `config.json` if `prepare` accepts the config.

    Raises:
        UserError: see `prepare`; or if the file cannot be written.
    """
    prepare(config, workdir)
    settings = encode(config)
    if steps := run_directory.steps(workdir):
        old = encoding.read_json(workdir)
        fields, extended = dict(leaves(old)), old.get(_EXTENDED, [])
        names = _extended(fields, dict(leaves(settings)))
        if len(names) > 1:
            before = [f"{name}={fields[name]}" for name in names]
            extended = [*extended, {"step": steps[-1], "before": before}]
        settings |= {_EXTENDED: extended} if extended else {}
    try:
        encoding.write_json(settings, workdir)
    except OSError as error:
        raise UserError(f"--workdir={workdir}: {error.strerror}") from error


def compare(config: ConfigDict, workdir: Path) -> None:
    """Checks that `workdir` has no checkpoint of a run with another config.

    Raises:
        UserError: if there is one; lists the fields that differ. Also if it is after
            the last step, or the config of the checkpoints is missing or damaged.
    """
    if not (steps := run_directory.steps(workdir)):
        return
    if not (workdir / "config.json").exists():
        raise UserError(
            f"{workdir} has checkpoints, but config.json is missing: restore the file, "
            "or take another --workdir"
        )
    old = dict(leaves(encoding.read_json(workdir)))
    new = dict(leaves(encode(config)))
    longer = _extended(old, new)
    changeable = {*CHANGEABLE, _EXTENDED, *(longer if "train_steps" in longer else ())}
    fields = [
        f"config.{name}: {_show(old, name)} there, {_show(new, name)} now"
        + ", which needs a larger config.train_steps" * (name in longer)
        for name in {**old, **new}
        if _show(old, name) != _show(new, name)
        and not {name, name.split(".")[0]} & changeable
    ]
    if fields:
        others = len(fields) - _MAX_DIFFERENCES
        fields[_MAX_DIFFERENCES:] = [f"{others} more fields"] if others > 0 else []
        raise UserError(
            f"{workdir} has a run of another config: take another --workdir, or the "
            f"same config ({'; '.join(fields)})"
        )
    if config.train_steps < steps[-1]:
        raise UserError(
            f"config.train_steps is {config.train_steps}, but {workdir} is at step "
            f"{steps[-1]}: must be at least {steps[-1]}"
        )


def _extended(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Returns the ends of schedules that grow, and `train_steps` if it grows, too."""

    def grows(name: str) -> bool:
        a, b = old.get(name), new.get(name)
        return isinstance(a, int) and isinstance(b, int) and a < b

    names = ["train_steps"]
    for kind, end in _ENDS.items():
        schedules = [n for n in new if n.endswith(".schedule") and new[n] == kind]
        names += [name.removesuffix("schedule") + end for name in schedules]
    return [name for name in names if grows(name)]


def _show(fields: dict[str, Any], name: str) -> str:
    return json.dumps(fields[name]) if name in fields else "absent"


def load(workdir: Path, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the config of a run directory.

    Args:
        workdir: the run directory.
        overrides: such as "evaluation.beam=8"; only fields of `evaluation` can be
            changed after training.

    Raises:
        UserError: if the directory has no config, the config names a class outside
            `tasks` and `models`, or an override sets a field of another group.
    """
    for override in overrides:
        if not override.startswith("evaluation."):
            raise UserError(
                f"--config.{override}: only config.evaluation of a trained run can be "
                "changed"
            )
    path = workdir / "config.json"
    if storage.is_file(workdir, f"--workdir={workdir}"):
        raise UserError(f"--workdir={workdir} is a file: must be the folder of a run")
    if not storage.is_file(path, f"--workdir={workdir}"):
        run_directory.check(workdir)
        raise UserError(f"{workdir} has no run: {path} is missing")
    try:
        config = encoding.decode(encoding.read_json(workdir))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UserError(
            f"{path} is damaged ({one_line(error)}): {encoding.RESTORE}"
        ) from error
    if not isinstance(config.get("task"), type):
        raise UserError(
            f"{path}: task is {config.get('task')}: must be a class in tasks"
        )
    for override in overrides:
        _override(config, override, "evaluation.")
    return config.lock()
