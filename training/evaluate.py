"""Evaluations, tables and figures of any task, from the methods of its contract."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from base import storage
from base.errors import UserError
from training.state import TrainState
from training.task import Evaluation, Lines, Prediction, Task


def evaluate(
    task: Task, state: TrainState, split: str, options: Any = None
) -> Evaluation:
    """Evaluates a state on a whole split; writes no files.

    Args:
        task: the task.
        state: a training state.
        split: "validation" or "test".
        options: an instance of `task.EvaluationOptions`; None during training, where an
            evaluation may be cheaper.
    """
    examples = task.examples(split, full=options is not None)
    answers = {
        group: task.answers(state, part, options) for group, part in examples.items()
    }
    evaluation = Evaluation(split, {}, examples, answers, options)
    return evaluation._replace(scores=task.score(state, evaluation))


def answer(
    task: Task,
    state: TrainState,
    examples: Sequence[Any],
    options: Any = None,
    *,
    attention: bool,
) -> Iterator[Any]:
    """Yields the answers to examples of different shapes; see `Task.answers`."""
    size = 1 if task.one_by_one else max(len(examples), 1)
    for start in range(0, len(examples), size):
        part = examples[start : start + size]
        yield from task.answers(state, part, options, attention=attention)


def predict(
    task: Task, state: TrainState, lines: Lines, options: Any, attention: bool
) -> Iterator[Prediction]:
    """Yields the prediction of each line, in order; warns of unusual lines.

    Args:
        task: the task.
        state: a training state.
        lines: input lines, without blank ones.
        options: an instance of `task.Options`.
        attention: whether predictions include attention maps.

    Raises:
        UserError: for a line that cannot be read, or an option out of range.
    """
    task.check_options(options)
    examples = {}
    for number, line in lines.items():
        try:
            examples[number] = task.parse(line, options)
        except UserError as error:
            raise UserError(f"line {number}: {error}") from error
    answers = answer(task, state, [*examples.values()], options, attention=attention)
    for (number, example), each in zip(examples.items(), answers, strict=True):
        for warning in task.unusual(example, each):
            print(f"warning: line {number} {warning}", file=sys.stderr)
        prediction = task.show(example, each)
        yield prediction if attention else prediction._replace(attention=())


def write_table(task: Task, evaluation: Evaluation, folder: Path) -> list[Path]:
    """Writes the answers to the examples of the split as TSV, if the task has a table.

    Returns:
        The path of the file, if any.
    """
    if task.table is None:
        return []
    name, columns = task.table
    path, rows = folder / f"{name}_{evaluation.split}.tsv", task.rows(evaluation)
    return [storage.write_tsv(path, columns[: len(rows[0])] if rows else columns, rows)]


def draw(
    task: Task, state: TrainState, evaluation: Evaluation, folder: Path
) -> list[Path]:
    """Draws the attention of a few examples, and the task's special figures.

    Args:
        task: the task.
        state: a training state.
        evaluation: an evaluation of the state; one without scores after training.
        folder: folder of the files.

    Returns:
        The paths of the files; empty if there is nothing to draw.
    """
    split, paths = evaluation.split, []
    examples = task.drawn(split)
    parts = [*examples.values()]
    options = evaluation.options or task.EvaluationOptions()
    answers = answer(task, state, parts, options, attention=True)
    for (name, example), each in zip(examples.items(), answers, strict=True):
        title = f"{name.replace('_', ' ').capitalize()} ({split} split)"
        path = folder / f"{name}_{split}.png"
        paths.append(task.draw(task.show(example, each), title, path))
    return [*filter(None, paths), *task.figures(state, evaluation, folder)]
