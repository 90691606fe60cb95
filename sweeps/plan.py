"""The trials and runs of a sweep, and the folder that they are in.

The run directories are the state of a sweep:

    trials/NNN.seedS    run directories, one for each trial and seed
    locks/, failures/   the worker of each run, and how often the run has failed
    logs/               output of the runs
    sweep.json          the sweep, which the workers on other machines must have too
    table.md, table.csv, plots/

A run belongs to the trial that has its config, whatever its number.
"""

import dataclasses
import functools
import itertools
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from base import storage
from base.errors import UserError, parse_whole, shorten
from sweeps import space
from sweeps.space import Domain, Key, Point, Sweep, describe
from training import configuration
from training.task import Task

_NAME = re.compile(r"(\d+)\.seed(\d+)")


class Trial(NamedTuple):
    """A point of the search space, value by field, and its number from 0."""

    number: int
    point: Point


class Run(NamedTuple):
    """A run of a trial with one seed: its folder and all overrides of its config."""

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
        config: the config with the common overrides.
        rungs: the steps at which trials stop and may go on, before the last step.
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
            joins: whether another machine has started the sweep.

        Raises:
            UserError: for an invalid sweep or config, or the folder of another sweep.
        """
        for name in (override.partition("=")[0] for override in overrides):
            if name == "seed":
                raise UserError("--config.seed: must be seeds, as in --grid=seed=0,1")
            if name in sweep.fields and sweep.method != "one_at_a_time":
                raise UserError(f"--config.{name}: the sweep sets this field itself")
        self.config, self.flag = configuration.read(flag, overrides), flag or ""
        self.workdir, self._overrides = workdir, tuple(overrides)
        metric, goal = self.config.task.metric
        if sweep.metric not in ("", metric) and not sweep.goal:
            raise UserError(
                f"sweep.goal is missing: the metric {sweep.metric} needs 'min' or 'max'"
            )
        self.sweep = dataclasses.replace(
            sweep, metric=sweep.metric or metric, goal=sweep.goal or goal
        )
        self.rungs = self._rungs()
        if storage.is_file(workdir, f"--workdir={workdir}"):
            raise UserError(f"--workdir={workdir} is a file: must be a folder")
        if (workdir / "config.json").exists():
            raise UserError(
                f"--workdir={workdir} is a run directory: take another folder"
            )
        if joins and sweep.method == "tpe":
            raise UserError("--worker: the method tpe runs on one machine only")
        if joins:
            self.verify()
        self.trials = self._number(space.points(sweep))

    def _rungs(self) -> tuple[int, ...]:
        prune, every = self.sweep.prune, self.config.eval_every
        if prune is None:
            return ()
        total = self.config.train_steps
        if prune.after * every >= total:
            raise UserError(
                f"sweep.prune.after is {prune.after}: must be below "
                f"{math.ceil(total / every)}, the number of evaluations"
            )
        steps = (prune.after * every * prune.factor**i for i in itertools.count())
        return tuple(itertools.takewhile(lambda step: step < total, steps))

    def run(self, trial: Trial, seed: int) -> Run:
        """Returns a run of a trial."""
        given = [*self._overrides, *space.overrides(trial.point), f"seed={seed}"]
        folder = self.workdir / "trials" / f"{trial.number:03}.seed{seed}"
        return Run(trial, seed, folder, tuple(given))

    def runs(self) -> list[Run]:
        """Returns all runs, by trial and seed."""
        pairs = itertools.product(self.trials, self.sweep.seeds)
        return [self.run(trial, seed) for trial, seed in pairs]

    def ladder(self, point: Point) -> Sequence[int]:
        """Returns the steps at which a trial stops; the last one completes it."""
        return *self.rungs, int(point.get("train_steps", self.config.train_steps))

    @property
    def is_growing(self) -> bool:
        """True if further trials will be chosen."""
        return self.sweep.method == "tpe" and len(self.trials) < self.sweep.trials

    def add(self, point: Point) -> Trial:
        """Adds a trial to a sweep whose method chooses trials one by one."""
        trial = Trial(max((x.number for x in self.trials), default=-1) + 1, point)
        self.trials.append(trial)
        return trial

    def check(self) -> None:
        """Checks the config of every run before the first one starts.

        For "tpe", whose points are not known, checks the corners of the space.

        Raises:
            UserError: as `train.py` would for the first config that it refuses.
        """
        points = [trial.point for trial in self.trials]
        if self.sweep.method == "tpe":
            points += space.corners(self.sweep)
        for point in points:
            try:
                configuration.check(self._read(point), Task)
            except UserError as error:
                raise UserError(f"{describe(point)}: {error}") from error
        for seed in self.sweep.seeds:
            configuration.check(self._read({"seed": seed}), Task)

    def verify(self) -> None:
        """Raises a UserError unless the folder has been given this sweep."""
        path = self.workdir / "sweep.json"
        if not path.exists():
            raise UserError(f"{self.workdir} has no sweep.json: start the sweep first")
        if path.read_text("utf-8", "replace") != self._journal:
            raise UserError(
                f"{self.workdir} has another sweep: start again with that of {path}"
            )

    def save(self) -> None:
        """Writes sweep.json."""
        storage.write(self.workdir / "sweep.json", self._journal)

    @functools.cached_property
    def _journal(self) -> str:
        """The text of sweep.json."""
        domains = {space.name_of(k): repr(x) for k, x in self.sweep.space.items()}
        content = {
            "sweep": vars(self.sweep) | {"space": domains},
            "config": configuration.encode(self.config),
        }
        return json.dumps(content, indent=2, default=repr) + "\n"

    def _number(self, points: Sequence[Point]) -> list[Trial]:
        """Numbers points; those with a run keep its number.

        Raises:
            UserError: for a run that belongs to no point.
        """
        keys: dict[str, Point] = {}
        for point in points:
            same = keys.setdefault(self._key(self._read(point)), point)
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
            key = self._key(config)
            if self.sweep.method == "tpe" and key not in keys:
                point = self._point(config, folder)
                keys[self._key(self._read(point))] = point
            if (
                key not in keys
                or int(match[2]) not in self.sweep.seeds
                or config.train_steps not in self.ladder(keys[key])
            ):
                raise self._foreign(folder, config)
            numbers.setdefault(key, int(match[1]))
        free = (n for n in itertools.count() if n not in set(numbers.values()))
        trials = [
            Trial(numbers[key] if key in numbers else next(free), point)
            for key, point in keys.items()
        ]
        return sorted(trials, key=lambda trial: trial.number)

    def _point(self, config: ConfigDict, folder: Path) -> Point:
        """The point of a run, read off its config."""
        fields = dict(configuration.leaves(config))

        def value_at(key: Key, domain: Domain) -> Any:
            values = tuple(fields[name] for name in space.fields(key))
            value = values if isinstance(key, tuple) else values[0]
            if not domain.contains(value):
                raise self._foreign(folder, config)
            return value

        return space.assign(self.sweep, value_at)

    def _read(self, point: Point) -> ConfigDict:
        given = [*self._overrides, *space.overrides(point)]
        return configuration.read(self.flag, given)

    def _key(self, config: ConfigDict) -> str:
        """The fields of a config that distinguish trials, as text."""
        fields = dict(configuration.leaves(configuration.encode(config)))
        free, swept = {"seed", *configuration.CHANGEABLE}, self.sweep.fields
        names = [name for name in fields if name in swept or _top(name) not in free]
        return json.dumps({name: fields[name] for name in sorted(names)})

    def _foreign(self, folder: Path, config: ConfigDict) -> UserError:
        """The error for a run that is not of this sweep; names the differences."""
        base = dict(configuration.leaves(configuration.encode(self.config)))
        fields = dict(configuration.leaves(configuration.encode(config)))
        free = {"seed", *configuration.CHANGEABLE} - {"train_steps"}
        names = [x for x in fields if fields[x] != base.get(x) and _top(x) not in free]
        if config.seed not in self.sweep.seeds:
            names = ["seed"]
        names = [x for x in names if x not in self.sweep.fields] or names
        reason = ", ".join(f"config.{name} is {fields[name]}" for name in names)
        return UserError(
            f"{folder} is not a run of this sweep ({reason}): restore the sweep, or "
            "take another --workdir"
        )


def _top(name: str) -> str:
    return name.split(".")[0]


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


def read_grid(texts: Sequence[str]) -> Sweep:
    """Returns the sweep of flags such as "model.score=dot,general" and "seed=0,1".

    A value that begins with a bracket ends with it: "data.tasks=(1,2),(3,)".

    Raises:
        UserError: for a text of another form.
    """
    domains: dict[Key, Domain] = {}
    seeds: tuple[int, ...] = ()
    for text in texts:
        field, equals, values = text.partition("=")
        parts, flag = _split(values), f"--grid={shorten(text)}"
        if not (field and equals and all(parts)):
            raise UserError(f"{flag}: must be FIELD=VALUE,VALUE,...")
        if field in domains or (field == "seed" and seeds):
            raise UserError(f"{flag}: {field} must be given once")
        try:
            if field == "seed":
                seeds = tuple(map(parse_whole, parts))
            else:
                domains[field] = space.choice(*parts)
        except ValueError as error:
            reason = "seeds must be whole numbers" if field == "seed" else error
            raise UserError(f"{flag}: {reason}") from None
    return Sweep(space=domains, seeds=seeds or (0,))


def _split(values: str) -> list[str]:
    """Splits values at the commas outside of lists in brackets."""
    parts, depth = [""], 0
    for character in values:
        if character == "," and not depth:
            parts.append("")
            continue
        if depth or not parts[-1]:  # a bracket inside of a text is of the text
            depth += (character in "([") - (character in ")]")
        parts[-1] += character
    return parts
