"""Checkpoints on disk: which of them count, are intact, are the best.

See `training.checkpoints`, which writes and reads them.
"""

import contextlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from base import manifest
from base.errors import UserError, parse_json
from base.manifest import DamageError

SCORE = "score"  # selection metric, higher is better
MANIFEST = "manifest"  # marks a checkpoint that is complete only with a manifest
UNPLANNED = "unplanned"  # marks a checkpoint saved because of a stop signal
SUMS = "sums"  # of training metrics since the last row of the log
_METRICS = "metrics/metrics"  # file of a checkpoint
_REMOVED = ".removed_"  # prefix of folders that are being removed
REPLACED = ".replaced_"  # prefix of checkpoints that are being replaced
_DAMAGED = ".damaged_"  # prefix of damaged checkpoints that cannot leave the folder


class CheckpointFolder:
    """The checkpoints of a run directory, by step.

    Attributes:
        path: the folder `checkpoints` of the run directory.
        name: its path for messages, as given.
    """

    def __init__(self, workdir: Path):
        """Opens a folder of checkpoints, which need not exist.

        Args:
            workdir: the run directory.
        """
        self.path = Path(workdir).absolute() / "checkpoints"
        self._workdir = Path(workdir)
        self.name = self._workdir / "checkpoints"
        self._intact: set[int] = set()  # verified by this object

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints that count, in order.

        Saves that are not complete do not count. The checkpoints are not verified.
        """
        steps = self._all_steps()
        first = min(filter(self._has_manifest, steps), default=math.inf)
        return [
            step
            for step in steps
            if self._has_manifest(step) or (step < first and self._is_old(step))
        ]

    def has_steps(self) -> bool:
        """Returns whether there are checkpoints, also damaged ones."""
        return bool(self._all_steps())

    def planned(self) -> list[int]:
        """Returns the steps of checkpoints not due to a stop signal, in order.

        Checkpoints whose metrics are damaged are left out.
        """
        metrics = self._all_metrics(self.steps())
        return [step for step in metrics if _is_planned(metrics[step])]

    def sums(self, step: int) -> dict[str, list[float]]:
        """Returns the sums that were saved with a checkpoint; {} without any."""
        return self._all_metrics([step]).get(step, {}).get(SUMS, {})

    def newest(self) -> int:
        """Returns the step of the newest intact checkpoint.

        Raises:
            UserError: if there is none.
        """
        return self._first_intact(reversed(self._all_steps()))

    def best(self) -> int | None:
        """Returns the step of the intact checkpoint with the best score.

        Returns:
            None if no checkpoint was evaluated.

        Raises:
            UserError: if no evaluated checkpoint is intact.
        """
        steps = self._all_steps()
        metrics = self._all_metrics(self.steps())
        evaluated = [s for s in metrics if _score(metrics[s]) > -math.inf]
        if not evaluated:
            return None
        evaluated.sort(key=lambda s: (_score(metrics[s]), s), reverse=True)
        # A checkpoint with unknown metrics may have been the best one.
        unknown = [step for step in steps if step not in metrics]
        return self._first_intact([*unknown, *evaluated])

    def last(self, n: int) -> list[int]:
        """Returns the last `n` planned checkpoints that are intact, in order.

        Damaged ones are named and left out, as are checkpoints from the first half of
        the run. If no checkpoint is planned, unplanned ones are returned.

        Raises:
            UserError: if none is intact.
        """
        counted = self.steps()
        metrics = self._all_metrics(counted)
        planned = [s for s in counted if s not in metrics or _is_planned(metrics[s])]
        steps = planned or counted
        unfinished = [step for step in self._all_steps() if step not in counted]
        intact: list[int] = []
        damage = {step: self.damage(step) for step in unfinished}
        for step in reversed([step for step in steps if 2 * step > steps[-1]]):
            if len(intact) < n:
                damage[step] = self.damage(step)
                intact[:0] = [] if damage[step] else [step]
        if not intact:
            raise self._none_intact(damage)
        for step, text in damage.items():
            if text:
                _warn(f"{self.name}/{step} {text}: it is left out of the mean")
        return intact

    def _all_steps(self) -> list[int]:
        """Returns the steps of all checkpoints, also of those that do not count."""
        names = (path.name for path in self.path.glob("[0-9]*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _has_manifest(self, step: int) -> bool:
        return os.path.lexists(self.path / str(step) / manifest.NAME)

    def _is_old(self, step: int) -> bool:
        """Returns whether a checkpoint without a manifest is older than manifests."""
        with contextlib.suppress(OSError, ValueError):
            return MANIFEST not in self._metrics(step)
        return True

    def damage(self, step: int) -> str:
        """Returns what is wrong with a checkpoint, such as "is damaged: ..."; or "".

        Each file is read once, but only the metrics of a checkpoint older than
        manifests.
        """
        folder = self.path / str(step)
        if step in self._intact:
            return ""
        if not folder.is_dir():
            return "is a file" if folder.exists() else "is missing"
        try:
            if self._has_manifest(step):
                manifest.check(folder)
            elif step not in self.steps():
                return f"is an unfinished save: {manifest.NAME} is missing"
            self._metrics(step)
        except (DamageError, ValueError) as error:
            return f"is damaged: {error}"
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}") from error
        self._intact.add(step)
        return ""

    def _first_intact(
        self, steps: Iterable[int], handle: Callable[[int], str] = lambda step: ""
    ) -> int:
        """Returns the first intact step; names the damaged ones before it.

        Args:
            steps: steps of checkpoints; a later one is used if the earlier are damaged.
            handle: called with each damaged step if there is an intact one; returns
                what was done with it, such as "removed, ".

        Raises:
            UserError: if none is intact.
        """
        damage: dict[int, str] = {}
        for step in steps:
            text = self.damage(step)
            if not text:
                for other, text in damage.items():
                    use = f"{handle(other)}step {step} is used instead"
                    _warn(f"{self.name}/{other} {text}: {use}")
                return step
            damage[step] = text
        raise self._none_intact(damage)

    def advice(self, damaged: Collection[int]) -> str:
        """Returns what to do if these checkpoints are damaged."""
        others = [step for step in self.steps() if step not in damaged]
        if others:
            return f"take last, or one of {others}"
        return "restore the files from a copy, or name another --workdir"

    def _none_intact(self, damage: Mapping[int, str]) -> UserError:
        texts = "; ".join(f"{step} {text}" for step, text in damage.items() if text)
        advice = self.advice(damage)
        return UserError(f"{self.name} has no intact checkpoint ({texts}): {advice}")

    def set_damaged_aside(self) -> None:
        """Moves what is newer than the newest intact checkpoint to `damaged/`.

        A single checkpoint that is an unfinished save is the first one of a run, which
        begins again; if one of several should be intact and is not, nothing is moved.
        """
        for path in self.path.glob(f"{_REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)
        for step, path in self._replaced():
            if self._has_manifest(step):
                shutil.rmtree(path)
            else:  # killed before the new one was complete
                shutil.rmtree(self.path / str(step), ignore_errors=True)
                path.replace(self.path / str(step))
        steps = self._all_steps()
        if len(steps) == 1 and not self.steps():
            (step,), damage = steps, self.damage(steps[0])
            _warn(f"{self.name}/{step} {damage}: {self._move(step)}begun again")
        elif steps:
            self._first_intact(reversed(steps), self._move)

    def _move(self, step: int) -> str:
        """Moves a checkpoint to `damaged/`; returns what was done.

        Where that is impossible, for example on another file system, the checkpoint is
        renamed in its folder, so that it no longer counts.

        Raises:
            UserError: if neither is possible.
        """
        source, folder = self.path / str(step), self._workdir / "damaged"
        renamed = f"{_DAMAGED}{step}"
        try:
            try:
                folder.mkdir(exist_ok=True)
                _replace_folder(source, folder / str(step))
                return f"moved to {folder}, "
            except OSError as error:
                _replace_folder(source, self.path / renamed)
                return f"renamed to {renamed} ({folder}: {error.strerror}), "
        except OSError as error:
            raise UserError(
                f"{self.name}/{step} is not intact and cannot be moved: "
                f"{error.strerror}; move it away to use an earlier checkpoint"
            ) from error

    def _replaced(self) -> list[tuple[int, Path]]:
        """Returns step and folder of the checkpoints that were being replaced."""
        paths = self.path.glob(f"{REPLACED}*")
        named = [(path.name.removeprefix(REPLACED), path) for path in paths]
        return [(int(name), path) for name, path in named if name.isdecimal()]

    def _all_metrics(self, steps: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Returns the metrics of checkpoints, without those that are damaged."""
        metrics = {}
        for step in steps:
            with contextlib.suppress(DamageError, OSError, ValueError):
                metrics[step] = self._metrics(step)
        return metrics

    def _metrics(self, step: int) -> dict[str, Any]:
        folder = self.path / str(step)
        if self._has_manifest(step):
            if step not in self._intact:
                manifest.check(folder, [_METRICS])
        elif not (folder / _METRICS).exists():
            return {}
        metrics = parse_json((folder / _METRICS).read_text())
        if not isinstance(metrics, dict):
            raise ValueError(f"{_METRICS} is not an object")
        return metrics

    def remove_old(self, keep: int) -> None:
        """Removes checkpoints other than the last planned, the best and the newest two.

        Unplanned checkpoints do not count towards `keep`, so that the mean over the
        last checkpoints does not depend on where the run was stopped. The newest two
        are kept so that there is another one if the newest is damaged.

        Args:
            keep: number of last planned checkpoints to keep.
        """
        steps = self.steps()
        metrics = self._all_metrics(steps)
        planned = [step for step in metrics if _is_planned(metrics[step])]
        best = max(metrics, key=lambda s: (_score(metrics[s]), s), default=None)
        if best is not None and _score(metrics[best]) == -math.inf:
            best = None
        for step in metrics.keys() - {
            *planned[-keep:],
            *steps[-2:],
            best,
        }:
            removed = self.path / f"{_REMOVED}{step}"
            (self.path / str(step)).replace(removed)  # at once, for readers
            shutil.rmtree(removed)
        for _, path in self._replaced():
            shutil.rmtree(path)


def _replace_folder(source: Path, target: Path) -> None:
    """Moves a folder to `target`, in the place of a folder there."""
    if target.is_dir():
        shutil.rmtree(target)
    source.replace(target)


def _score(metrics: Mapping[str, Any] | None) -> float:
    return (metrics or {}).get(SCORE, -math.inf)


def _is_planned(metrics: Mapping[str, Any] | None) -> bool:
    return UNPLANNED not in (metrics or {})


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)
