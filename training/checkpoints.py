"""Checkpoints of a run: the last few and the best, written in the background.

A checkpoint gets its final name only when it is complete. If the process is killed
during a save, the previous checkpoint remains the newest.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from errors import UserError

_SCORE = "score"  # selection metric, higher is better
_OLD_NAMES = {"variables": "kept"}  # of entries of `TrainState.extra`
_UNPLANNED = "unplanned"  # marks a checkpoint saved because of a stop signal


@dataclasses.dataclass
class _Last:
    """Preserves the newest checkpoint and the last `n` planned ones; None for all.

    Unplanned checkpoints do not count towards `n`, so that the mean over the last
    checkpoints does not depend on where the run was stopped.
    """

    n: int | None

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        planned = [c.step for c in checkpoints if _is_planned(c.metrics)]
        preserved = {*planned[-(self.n or len(planned)) :], checkpoints[-1].step}
        return [c.step in preserved for c in checkpoints]


class Checkpoints:
    """Checkpoints of a run directory; a context manager that waits for saves."""

    def __init__(self, workdir: Path, keep: int | None = None):
        """Opens `workdir/checkpoints`.

        Args:
            workdir: the run directory.
            keep: number of last planned checkpoints to keep, in addition to the best
                and the newest one; None to open for reading.
        """
        self.path = Path(workdir).absolute() / "checkpoints"
        best = checkpoint_managers.BestN(
            get_metric_fn=_score, n=1, keep_checkpoints_without_metrics=False
        )
        self._manager = ocp.CheckpointManager(
            self.path,
            item_handlers=ocp.StandardCheckpointHandler(),  # for `item_metadata`
            options=ocp.CheckpointManagerOptions(
                create=keep is not None,
                cleanup_tmp_directories=keep is not None,
                best_fn=_score,  # without it no metrics are written
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(
                    [_Last(keep), best]
                ),
            ),
        )

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Waits for pending saves."""
        self._manager.close()

    def steps(self) -> list[int]:
        """Returns the steps of all checkpoints, in order."""
        return sorted(self._manager.all_steps())

    def planned(self) -> list[int]:
        """Returns the steps of checkpoints not due to a stop signal, in order."""
        return [s for s in self.steps() if _is_planned(self._manager.metrics(s))]

    def best(self) -> int | None:
        """Returns the step with the best score, or None if none was evaluated."""
        scores = {step: _score(self._manager.metrics(step)) for step in self.steps()}
        step = max(scores, key=lambda s: (scores[s], s), default=None)
        return None if step is None or scores[step] == -math.inf else step

    def save(
        self,
        step: int,
        state: Any,
        score: float | None = None,
        *,
        planned: bool = True,
    ) -> None:
        """Copies the state and writes the checkpoint in the background.

        Args:
            step: number of steps done; also the name of the checkpoint.
            state: pytree of arrays; its memory may be reused after the call.
            score: selection metric, higher is better; None if not evaluated.
            planned: False if the checkpoint is only due to a stop signal.
        """
        metrics = {} if score is None or math.isnan(score) else {_SCORE: score}
        if not planned:
            metrics[_UNPLANNED] = 1.0
        self._manager.save(
            step, args=ocp.args.StandardSave(state), metrics=metrics, force=True
        )

    def wait(self) -> None:
        """Waits until all saves are complete."""
        self._manager.wait_until_finished()

    def restore(self, step: int, like: Any) -> Any:
        """Returns the state of a step.

        Args:
            step: one of `steps()`.
            like: `TrainState` of `jax.ShapeDtypeStruct`; a leaf without a sharding goes
                to the first device.

        Raises:
            UserError: if the checkpoint is damaged.
        """
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
            reason = str(error).strip().partition("\n")[0][:200]
            raise UserError(f"{self.path}/{step} cannot be read: {reason}") from error
        fields = {name: flat[name] for name in ("step", "params", "opt_state")}
        extra = like.extra
        if extra:
            extra = {name: flat[_OLD_NAMES.get(name, name)] for name in extra}
        return like.replace(**fields, extra=extra)


def find(workdir: Path, which: str | int) -> int:
    """Returns the step of a checkpoint.

    Args:
        workdir: the run directory.
        which: "last", "best" or a step.

    Raises:
        UserError: if there is no such checkpoint.
    """
    with _open(workdir) as checkpoints:
        steps, best = checkpoints.steps(), checkpoints.best()
    if which == "last":
        return steps[-1]
    if which == "best":
        if best is None:
            raise UserError(
                f"{workdir} has no evaluated checkpoint: take last, or one of {steps}"
            )
        return best
    if not str(which).isdecimal() or int(which) not in steps:
        raise UserError(
            f"{workdir} has no checkpoint {which}: take last, best, average, or one of "
            f"{steps}"
        )
    return int(which)


def restore(workdir: Path, which: str | int, like: Any) -> Any:
    """Returns the state of a checkpoint.

    Args:
        workdir: the run directory.
        which: "last", "best" or a step.
        like: shapes of the state, as from `jax.eval_shape(objective.init, rng)`.

    Raises:
        UserError: if there is no such checkpoint.
    """
    step = find(workdir, which)
    with _open(workdir) as checkpoints:
        return checkpoints.restore(step, like)


def average(workdir: Path, n: int, like: Any) -> Any:
    """Returns the last state with the mean parameters of the last `n` checkpoints.

    If there are planned checkpoints, only these are averaged, so that stopping and
    resuming a run does not change the mean. Fewer than `n` are averaged if fewer were
    kept. Checkpoints from the first half of the run are excluded: their parameters are
    too far from the final ones.

    Args:
        workdir: the run directory.
        n: maximum number of checkpoints, at least 1.
        like: see `restore`.

    Raises:
        UserError: if there is no checkpoint, or `n` is below 1.
    """
    if n < 1:
        raise UserError(f"cannot average {n} checkpoints: take 1 or more")
    with _open(workdir) as checkpoints:
        steps = checkpoints.planned() or checkpoints.steps()
        steps = [step for step in steps if 2 * step > steps[-1]][-n:]
        state = checkpoints.restore(steps[-1], like)
        params = state.params
        for step in steps[:-1]:
            other = checkpoints.restore(step, like).params
            params = jax.tree.map(lambda a, b: a + b, params, other)
    mean = jax.tree.map(lambda p: (p / len(steps)).astype(p.dtype), params)
    return state.replace(params=mean)


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
        if checkpoints.steps():
            return checkpoints
    raise UserError(
        f"{Path(workdir) / 'checkpoints'} has no checkpoint: train first, or name "
        "another --workdir"
    )


def _score(metrics: Mapping[str, float] | None) -> float:
    return (metrics or {}).get(_SCORE, -math.inf)


def _is_planned(metrics: Mapping[str, float] | None) -> bool:
    return _UNPLANNED not in (metrics or {})
