"""Checkpoints of a run: the last few and the best, written in the background by orbax.

A checkpoint is complete or absent. Orbax writes it under a temporary name; then it gets
a manifest (see `base.manifest`) with the SHA-256 of each of its files, and only then
its final name. Older ones are removed after that. So a run that is killed at any point
has an intact checkpoint, and the next start removes what is unfinished.

A checkpoint is verified before it is used. A damaged one is named on standard error and
an intact one is used; training moves it from `checkpoints/` to `damaged/`.
"""

import asyncio
import contextlib
import errno
import inspect
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import absl.logging
import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies
from orbax.checkpoint.path import atomicity

from base import manifest
from base.errors import UserError, chain, parse_whole, shorten
from training import run_directory
from training.cluster import job

# Metrics of a checkpoint.
_SCORE = "score"  # selection metric, higher is better; absent if not evaluated
_PLANNED = "planned"  # the step, absent if the checkpoint is due to a stop signal
_SUMS = "sums"  # of training metrics since the last row of the log
_REMOVED = ".removed"  # folder for checkpoints that are being removed
_IN_TEXT = [
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES),
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
]
_POLL = 0.01  # seconds between two looks at a save
_ATTEMPTS = 5  # at reading while a run in progress removes old checkpoints


class Checkpoints:
    """Checkpoints of a run directory; a context manager that waits for saves.

    Attributes:
        path: the folder `checkpoints` of the run directory.
        name: its path for messages, as given.
    """

    def __init__(self, workdir: Path, keep: int | None = None):
        """Opens `workdir/checkpoints`.

        For training, damaged checkpoints are moved to `workdir/damaged`.

        Args:
            workdir: the run directory.
            keep: number of last planned checkpoints to keep, in addition to the best
                and the newest two; None to open for reading.

        Raises:
            UserError: if there are checkpoints and none is intact.
        """
        self._workdir, self._writes = Path(workdir), keep is not None
        self.name = self._workdir / "checkpoints"
        self.path = self.name.absolute()
        self._intact: set[int] = set()  # verified by this object
        self._errors: list[Exception] = []  # of saves
        self._saving: int | None = None
        if self._writes:
            if jax.process_index() == 0:
                for path in self.path.glob(f"{_REMOVED}/*"):
                    if int(path.name) > max(self.steps(), default=0):
                        # Killed before the checkpoint in its place was complete.
                        path.replace(self.path / path.name)
                self._empty()
                if self.steps():
                    self.verify(handle=self._move)
            job.wait("checkpoints are set aside")
        # What orbax and its tasks log is raised as well.
        absl.logging.set_verbosity(absl.logging.FATAL)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        sys.unraisablehook = _report_unraisable
        self._manager = ocp.CheckpointManager(
            self.path,
            item_handlers=ocp.StandardCheckpointHandler(),  # for the metadata
            options=ocp.CheckpointManagerOptions(
                create=self._writes,
                cleanup_tmp_directories=self._writes,
                todelete_subdir=_REMOVED,
                temporary_path_class=_sealed_path(self._errors),
                best_fn=_score,  # without it no metrics are written
                lightweight_initialize=not self._writes,  # metrics may be damaged
                preservation_policy=policies.AnyPreservationPolicy(
                    [
                        policies.LatestN(2),  # if the newest is damaged
                        policies.BestN(get_metric_fn=_score, n=1),
                        policies.BestN(get_metric_fn=_planned, n=keep or 0),
                    ]
                ),
            ),
        )

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Waits for pending saves.

        Raises:
            UserError: if a save has failed and the block has not.
        """
        with contextlib.suppress(*[UserError] if kind else []):
            self._finish()
        if not self._errors:
            self._manager.close()
            self._empty()

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints, in order; they are not verified."""
        return run_directory.steps(self._workdir)

    def planned(self) -> list[int]:
        """Returns the steps of intact checkpoints that are not due to a signal."""
        return [s for s in self.steps() if _PLANNED in self._metrics(s)]

    def sums(self, step: int) -> dict[str, list[float]]:
        """Returns the sums that were saved with a checkpoint; {} without any."""
        return self._metrics(step).get(_SUMS, {})

    def find(self, which: str | int) -> int:
        """Returns the step of a checkpoint.

        Args:
            which: "last", "best" or a step; only the first two are verified.

        Raises:
            UserError: if there is no such checkpoint.
        """
        steps = self.steps()
        if which == "last":
            return self.verify(1)[0]
        if which == "best":
            if (best := self.best()) is not None:
                return best
            raise UserError(
                f"{self._workdir} has no evaluated checkpoint: take last, or one of "
                f"{steps}"
            )
        with contextlib.suppress(ValueError):
            if (step := parse_whole(str(which))) in steps:
                return step
        raise UserError(
            f"{self._workdir} has no checkpoint {shorten(str(which))}: take last, "
            f"best, average, or one of {steps}"
        )

    def best(self) -> int | None:
        """Returns the step of the intact checkpoint with the best score.

        Returns:
            The last one of equals; None if no intact checkpoint was evaluated.

        Raises:
            UserError: if none is intact.
        """
        intact = self.verify() if self.steps() else []
        scores = {step: _score(self._metrics(step)) for step in intact}
        best = max(scores, key=lambda step: (scores[step], step), default=0)
        return best if scores.get(best, -math.inf) > -math.inf else None

    def damage(self, step: int) -> str:
        """Returns what is wrong with a checkpoint, such as "is damaged: ..."; or "".

        Raises:
            UserError: for a file that cannot be read.
        """
        if step not in self._intact:
            try:
                manifest.check(self.path / str(step))
            except manifest.DamageError as error:
                return f"is damaged: {error}"
            except OSError as error:
                raise UserError(f"{error.filename}: {error.strerror}") from error
            self._intact.add(step)
        return ""

    def verify(
        self, n: int | None = None, handle: Callable[[int], str] = lambda step: ""
    ) -> list[int]:
        """Returns the steps of intact checkpoints, the newest first.

        Args:
            n: number of checkpoints after which the search ends; None for all.
            handle: called with each damaged one, which standard error names; returns
                what was done with it, such as "removed, ".

        Raises:
            UserError: if none is intact.
        """
        intact: list[int] = []
        damage: dict[int, str] = {}
        for step in reversed(self.steps()):
            if text := self.damage(step):
                damage[step] = text
            else:
                intact.append(step)
            if len(intact) == n:
                break
        if not intact:
            texts = "; ".join(f"{step} {text}" for step, text in damage.items())
            raise UserError(
                f"{self.name} has no intact checkpoint ({texts}): {_ADVICE}"
            )
        for step, text in damage.items():
            if (self.path / str(step)).exists():  # not removed by a run in progress
                use = f"{handle(step)}step {intact[0]} is used instead"
                print(f"warning: {self.name}/{step} {text}: {use}", file=sys.stderr)
        return intact

    def save(
        self,
        step: int,
        state: Any,
        score: float | None = None,
        *,
        planned: bool = True,
        sums: Mapping[str, list[float]] | None = None,
    ) -> None:
        """Copies the state and writes the checkpoint in the background.

        The call waits for the previous save, and for the copy of the state. An earlier
        checkpoint of the same step is removed first.

        Args:
            step: number of steps done; also the name of the checkpoint.
            state: pytree of arrays; its memory may be reused after the call.
            score: selection metric, higher is better; None if not evaluated.
            planned: False if the checkpoint is only due to a stop signal.
            sums: sums of training metrics since the last row of the log, by name.

        Raises:
            UserError: if this save or the previous one cannot be written.
        """
        metrics: dict[str, Any] = {_SUMS: dict(sums or {})}
        if score is not None and not math.isnan(score):
            metrics[_SCORE] = score
        if planned:
            metrics[_PLANNED] = step
        self._finish()
        self._empty()
        try:
            if step in self._manager.all_steps():
                self._manager.delete(step)
                self._intact.discard(step)
            self._manager.save(
                step, args=ocp.args.StandardSave(state), metrics=metrics, force=True
            )
        except Exception as error:
            self._fail(step, error)
        self._saving = step

    def wait(self) -> None:
        """Waits until the save is complete, on all hosts.

        Raises:
            UserError: if it cannot be written.
        """
        self._finish()
        job.wait("checkpoints are complete")

    def _finish(self) -> None:
        step, self._saving = self._saving, None
        if step is None:
            return
        # Orbax alone would wait for the other processes, which wait for this one.
        while self._manager.is_saving_in_progress() and not self._errors:
            time.sleep(_POLL)
        try:
            if self._errors:
                raise self._errors[0]
            self._manager.wait_until_finished()
        except Exception as error:
            self._fail(step, error)

    def restore(self, step: int, like: Any) -> Any:
        """Returns the state of a step.

        Args:
            step: one of `steps()`.
            like: `TrainState` of `jax.ShapeDtypeStruct`; a leaf without a sharding goes
                to the first device.

        Raises:
            UserError: if the checkpoint is damaged.
        """
        if damage := self.damage(step):
            others = [other for other in self.steps() if other != step]
            advice = f"take last, or one of {others}" if others else _ADVICE
            raise UserError(f"{self.name}/{step} {damage}: {advice}")
        first = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=x.sharding or first
            ),
            like,
        )
        try:
            params = self._manager.item_metadata(step).tree["params"]
            if not (difference := _difference(params, like.params)):
                return self._manager.restore(step, args=ocp.args.StandardRestore(like))
        except Exception as error:  # orbax raises many types
            system = _system_error(error)
            advice = _OTHER_MODEL
            if system:
                advice = "remove it to use an earlier checkpoint"
            raise UserError(
                f"{self.name}/{step} cannot be read: {_reason(error)}; {advice}"
            ) from system or error
        raise UserError(f"{self.name}/{step} has {difference}: {_OTHER_MODEL}")

    def _metrics(self, step: int) -> dict[str, Any]:
        """Returns the metrics of a checkpoint; {} if it is damaged."""
        return {} if self.damage(step) else self._manager.metrics(step) or {}

    def _move(self, step: int) -> str:
        """Moves a checkpoint to `damaged/`, or else renames it; returns what was done.

        Raises:
            UserError: if neither is possible.
        """
        aside = self._workdir / "damaged" / str(step)
        for target in (aside, self.path / f".damaged_{step}"):
            try:
                target.parent.mkdir(exist_ok=True)
                shutil.rmtree(target, ignore_errors=True)
                (self.path / str(step)).replace(target)
                return f"moved to {target}, "
            except OSError as error:  # such as another file system
                reason = error.strerror
        raise UserError(
            f"{self.name}/{step} is not intact and cannot be moved: {reason}; move it "
            "away to use an earlier checkpoint"
        )

    def _empty(self) -> None:
        """Removes the folder of removed checkpoints."""
        if self._writes and jax.process_index() == 0:
            shutil.rmtree(self.path / _REMOVED, ignore_errors=True)

    def _fail(self, step: int, error: Exception) -> NoReturn:
        self._errors.append(error)
        steps = [s for s in self.steps() if s != step]
        raise UserError(
            f"{self.name}/{step} cannot be written: {_reason(error)}; the last "
            f"checkpoint is {f'step {steps[-1]}' if steps else 'none'}, from which the "
            "same command resumes"
        ) from _system_error(error) or error


