"""Checkpoints of a run: the last few and the best, written in the background.

A checkpoint gets its final name only when it is complete, and then a manifest (see
`manifest`) with the SHA-256 of each of its files. Only then are older ones
removed. So if the process is killed at any point, the previous checkpoint is intact,
and a checkpoint newer than one with a manifest that has none is an unfinished save,
which does not count. Nor does a checkpoint without one whose metrics announce it, such
as the first of a run. Checkpoints older than manifests have neither: they count, but
cannot be verified.

A checkpoint is verified before it is used. A damaged one is named on standard error and
an intact one is used; training moves it from `checkpoints/` to `damaged/`.
"""

import contextlib
import errno
import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from base import manifest
from base.errors import UserError, chain, parse_whole, shorten
from training.checkpoint_folder import (
    MANIFEST,
    REPLACED,
    SCORE,
    SUMS,
    UNPLANNED,
    CheckpointFolder,
)
from training.cluster import job

_OLD_NAMES = {"variables": "kept"}  # of entries of `TrainState.extra`
_IN_TEXT = [
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES),
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
]
_ATTEMPTS = 5  # at reading while a run in progress removes old checkpoints


class Checkpoints(CheckpointFolder):
    """Checkpoints of a run directory; a context manager that waits for saves."""

    def __init__(self, workdir: Path, keep: int | None = None):
        """Opens `workdir/checkpoints`.

        For training, damaged and unfinished checkpoints that are newer than the newest
        intact one are moved to `workdir/damaged`.

        Args:
            workdir: the run directory.
            keep: number of last planned checkpoints to keep, in addition to the best
                and the newest two; None to open for reading.

        Raises:
            UserError: if there are checkpoints and none is intact.
        """
        super().__init__(workdir)
        self._keep = keep
        self._saving: _Saving | None = None
        if keep is not None:
            if jax.process_index() == 0:
                self.set_damaged_aside()
            job.wait("checkpoints are set aside")
        _silence_orbax()
        self._manager = ocp.CheckpointManager(
            self.path,
            item_handlers=ocp.StandardCheckpointHandler(),  # for `item_metadata`
            options=ocp.CheckpointManagerOptions(
                create=keep is not None,
                cleanup_tmp_directories=keep is not None,
                best_fn=lambda metrics: metrics.get(
                    SCORE, -math.inf
                ),  # without it no metrics are written
                lightweight_initialize=True,  # metrics may be damaged
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
        try:
            with contextlib.suppress(*[UserError] if kind else []):
                self._finish_save()
        finally:
            with contextlib.suppress(Exception):  # of a failed save, again
                self._manager.close()

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

        The call waits for the previous save, and for the copy of the state. A thread
        writes, hashes and removes files; the checkpoint counts when it is done, and
        replaces an earlier one of the same step.

        Args:
            step: number of steps done; also the name of the checkpoint.
            state: pytree of arrays; its memory may be reused after the call.
            score: selection metric, higher is better; None if not evaluated.
            planned: False if the checkpoint is only due to a stop signal.
            sums: sums of training metrics since the last row of the log, by name.

        Raises:
            UserError: if this save or the previous one cannot be written.
        """
        metrics: dict[str, Any] = {MANIFEST: 1.0}
        if score is not None and not math.isnan(score):
            metrics[SCORE] = score
        if not planned:
            metrics[UNPLANNED] = 1.0
        if sums:
            metrics[SUMS] = dict(sums)
        self._finish_save()
        self._set_aside(step)
        try:
            self._manager.save(
                step, args=ocp.args.StandardSave(state), metrics=metrics, force=True
            )
        except Exception as error:
            raise self._failure(step, error) from _system_error(error) or error
        self._saving = _Saving(self, step)

    def wait(self) -> None:
        """Waits until all saves are complete, on all hosts.

        Raises:
            UserError: if a save cannot be written.
        """
        self._finish_save()
        job.wait("checkpoints are complete")

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
            raise UserError(f"{self.name}/{step} {damage}: {self.advice([step])}")
        first = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=x.sharding or first
            ),
            like,
        )
        try:
            if "extra" in self._manager.item_metadata(step).tree:
                return self._manager.restore(step, args=ocp.args.StandardRestore(like))
            flat = self._manager.restore(
                step, args=ocp.args.StandardRestore(_without_extra(like))
            )
        except Exception as error:  # orbax raises many types for damaged files
            raise UserError(
                f"{self.name}/{step} cannot be read: {_reason(error)}; remove it to "
                "use an earlier checkpoint"
            ) from _system_error(error) or error
        fields = {name: flat[name] for name in ("step", "params", "opt_state")}
        extra = like.extra
        if extra:
            extra = {name: flat[_OLD_NAMES.get(name, name)] for name in extra}
        return like.replace(**fields, extra=extra)

    def _set_aside(self, step: int) -> None:
        """Moves a checkpoint that is about to be replaced, if there is one.

        Process 0 alone looks: a later process would no longer see the checkpoint. The
        others wait in any case.
        """
        if jax.process_index() == 0 and step in self._all_steps():
            (self.path / str(step)).replace(self.path / f"{REPLACED}{step}")
        job.wait("a checkpoint is set aside")
        if step in self._manager.all_steps():  # as it knows them, in each process
            self._manager.reload()

    def _complete(self, step: int) -> None:
        """Waits for a save, writes its manifest and removes old checkpoints."""
        self._manager.wait_until_finished()
        if jax.process_index() == 0:
            manifest.write(self.path / str(step))
            self.remove_old(self._keep or 0)

    def _finish_save(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.join()
            if saving.error is not None:
                cause = _system_error(saving.error) or saving.error
                raise self._failure(saving.step, saving.error) from cause

    def _failure(self, step: int, error: BaseException) -> UserError:
        steps = [s for s in self.steps() if s != step]
        last = f"step {steps[-1]}" if steps else "none"
        return UserError(
            f"{self.name}/{step} cannot be written: {_reason(error)}; the last "
            f"checkpoint is {last}, from which the same command resumes"
        )


class _Saving(threading.Thread):
    """A save in progress.

    Attributes:
        step: the step.
        error: why it failed; None if it has not.
    """

    def __init__(self, checkpoints: Checkpoints, step: int):
        super().__init__(name="save")
        self._checkpoints, self.step = checkpoints, step
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._checkpoints._complete(self.step)
        except BaseException as error:  # raised again by the next call
            self.error = error


def find(workdir: Path, which: str | int) -> int:
    """Returns the step of a checkpoint.

    Args:
        workdir: the run directory.
        which: "last", "best" or a step.

    Raises:
        UserError: if there is no such checkpoint.
    """
    with _open(workdir) as checkpoints:
        return _find(checkpoints, workdir, which)


def _find(checkpoints: Checkpoints, workdir: Path, which: str | int) -> int:
    if which == "last":
        return checkpoints.newest()
    steps = checkpoints.steps()
    if which == "best":
        best = checkpoints.best()
        if best is None:
            raise UserError(
                f"{workdir} has no evaluated checkpoint: take last, or one of {steps}"
            )
        return best
    with contextlib.suppress(ValueError):
        if (step := parse_whole(str(which))) in steps:
            return step
    raise UserError(
        f"{workdir} has no checkpoint {shorten(str(which))}: take last, best, average, "
        f"or one of {steps}"
    )


def require(workdir: Path) -> None:
    """Checks that a run directory has a checkpoint; does not verify it.

    Raises:
        UserError: if it has none.
    """
    with _open(workdir):
        pass


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

    def read(checkpoints: Checkpoints) -> Any:
        return checkpoints.restore(_find(checkpoints, workdir, which), like)

    return _read(workdir, read)


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
        UserError: if there is no intact checkpoint, or `n` is below 1.
    """
    if n < 1:
        raise UserError(f"cannot average {n} checkpoints: take 1 or more")

    def read(checkpoints: Checkpoints) -> Any:
        *others, last = checkpoints.last(n)
        state = checkpoints.restore(last, like)
        params = state.params
        for step in others:
            other = checkpoints.restore(step, like).params
            params = jax.tree.map(lambda a, b: a + b, params, other)
        count = len(others) + 1
        mean = jax.tree.map(lambda p: (p / count).astype(p.dtype), params)
        return state.replace(params=mean)

    return _read(workdir, read)


def _read(workdir: Path, read: Callable[[Checkpoints], Any]) -> Any:
    """Returns `read(checkpoints)` of a run.

    A run in progress may remove checkpoints meanwhile; the rest is then read again.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        with _open(workdir) as checkpoints:
            steps = checkpoints.steps()
            try:
                return read(checkpoints)
            except UserError:
                if attempt == _ATTEMPTS or set(steps) <= set(checkpoints.steps()):
                    raise
    raise AssertionError


def _without_extra(like: Any) -> dict[str, Any]:
    """Returns the shapes of a state in the old layout, without `extra`.

    In the old layout the entries of `extra` are siblings of `params`, and a run without
    a baseline stores the baseline None.
    """
    fields = {"step": like.step, "params": like.params, "opt_state": like.opt_state}
    extra = like.extra or {"baseline": None}
    return fields | {_OLD_NAMES.get(n, n): value for n, value in extra.items()}


def _open(workdir: Path) -> Checkpoints:
    if (Path(workdir) / "checkpoints").is_dir():
        checkpoints = Checkpoints(workdir)
        if checkpoints.has_steps():
            return checkpoints
    raise UserError(
        f"{Path(workdir) / 'checkpoints'} has no checkpoint: train first, or name "
        "another --workdir"
    )


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


def _silence_orbax() -> None:
    """Turns off the log of orbax: what it logs with a traceback is raised as well.

    The same holds for the tasks and threads of tensorstore, which may still end a part
    of a save after another part has failed and nobody waits for it.
    """
    logging.getLogger("absl").addFilter(_is_not_of_orbax)
    logging.getLogger("asyncio").addFilter(_is_not_of_a_task)
    if sys.unraisablehook is not _report:
        _hooks.append(sys.unraisablehook)
        sys.unraisablehook = _report


_hooks: list[Callable[[Any], Any]] = []  # the hook before `_silence_orbax`


def _report(unraisable: Any) -> None:
    if str(unraisable.exc_value) != "Event loop is closed":
        _hooks[-1](unraisable)


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in Path(record.pathname).parts


def _is_not_of_a_task(record: logging.LogRecord) -> bool:
    kind, _, rest = record.msg.partition("\n")[0].partition(" ")
    is_task = kind == "Task" or kind.endswith("Future")  # also _GatheringFuture
    return not is_task or rest != "exception was never retrieved"
