"""The trials and runs of a sweep, and the folder that they are in.

The folder of a sweep is its only state:

    sweep.json        the sweep; a folder without it is recognised by its runs
    trials/NNN.seedS  run directories, one for each trial and seed
    claims/, deaths/  the owner of each run, and how often it has died
    logs/             output of the runs
    table.md, table.csv, plots/

A run belongs to the trial that has its config, whatever its number.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from base import storage
from base.errors import UserError, parse_json
from sweeps import space, widening
from sweeps.space import Choice, Point, Sweep
from training import configuration

_NAME = re.compile(r"(\d+)\.seed(\d+)")
_INNER = 0.37  # share of an interval at which a value between the ends is checked
_GROWING = ("space", "trials", "seeds")  # may be widened when a sweep goes on


_Key = str | tuple[str, ...]  # of a search space


class Trial(NamedTuple):
    """A point of the search space.

    Attributes:
        number: number of the trial, from 0.
        point: value by field.
    """

    number: int
    point: Point


class Run(NamedTuple):
    """A run of a trial with one seed.

    Attributes:
        trial: the trial.
        seed: value of `config.seed`.
        folder: run directory.
        overrides: all overrides of the config, "FIELD=VALUE".
    """

    trial: Trial
    seed: int
    folder: Path
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name


class Plan:
    """The trials of a sweep.

    Attributes:
        sweep: the sweep, with metric and goal filled in.
        flag: the config file, as in `--config`.
        workdir: folder of the sweep.
        config: the config with the common overrides.
        trials: the trials so far; all of them unless the method is "tpe".
    """

    def __init__(
        self,
        sweep: Sweep,
        flag: str | None,
        overrides: Sequence[str],
        workdir: Path,
        *,
        joins: bool = False,
    ):
        """Reads the config and the trials that exist.

        Args:
            sweep: the sweep.
            flag: the config file, as in `--config`.
            overrides: overrides that all trials share.
            workdir: folder of the sweep; it is not changed.
            joins: whether the sweep of the folder must be this one, not a narrower one.

        Raises:
            UserError: for an invalid sweep or config, or the folder of another sweep.
        """
        space.check(sweep)
        _check_common(sweep, overrides)
        self.config, self.flag = configuration.read(flag, overrides), flag or ""
        self.workdir, self._overrides = workdir, tuple(overrides)
        metric, goal = self.config.task.metric
        if sweep.metric not in ("", metric) and not sweep.goal:
            raise UserError(
                f"sweep.goal is missing: the metric {sweep.metric} needs 'min' or 'max'"
            )
        goal = sweep.goal or goal
        self.sweep = dataclasses.replace(
            sweep, metric=sweep.metric or metric, goal=goal
        )
        self._journal: str | None = None  # the text of sweep.json
        self._compare(joins)
        self.trials = self._number([] if sweep.method == "tpe" else space.points(sweep))

    def run(self, trial: Trial, seed: int) -> Run:
        """Returns a run of a trial."""
        given = [*self._overrides, *space.overrides(trial.point), f"seed={seed}"]
        folder = self.workdir / "trials" / f"{trial.number:03}.seed{seed}"
        return Run(trial, seed, folder, tuple(given))

    def runs(self) -> list[Run]:
        """Returns all runs, by trial and seed."""
        pairs = itertools.product(self.trials, self.sweep.seeds)
        return [self.run(trial, seed) for trial, seed in pairs]

    def steps(self, trial: Trial) -> int:
        """Returns the number of steps of a complete run of a trial."""
        return int(trial.point.get("train_steps", self.config.train_steps))

    def order(self, value: float, number: int) -> tuple[bool, float, int]:
        """Returns the sorting key of a trial: best first, values not finite last."""
        sign = -1 if self.sweep.goal == "max" else 1
        finite = math.isfinite(value)
        return not finite, sign * value if finite else 0.0, number

    def add(self, point: Point) -> Trial:
        """Adds a trial to a sweep whose method chooses trials one by one."""
        numbers = [trial.number for trial in self.trials]
        trial = Trial(max(numbers, default=-1) + 1, point)
        self.trials.append(trial)
        return trial

    def check(self, memory: int | None = None) -> None:
        """Checks the config of every run before the first one starts.

        For intervals and "tpe", whose points are not known, checks the corners.

        Args:
            memory: bytes of memory of the device; None for those of this machine.

        Raises:
            UserError: as `train.py` would for the first config that it refuses.
        """
        points = [trial.point for trial in self.trials] or _corners(self.sweep)
        for point in points:
            config = configuration.read(
                self.flag, [*self._overrides, *space.overrides(point)]
            )
            configuration.check(config)
            try:
                config.task.check(config, memory)
            except UserError as error:
                given = " ".join(space.overrides(point)) or "the config"
                raise UserError(f"{given}: {error}") from error
        for seed in self.sweep.seeds:
            configuration.check(
                configuration.read(self.flag, [*self._overrides, f"seed={seed}"])
            )

    def verify(self, run: Run) -> None:
        """Checks before a run starts that it is still one of this sweep.

        Raises:
            UserError: if another process has changed the sweep, or if the folder of
                the run has another config.
        """
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = (self.workdir / "sweep.json").read_text("utf-8")
            if self._journal not in (None, text):
                raise UserError(
                    f"{self.workdir} has been given another sweep: start again with it"
                )
        if (run.folder / "config.json").exists():
            config = configuration.load(run.folder)
            if self._settings(config) != self._key(run.trial.point):
                raise UserError(self._foreign(run.folder, config))

    def make_folder(self) -> None:
        """Makes the folder of the sweep.

        Raises:
            UserError: if it cannot be made.
        """
        try:
            (self.workdir / "trials").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--workdir={self.workdir}: {error.strerror}") from error

    def save(self) -> None:
        """Writes sweep.json.

        Raises:
            UserError: if it cannot be written.
        """
        try:
            self._journal = json.dumps(self._encoded(), indent=2) + "\n"
            storage.write(self.workdir / "sweep.json", self._journal)
        except OSError as error:
            raise UserError(f"--workdir={self.workdir}: {error.strerror}") from error

    def _encoded(self) -> dict[str, Any]:
        """The sweep as it is written."""
        encoded = dataclasses.asdict(self.sweep)
        encoded["space"] = {
            ",".join(space.fields(key)): widening.encoded(domain)
            for key, domain in self.sweep.space.items()
        }
        return {
            "sweep": parse_json(json.dumps(encoded)),
            "config": configuration.encode(self.config),
        }

    def _compare(self, joins: bool) -> None:
        """Refuses the folder of another sweep; accepts a narrower one to widen."""
        path = self.workdir / "sweep.json"
        if storage.is_file(self.workdir, f"--workdir={self.workdir}"):
            raise UserError(f"--workdir={self.workdir} is a file: must be a folder")
        if (self.workdir / "config.json").exists():
            raise UserError(
                f"--workdir={self.workdir} is a run directory: take another folder"
            )
        if not path.exists():
            return
        now = self._encoded()
        try:
            self._journal = path.read_text("utf-8")
            old = parse_json(self._journal)
            before, config = old["sweep"], old["config"]
            lost = widening.lost(before, now["sweep"])
            old_fields, fields = (
                dict(configuration.leaves(x)) for x in (config, now["config"])
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is damaged: delete it, and it is rebuilt from the runs"
            ) from error
        if lost:
            raise UserError(
                f"{self.workdir} has another sweep: {lost}; restore it, or take "
                "another --workdir"
            )
        pairs = {
            f"sweep.{name}": (before.get(name), value)
            for name, value in now["sweep"].items()
            if joins or name not in _GROWING
        }
        pairs |= {
            f"config.{name}": (old_fields.get(name), fields.get(name))
            for name in {**old_fields, **fields}
            if name.split(".")[0] not in configuration.CHANGEABLE
            or name == "train_steps"
        }
        for name, (was, given) in pairs.items():
            if was != given:
                raise UserError(
                    f"{self.workdir} has another sweep: {name} is {given}: must be "
                    f"{was}, or take another --workdir"
                )

    def _number(self, points: Sequence[Point]) -> list[Trial]:
        """Numbers points; those with a run keep its number.

        Raises:
            UserError: for a run that belongs to no point.
        """
        keys: dict[str, Point] = {}
        for point in points:
            same = keys.setdefault(self._key(point), point)
            if same is not point and self.sweep.method == "grid":
                raise UserError(
                    f"{describe(point)} is the same config as {describe(same)}: must "
                    "be given once"
                )
        numbers: dict[str, int] = {}
        for folder in sorted((self.workdir / "trials").glob("*")):
            match = _NAME.fullmatch(folder.name)
            if not match or not (folder / "config.json").exists():
                continue
            config = configuration.load(folder)
            key = self._settings(config)
            if self.sweep.method == "tpe" and key not in keys:
                keys[key] = self._point(config, folder)
            if key not in keys or int(match[2]) not in self.sweep.seeds:
                raise UserError(self._foreign(folder, config))
            numbers.setdefault(key, int(match[1]))
        free = (n for n in itertools.count() if n not in set(numbers.values()))
        trials = [
            Trial(numbers[key] if key in numbers else next(free), point)
            for key, point in keys.items()
        ]
        return trials

    def _key(self, point: Point) -> str:
        given = [*self._overrides, *space.overrides(point)]
        return self._settings(configuration.read(self.flag, given))

    def _point(self, config: ConfigDict, folder: Path) -> Point:
        """The point of a run, read off its config."""
        fields = dict(configuration.leaves(config))

        def value_at(key: str | tuple[str, ...], domain: space.Domain) -> Any:
            values = tuple(fields[name] for name in space.fields(key))
            value = values if isinstance(key, tuple) else values[0]
            if not domain.contains(value):
                raise UserError(self._foreign(folder, config))
            return value

        point = space.assign(self.sweep, value_at)
        if self._key(point) != self._settings(config):
            raise UserError(self._foreign(folder, config))
        return point

    def _settings(self, config: ConfigDict) -> str:
        """The fields of a config that distinguish trials, as text."""
        fields = dict(configuration.leaves(configuration.encode(config)))
        swept = space.swept(self.sweep)
        settings = {
            name: value
            for name, value in fields.items()
            if name in swept
            or (name != "seed" and name.split(".")[0] not in configuration.CHANGEABLE)
        }
        return json.dumps(settings, sort_keys=True)

    def _foreign(self, folder: Path, config: ConfigDict) -> str:
        """The message for a run that is not of this sweep; names a difference."""
        base = dict(configuration.leaves(configuration.encode(self.config)))
        fields = dict(configuration.leaves(configuration.encode(config)))
        swept = space.swept(self.sweep)
        different = [
            f"config.{name} is {value}"
            for name, value in fields.items()
            if value != base.get(name)
            and name.split(".")[0] not in configuration.CHANGEABLE
        ]
        outside = [x for x in different if x.split()[0][7:] not in (*swept, "seed")]
        reason = ", ".join(outside or different) or "its seed is not in sweep.seeds"
        return (
            f"{folder} is not a run of this sweep ({reason}): restore the sweep, or "
            "take another --workdir"
        )


def _corners(sweep: Sweep) -> list[Point]:
    """Points with each value of each choice, and ends and middle of each interval.

    Each is tried with the first and with the last values of the other fields.
    """
    values = {
        key: domain.values
        if isinstance(domain, Choice)
        else (domain.low, domain.high, domain.at(_INNER))  # type: ignore[attr-defined]
        for key, domain in sweep.space.items()
    }
    points: dict[str, Point] = {}
    for others in (0, 1):
        for key, value in [(k, value) for k, row in values.items() for value in row]:
            chosen = {k: x[-others] for k, x in values.items()}
            chosen |= _fixed(sweep, key, value)
            point = space.assign(sweep, lambda k, _, chosen=chosen: chosen[k])
            points.setdefault(repr(point), point)
    return list(points.values())


def _fixed(sweep: Sweep, key: _Key, value: Any) -> dict[_Key, Any]:
    """Values of a key and of the keys that its condition depends on."""
    fixed = {key: value}
    while condition := sweep.space[key].condition:
        field, accepted = condition
        key = next(k for k in sweep.space if field in space.fields(k))
        fixed[key] = space.value_with(sweep, key, field, accepted[0])
    return fixed


def _check_common(sweep: Sweep, overrides: Sequence[str]) -> None:
    """Refuses common overrides of fields that the sweep sets itself."""
    for override in overrides:
        name = override.partition("=")[0]
        if name == "seed":
            raise UserError("--config.seed: seeds are replicates: use sweep.seeds or "
                            "--grid=seed=0,1")  # fmt: skip
        if name in space.swept(sweep) and sweep.method != "one_at_a_time":
            raise UserError(f"--config.{name}: the sweep sets this field itself")


def read_file(path: str) -> Sweep:
    """Returns the sweep of a file, as in `--sweep`.

    Raises:
        UserError: for a missing or faulty file.
    """
    module = configuration.execute(Path(path), "--sweep")
    if not hasattr(module, "get_sweep"):
        raise UserError(f"{path} has no get_sweep()")
    with configuration.faults(Path(path)):
        sweep = module.get_sweep()
    if not isinstance(sweep, Sweep):
        raise UserError(f"{path}: get_sweep must return a sweeps.space.Sweep")
    return sweep


def describe(point: Mapping[str, Any]) -> str:
    """Returns a point as a short text."""
    return " ".join(space.overrides(point)) or "(the config)"