_OTHER_MODEL = (
    "its files are intact, but the config or the model is not that of its training"
)
_ADVICE = "restore the files from a copy, or name another --workdir"


def _sealed_path(errors: list[Exception]) -> type[atomicity.AtomicRenameTemporaryPath]:
    """Returns orbax's temporary folder with a manifest, written before the final name.

    Args:
        errors: gets the error if one of the two fails.
    """

    class SealedPath(atomicity.AtomicRenameTemporaryPath):
        _final_path: Any

        async def finalize(self) -> None:
            final, name = self._final_path, self._final_path.name
            if not name.isdecimal():  # a part of a checkpoint
                return await super().finalize()
            # Orbax writes its last files when it renames the folder.
            sealed = final.with_name(f"{name}.sealed{atomicity.TMP_DIR_SUFFIX}")
            try:
                self._final_path = sealed
                await super().finalize()
                await asyncio.to_thread(manifest.write, Path(sealed))
                sealed.rename(final)
            except OSError as error:
                errors.append(error)
                raise
            finally:
                self._final_path = final

    return SealedPath


def _report_unraisable(unraisable: Any, report: Any = sys.unraisablehook) -> None:
    """Leaves out reads and writes that end after the one whose error is reported."""
    is_closed = str(unraisable.exc_value) == "Event loop is closed"
    if not is_closed and not inspect.iscoroutine(unraisable.object):
        report(unraisable)


