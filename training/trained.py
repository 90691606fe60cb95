"""Trained runs: load one from its directory to evaluate it or to predict with it.

Example:
    from training.trained import load

    run = load("runs/transformer_nmt")
    out = run.predict(["The device is no longer available."])
    out[0].text, out[0].attention
"""

import codecs
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from base import spread, storage
from base.errors import FieldError, UserError
from figures import canvas
from training import checkpoints, checks, configuration, evaluate, run_directory
from training.state import TrainState
from training.task import Evaluation, Prediction, Task, create


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained run.

    Attributes:
        config: the config of its training.
        task: the task of the config.
        state: the restored training state.
        checkpoint: the restored checkpoint: "last", "best", "average" or a step.
    """

    config: ConfigDict = dataclasses.field(repr=False)
    task: Task
    state: TrainState = dataclasses.field(repr=False)
    checkpoint: str

    def evaluate(
        self,
        split: str = "test",
        options: Any = None,
        progress: Callable[[], None] = lambda: None,
    ) -> Evaluation:
        """Evaluates a whole split, spread over the processes of the job.

        Args:
            split: "validation" or "test".
            options: an instance of the task's `EvaluationOptions`; None for the
                defaults.
            progress: called before each part of the evaluation.

        Raises:
            FieldError: if `split` is neither.
        """
        if split not in ("validation", "test"):
            raise FieldError("split", split, "validation or test")
        options = self.task.EvaluationOptions() if options is None else options
        with spread.over_processes(progress):
            return evaluate.evaluate(self.task, self.state, split, options)

    def predict(
        self,
        lines: Sequence[str],
        options: Any = None,
        *,
        figures: Path | str | None = None,
        attention: bool = True,
    ) -> list[Prediction]:
        """Predicts line by line.

        Args:
            lines: inputs in the format of the task; a blank line gets an empty
                prediction.
            options: an instance of the task's `Options`, such as
                `run.task.Options(beam=1)`; None for the defaults.
            figures: folder for a figure of each line; None for no figures.
            attention: whether predictions include attention maps.

        Returns:
            The best prediction of each line, with the next best ones as its `others`.

        Raises:
            UserError: for a line that cannot be read, an option out of range, figures
                of a model without attention, or a single string instead of a list.
        """
        if isinstance(lines, str):
            raise UserError(f"lines is a single string: give a list, [{lines!r}]")
        if figures is not None:
            canvas.require()
        filled = {i: line for i, line in enumerate(lines, 1) if line.strip()}
        predictions = [Prediction("", 0.0) for _ in lines]
        answers = evaluate.predict(
            self.task,
            self.state,
            filled,
            self.task.Options() if options is None else options,
            attention or figures is not None,
        )
        for number, prediction in zip(filled, answers, strict=True):
            if figures is not None:
                path = Path(figures) / f"{self.task.figure_name}_{number:04d}.png"
                if self.task.draw(prediction, f"Line {number}", path) is None:
                    name = self.config.architecture.__name__
                    raise UserError(f"figures: {name} has no attention to draw")
                if self.task.needs_figures:
                    prediction = prediction._replace(text=str(path))
            predictions[number - 1] = prediction
        return predictions


def load(
    workdir: Path | str, checkpoint: str | None = None, overrides: Sequence[str] = ()
) -> Run:
    """Loads a trained run with one of its checkpoints.

    Args:
        workdir: the run directory.
        checkpoint: "last", "best", "average" (the last state with the mean parameters
            of the last `config.evaluation.average` checkpoints) or a step;
            `config.evaluation.checkpoint` by default.
        overrides: overrides of `config.evaluation`; see `configuration.load`.

    Raises:
        UserError: for a missing run or checkpoint, or an invalid override.
    """
    workdir = Path(workdir)
    config = configuration.load(workdir, overrides)
    run_directory.check(workdir)
    checkpoints.require(workdir)  # reports a missing checkpoint first
    configuration.check(config, Task)
    which = config.evaluation.checkpoint if checkpoint is None else checkpoint
    task = create(config, workdir, training=False)
    with checks.model_errors(config):
        like = jax.eval_shape(task.objective.init, jax.random.key(config.seed))
    if which == "average":
        state = checkpoints.average(workdir, config.evaluation.average, like)
    else:
        state = checkpoints.restore(workdir, which, like)
    return Run(config, task, state, which)


def read_lines(path: str | None) -> list[str]:
    """Returns the lines of a UTF-8 file, or of standard input if `path` is None.

    Raises:
        UserError: for a file that cannot be read, or a line that is not UTF-8.
    """
    try:
        content = Path(path).read_bytes() if path else sys.stdin.buffer.read()
    except OSError as error:
        raise UserError(f"--input={path}: {error.strerror}") from error
    name, content = path or "standard input", content.removeprefix(codecs.BOM_UTF8)
    try:
        return storage.lines(content.decode(), name)
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}:{number} is not UTF-8") from None
