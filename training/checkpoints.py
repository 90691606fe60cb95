"""Checkpoints of a run: the last few and the best, written in the background.

A checkpoint appears under its final name only when it is complete, so a process killed
inside a save leaves the one before it as the newest.
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

_SCORE = "score"  # higher is better; what the best checkpoint has most of
_OLD_NAMES = {"variables": "kept"}  # of entries of `TrainState.extra`, beside params
_UNPLANNED = "unplanned"  # saved because the run was asked to stop


@dataclasses.dataclass
class _Last:
    """Keeps the newest checkpoint and the last `n` planned ones; all if `n` is None.

    An unplanned one takes no planned one's place, so that the mean over the last few
    does not depend on where a run was stopped.
    """

    n: int | None

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        planned = [c.step for c in checkpoints if _is_planned(c.metrics)]
        kept = {*planned[-(self.n or len(planned)) :], checkpoints[-1].step}
        return [c.step in kept for c in checkpoints]


class Checkpoints:
    """The checkpoints in a run directory; a context manager that waits for saves."""

    def __init__(self, workdir: Path, keep: int | None = None):
        """Opens `workdir/checkpoints`.

        Args:
            workdir: the run directory.
            keep: how many of the last planned checkpoints to keep, besides the best one
                and the newest; None opens for reading.
        """
        self.path = Path(workdir).absolute() / "checkpoints"
        best = checkpoint_managers.BestN(
            get_metric_fn=_score, n=1, keep_checkpoints_without_metrics=False
        )
        self._manager = ocp.CheckpointManager(
            self.path,
            item_handlers=ocp.StandardCheckpointHandler(),  # for the metadata
            options=ocp.CheckpointManagerOptions(
                create=keep is not None,
                cleanup_tmp_directories=keep is not None,
                best_fn=_score,  # without it metrics are not written
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(
                    [_Last(keep), best]
                ),
            ),
        )

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Waits for the last save."""
        self._manager.close()

    def steps(self) -> list[int]:
        """Returns the steps there are, in order."""
        return sorted(self._manager.all_steps())

    def planned(self) -> list[int]:
        """Returns the steps without those where a run was asked to stop, in order."""
        return [s for s in self.steps() if _is_planned(self._manager.metrics(s))]

    def best(self) -> int | None:
        """Returns the step with the best score, or None where none was evaluated."""
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
        """Copies the state and returns; the rest happens in the background.

        Args:
            step: its name.
            state: pytree of arrays; its memory may be reused at once.
            score: higher is better; None if the state was not evaluated.
            planned: whether a run that nobody stops has this checkpoint, too.
        """
        metrics = {} if score is None or math.isnan(score) else {_SCORE: score}
        if not planned:
            metrics[_UNPLANNED] = 1.0
        self._manager.save(
            step, args=ocp.args.StandardSave(state), metrics=metrics, force=True
        )

    def wait(self) -> None:
        """Returns when every save is complete."""
        self._manager.wait_until_finished()

    def restore(self, step: int, like: Any) -> Any:
        """Returns the state of a step.

        Args:
            step: one of `steps()`.
            like: `TrainState` of `jax.ShapeDtypeStruct`; a leaf without a sharding goes
                to the first device.

        Raises:
            UserError: for one that is damaged.
        """
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=x.sharding or place
            ),
            like,
        )
        try:
            if "extra" in self._manager.item_metadata(step).tree:
                return self._manager.restore(step, args=ocp.args.StandardRestore(like))
            flat = self._manager.restore(
                step, args=ocp.args.StandardRestore(_without_extra(like))
            )
        except Exception as error:  # of many kinds, for files that are damaged or gone
            what = str(error).strip().partition("\n")[0][:200]
            raise UserError(f"{self.path}/{step} cannot be read: {what}") from error
        fields = {name: flat[name] for name in ("step", "params", "opt_state")}
        extra = like.extra
        if extra:
            extra = {name: flat[_OLD_NAMES.get(name, name)] for name in extra}
        return like.replace(**fields, extra=extra)


def find(workdir: Path, which: str | int) -> int:
    """Returns the step that `which` names: "last", "best" or a step.

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
                f"{workdir} holds no evaluated checkpoint: take last, or one of {steps}"
            )
        return best
    if not str(which).isdecimal() or int(which) not in steps:
        raise UserError(
            f"{workdir} has no checkpoint {which}: take last, best, average, or one of "
            f"{steps}"
        )
    return int(which)


def restore(workdir: Path, which: str | int, like: Any) -> Any:
    """Returns a state of the run in `workdir`.

    Args:
        workdir: the run directory.
        which: "last", "best" or a step.
        like: the state's shapes, as `jax.eval_shape(objective.init, rng)` gives them.

    Raises:
        UserError: if there is no such checkpoint.
    """
    step = find(workdir, which)
    with _open(workdir) as checkpoints:
        return checkpoints.restore(step, like)


def average(workdir: Path, n: int, like: Any) -> Any:
    """Returns the last state with the mean parameters of the last `n` checkpoints.

    Only planned ones count, where there are any, so that a run that was stopped and
    resumed has the same mean. Fewer are averaged where fewer were kept, and none of the
    first half of a run, far from where it ended.

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
    """A state as it was saved before `extra`: its entries beside the parameters.

    A run without a baseline had one of None.
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
        f"{Path(workdir) / 'checkpoints'} holds no checkpoint: train first, or name "
        "another --workdir"
    )


def _score(metrics: Mapping[str, float] | None) -> float:
    return (metrics or {}).get(_SCORE, -math.inf)


def _is_planned(metrics: Mapping[str, float] | None) -> bool:
    return _UNPLANNED not in (metrics or {})