def _difference(saved: Any, wanted: Any) -> str:
    """Returns a parameter whose shape is not that of the model's, in words, or "".

    Orbax notices it, too, but leaves reads behind that report it again at exit.
    """
    saved_shapes, shapes = (
        {
            jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape)
            for path, leaf in jax.tree.leaves_with_path(params)
        }
        for params in (saved, wanted)
    )
    for name in sorted({*saved_shapes, *shapes}):
        if name not in shapes:
            return f"a parameter {name}, which the model lacks"
        if name not in saved_shapes:
            return f"no parameter {name}, which the model needs"
        if (given := saved_shapes[name]) != shapes[name]:
            return f"{name} of shape {given}, which is {shapes[name]} in the model"
    return ""


def _score(metrics: Mapping[str, Any]) -> float:
    return metrics.get(_SCORE, -math.inf)


def _planned(metrics: Mapping[str, Any]) -> int:
    return metrics.get(_PLANNED, -1)


def require(workdir: Path) -> None:
    """Checks that a run directory has a checkpoint; does not verify it.

    Raises:
        UserError: if it has none.
    """
    if not run_directory.steps(workdir):
        raise UserError(
            f"{Path(workdir) / 'checkpoints'} has no checkpoint: train first, or name "
            "another --workdir"
        )


