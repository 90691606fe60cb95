"""The training loop, independent of task and model.

A run is a function of its config: batch i depends on (seed, i), the random numbers of a
step depend on (seed, step), and a checkpoint has everything else. So a run that was
stopped at any point resumes to bit-identical parameters.
"""

import contextlib
import dataclasses
import functools
import shutil
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from base import spread, storage
from base.errors import UserError
from figures import canvas
from training import (
    checks,
    configuration,
    encoding,
    evaluate,
    moments,
    optimizers,
    runtime,
    sharding,
    sharding_table,
)
from training.checkpoints import Checkpoints
from training.cluster import job
from training.cluster.lock import Lock
from training.cluster.stop import StopSignal
from training.cluster.watchdog import Watchdog
from training.log import Log
from training.parallel import Layout, shardings
from training.state import Scores, TrainState, all_finite, skip_non_finite
from training.task import Evaluation, Task, create

_AHEAD = 4  # batches prepared and sent to the devices in advance


def train(
    config: ConfigDict,
    workdir: Path,
    watchdog: float = 0.0,
    memory_check: bool = True,
) -> int:
    """Trains the task of a config; resumes from the last checkpoint if there is one.

    Args:
        config: a config, as in `configs/`.
        workdir: the run directory, new or of a run with the same config.
        watchdog: seconds without progress that end the process, see `Watchdog`; 0 for
            no limit.
        memory_check: whether a run that does not fit into memory is refused.

    Returns:
        0 if the last step is done, or 128 plus the number of the stop signal; the state
        is saved in both cases.

    Raises:
        UserError: for an invalid config, a config that differs from the one in
            `workdir`, a run directory that is damaged, in use or cannot be written, or
            a loss or parameter that is not finite.
    """
    configuration.check(config, Task)
    layout = Layout(config.mesh, config.parallel)
    with contextlib.ExitStack() as stack:
        stack.enter_context(storage.without_empty(workdir))
        configuration.prepare(config, workdir)
        stack.enter_context(_disk_errors(workdir))
        lock = stack.enter_context(Lock(workdir, enabled=jax.process_index() == 0))
        stop = stack.enter_context(StopSignal())
        if jax.process_count() > 1:
            # The others write nothing before process 0 has the lock.
            owner = job.of_first(lock.owner)
            if jax.process_index() > 0:
                lock.check_shared(owner)
            fields = encoding.leaves(encoding.encode(config), "config.")
            code = {"the commit": runtime.commit()}
            code["the hash of the changes"] = storage.sha256(runtime.changes())[:10]
            job.agree(dict(fields) | code)
        stop.leave = _leave(lock, "stopped before a step: the same command continues")
        with job.first_alone("the assets are written"):
            if jax.process_index() == 0:
                configuration.compare(config, workdir)  # again, with the lock
            task = create(config, workdir, training=True)
            if jax.process_index() == 0:  # after the data, which may be faulty
                configuration.record(config, workdir)
        for line in optimizers.warnings(config):
            print(f"warning: {line}", file=sys.stderr)
        checkpoints = stack.enter_context(Checkpoints(workdir, config.checkpoints.keep))
        start = max(checkpoints.steps(), default=0)
        job.agree({"the last checkpoint": start})
        log = Log(
            workdir,
            start,
            config.train_steps,
            every={"evaluating": config.eval_every, "saving": config.save_every},
            metric=config.task.metric,
            sums=checkpoints.sums(start) if start else {},
        )
        stack.enter_context(contextlib.closing(log))
        stack.enter_context(_divergence(workdir, checkpoints))
        dog = Watchdog(watchdog)
        run = _Run(config, workdir, task, layout, checkpoints, log, stop, lock, dog)
        if memory_check:
            checks.check_state(run.like)
        with dog:
            run.steps(start, memory_check)
            with dog.off():
                checkpoints.wait()
            if not stop.should_stop():
                run.figures()
                with dog.off():
                    job.wait("the figures are drawn")  # jax waits for 300 s
                return 0
        step = checkpoints.steps()[-1]
        log.say(f"stopped, saved at step {step}: the same command resumes")
        return 128 + (stop.received or 0)