def find(workdir: Path, which: str | int) -> int:
    """Returns the step of a checkpoint; see `Checkpoints.find`."""
    return _read(workdir, lambda checkpoints: checkpoints.find(which))


def restore(workdir: Path, which: str | int, like: Any) -> Any:
    """Returns the state of a checkpoint.

    Args:
        workdir: the run directory.
        which: "last", "best" or a step; an intact checkpoint is used in the place of a
            damaged "last" or "best", which standard error names.
        like: shapes of the state, as from `jax.eval_shape(objective.init, rng)`.

    Raises:
        UserError: if there is no such checkpoint, or it is damaged.
    """
    return _read(workdir, lambda saved: saved.restore(saved.find(which), like))


def average(workdir: Path, n: int, like: Any) -> Any:
    """Returns the last state with the mean parameters of the last `n` checkpoints.

    If there are planned checkpoints, only these are averaged, so that stopping and
    resuming a run does not change the mean. Fewer than `n` are averaged if fewer were
    kept, or if some are damaged, which standard error names. Checkpoints from the first
    half of the run are excluded: their parameters are too far from the final ones.

    Args:
        workdir: the run directory.
        n: maximum number of checkpoints, at least 1.
        like: see `restore`.

    Raises:
        UserError: if there is no intact checkpoint.
    """

    def read(saved: Checkpoints) -> Any:
        intact, planned = saved.verify(), set(saved.planned())
        steps = [step for step in intact if step in planned] or intact
        last, *others = [step for step in steps if 2 * step > steps[0]][:n]
        state = saved.restore(last, like)
        params = state.params
        for step in others:
            other = saved.restore(step, like).params
            params = jax.tree.map(lambda a, b: a + b, params, other)
        count = 1 + len(others)
        mean = jax.tree.map(lambda p: (p / count).astype(p.dtype), params)
        return state.replace(params=mean)

    return _read(workdir, read)


def _read(workdir: Path, read: Callable[[Checkpoints], Any]) -> Any:
    """Returns `read(checkpoints)` of a run.

    A run in progress may remove checkpoints meanwhile; the rest is then read again.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        require(workdir)
        with Checkpoints(workdir) as checkpoints:
            steps = checkpoints.steps()
            try:
                return read(checkpoints)
            except UserError:
                if attempt == _ATTEMPTS or set(steps) <= set(checkpoints.steps()):
                    raise
    raise AssertionError


def _reason(error: BaseException) -> str:
    """Returns the reason for an error in one line."""
    system = _system_error(error)
    reason = system.strerror if system else None
    return reason or " ".join(str(error).split())[:200]


def _system_error(error: BaseException) -> OSError | None:
    """Returns the first error of the operating system that led to an error, if any.

    Errors of tensorstore only state it in their text.
    """
    for cause in chain(error):
        if isinstance(cause, OSError) and cause.strerror:
            return cause
    text = " ".join(str(error).split())
    for number in _IN_TEXT:
        if os.strerror(number) in text:
            return OSError(number, os.strerror(number))
    return None