@contextlib.contextmanager
def _disk_errors(workdir: Path) -> Iterator[None]:
    """Adds the way to resume to an error of the operating system."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(
            f"{error.filename or workdir}: {error.strerror or error}; training "
            "stopped, and the same command resumes from the last checkpoint"
        ) from error


@contextlib.contextmanager
def _divergence(workdir: Path, checkpoints: Checkpoints) -> Iterator[None]:
    """Adds the last good checkpoint to an error of a loss that is not finite."""
    try:
        yield
    except FloatingPointError as error:
        checkpoints.wait()
        steps = checkpoints.steps()
        raise UserError(
            f"{error}, training stopped; the last good checkpoint in {workdir} "
            f"is {f'step {steps[-1]}' if steps else 'none'}. A lower learning "
            "rate or clipping may help, in another --workdir; "
            "--config.non_finite=skip skips such updates"
        ) from error


def _leave(lock: Lock, line: str, log: Log | None = None) -> Callable[[int], None]:
    """Returns a function that ends the process, for `StopSignal.leave`."""

    def leave(number: int) -> None:
        if log:
            log.say(line)
            with contextlib.suppress(OSError):
                log.close()
        elif jax.process_index() == 0:
            print(line, file=sys.stderr)
        lock.release()
        job.leave(128 + number)

    return leave


@dataclasses.dataclass
class _Run:
    """A run: its steps, saves and figures."""

    config: ConfigDict
    workdir: Path
    task: Task
    layout: Layout
    checkpoints: Checkpoints
    log: Log
    stop: StopSignal
    lock: Lock
    watchdog: Watchdog

    def __post_init__(self):
        self.objective = self.task.objective
        self.init_rng, self.rng = jax.random.split(jax.random.key(self.config.seed))
        self.rules = sharding.rules_of(self.config)
        self.moments = moments.steps(self.config.train_steps, self.config.moments)
        self.init = self.objective.init  # jax traces the same object once
        with checks.model_errors(self.config):
            self.like = self.layout.abstract(self.init, self.init_rng, self.rules)

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Excludes the block, an activity, from step rates and watchdog."""
        with self.log.paused(name), self.watchdog.off():
            yield

    def steps(self, start: int, memory_check: bool) -> None:
        """Runs the steps after `start`, up to the last one or a stop signal."""
        config, log, total = self.config, self.log, self.config.train_steps
        # A signal ended the evaluation of the checkpoint.
        pending = self.evaluates(start) and start not in self.checkpoints.planned()
        if start >= total and not pending:
            log.say(f"nothing to train: step {start} of {total} is done")
            return
        runtime.report_memory()
        if start:
            log.say(f"resuming from step {start} of {total}")
        line = f"stopped at step {start}: the same command continues"
        self.stop.leave = _leave(self.lock, line, log)
        with self.paused("restoring" if start else "starting"):
            if jax.process_index() == 0:
                runtime.record_environment(self.workdir)
            if start:
                state = self.checkpoints.restore(start, self.like)
            else:
                state = self.layout.init(self.init, self.init_rng, self.like)
            jax.block_until_ready(state)
            source = self.task.train_data()
        update = self.objective.step
        if config.non_finite == "skip":
            update = skip_non_finite(update)
        if self.layout.mesh.size > 1:
            mesh = self.layout.mesh.shape
            for line in sharding_table.describe(self.like, self.rules, mesh):
                log.say(line)
        train_step = self.layout.jitted(update, self.like)
        programs: dict[Any, Any] = {}  # by the shapes of a batch
        if pending:
            self.stop.leave = None
            state = self.save(start, state)
            if self.stop.should_stop():
                return
        batches = prefetch(lambda i: self.layout.global_batch(source, i), start, total)
        with contextlib.closing(batches):
            for step, batch in enumerate(log.awaited(batches), start + 1):
                shapes = tuple(x.shape for x in jax.tree.leaves(batch))
                if shapes not in programs:
                    with self.paused("compiling"):
                        program = train_step.lower(state, batch, self.rng).compile()
                        if memory_check:
                            checks.check_step(program)
                        if self.layout.mesh.size > 1 and not programs:
                            log.say(sharding_table.communication(program.as_text()))
                        # On CPUs, a sum over processes fails if some arrive 30 seconds
                        # after the others.
                        job.wait("the step is compiled")
                    programs[shapes] = program
                    self.stop.leave = None
                state, metrics = programs[shapes](state, batch, self.rng)
                if self.layout.blocks:
                    jax.block_until_ready((state, metrics))
                log.add(step, metrics)
                self.watchdog.step()
                if step % config.log_every == 0 or step == total:
                    log.train_row(step)
                if step in self.moments:
                    self.keep_moment(step, state)
                saves = self.evaluates(step) or step % config.save_every == 0
                if self.stop.should_stop() or saves:
                    state = self.save(step, state)
                    if self.stop.should_stop():
                        return

    def keep_moment(self, step: int, state: TrainState) -> None:
        """Keeps what the model attends to after a step.

        All hosts gather the state and predict; the first one keeps the file.
        """
        with self.paused("storing attention"):
            predictions = moments.predictions(
                self.task, _evaluated(state), self.examples
            )
            attends = any(each.attention for each in predictions)
            if attends and jax.process_index() == 0:
                moments.write(self.workdir, step, predictions)
        if not attends:
            self.moments = set()

    @functools.cached_property
    def examples(self) -> list[Any]:
        """The examples of the moments."""
        return moments.examples_of(self.task)

    def evaluates(self, step: int) -> bool:
        """Returns whether the state after a step is evaluated."""
        every, total = self.config.eval_every, self.config.train_steps
        return step > 0 and (step % every == 0 or step == total)

    def save(self, step: int, state: TrainState) -> TrainState:
        """Saves the state after a step; evaluates it first if that is due.

        A signal ends the evaluation; the state is saved without it, and it is begun
        again when the run resumes.

        Returns:
            The saved state, to continue from.

        Raises:
            FloatingPointError: if a parameter is not finite.
        """
        self.log.wait()
        if not _all_finite(state.params):  # not implied by a finite loss
            raise FloatingPointError(
                f"parameters are not finite after step {step}, on batch {step - 1}"
            )
        score, evaluates = None, self.evaluates(step)
        scores = self.evaluate(state) if evaluates else None
        if scores is not None:
            self.log.evaluation(step, "validation", scores)
            name, direction = self.task.metric
            score = scores[name] if direction == "max" else -scores[name]
            # Not after an extra evaluation of the last step, so that a longer run
            # passes through the same states.
            if step % self.config.eval_every == 0:
                state = self.objective.after_evaluation(state, scores)
                state = jax.device_put(state, shardings(self.like))
        stopped = evaluates and scores is None
        if stopped and step in self.checkpoints.steps():  # of a run that resumed here
            return state
        planned = not stopped and (evaluates or step % self.config.save_every == 0)
        with self.paused("saving"):
            self.lock.check()
            self.checkpoints.save(
                step, state, score, planned=planned, sums=self.log.sums()
            )
        return state

    def evaluate(self, state: TrainState) -> Scores | None:
        """Returns the validation scores of a state; None after a stop signal."""

        def stops() -> bool:
            self.watchdog.progress()
            return self.stop.should_stop()

        with self.log.paused("evaluating"):
            evaluated = _evaluated(state)
            try:
                with spread.over_processes(stops):
                    return evaluate.evaluate(self.task, evaluated, "validation").scores
            except spread.Stopped:
                return None
            finally:
                self.watchdog.progress()

    def figures(self) -> None:
        """Draws missing figures of the last and the best checkpoint."""
        last, best = self.checkpoints.steps()[-1], self.checkpoints.best()
        line = "stopped: the same command draws the missing figures"
        if canvas.available():
            self.stop.leave = _leave(self.lock, line, self.log)
            steps = {last} if best is None else {last, best}
            missing = [s for s in sorted(steps) if not self._folder(s).exists()]
            job.wait("all processes know the missing figures")
            for step in missing:
                names = ["last"] * (step == last) + ["best"] * (step == best)
                self.draw(step, " and ".join(names))
        else:
            self.log.say("no figures: matplotlib is not installed")
        metric, _ = self.task.metric
        self.log.say(
            f"done: step {last}, best {metric} at step {best}, in {self.workdir}"
        )

    def _folder(self, step: int) -> Path:
        return self.workdir / "figures" / f"step_{step}"

    def draw(self, step: int, name: str) -> None:
        """Draws the figures of a checkpoint, such as the "best".

        All hosts gather the state and draw; the first one keeps the files.
        """
        folder = self._folder(step)
        host = jax.process_index()
        unfinished = folder.with_name(f".{folder.name}" + f".{host}" * bool(host))
        unfinished.mkdir(parents=True, exist_ok=True)
        with self.log.paused("drawing", f" figures of step {step} ({name})"):
            with self.watchdog.off():
                state = self.checkpoints.restore(step, self.like)
            evaluated, evaluation = _evaluated(state), Evaluation("validation")
            paths = evaluate.draw(self.task, evaluated, evaluation, unfinished)
        if host or not paths:
            shutil.rmtree(unfinished)
        if not paths:
            self.log.say(f"no figures: nothing to draw (step {step})")
        elif not host:
            unfinished.rename(folder)
            paths = [folder / path.relative_to(unfinished) for path in paths]
            self.log.images(step, paths)


def _evaluated(state: TrainState) -> TrainState:
    """Returns whole arrays of this process, without optimizer state."""
    return spread.local(dataclasses.replace(state, opt_state=None))


_all_finite = jax.jit(all_finite)


def prefetch(
    get: Callable[[int], Any], start: int, stop: int
) -> Generator[Future, None, None]:
    """Yields futures of get(start), ..., get(stop - 1), computed ahead in a thread."""
    with ThreadPoolExecutor(1) as pool:
        futures = deque(
            pool.submit(get, i) for i in range(start, min(start + _AHEAD, stop))
        )
        for following in range(start + _AHEAD, stop + _AHEAD):
            if following < stop:
                futures.append(pool.submit(get, following))
            yield futures.popleft()
