"""Examples of trained runs, answered with their attention, for the page.

Axes: R runs; M moments of the training, as checkpoints.
"""

import itertools
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from base.errors import UserError
from base.records import ScoreDetails
from training import checkpoints, moments, run_directory, trained
from training.task import Prediction

PYTHON = ".venv/bin/python"  # of a clone, in the commands of examples


class Example(NamedTuple):
    """An example and the answers to it.

    Attributes:
        title: the input line, or the split, the number and the input's text.
        command: command that answers it.
        answers: predictions by run and moment, [R][M].
    """

    title: str
    command: str
    answers: list[list[Prediction]]


class Examples(NamedTuple):
    """Examples, the names of the runs [R] and the steps of the moments [M]."""

    examples: list[Example]
    runs: list[str]
    steps: list[str]


def of_lines(
    workdirs: Sequence[Path],
    which: str | None,
    lines: Sequence[str],
    *,
    scores: bool = False,
) -> Examples:
    """Answers input lines, the same for each run.

    Args:
        workdirs: run directories.
        which: checkpoints, see `checkpoints_of`.
        lines: inputs in the format of the tasks.
        scores: whether to keep the terms that scores are the sums of.

    Raises:
        UserError: for a run, checkpoint or line that cannot be read, or no lines.
    """
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise UserError("the input is empty: must have at least one line")

    answers, steps = _answers(
        workdirs, which, lambda run: run.predict(lines), scores, {}
    )
    predict = f"{PYTHON} predict.py --workdir={shlex.quote(str(workdirs[0]))}"
    examples = [
        Example(line, f"printf '%s\\n' {shlex.quote(line)} | {predict}", each)
        for line, each in zip(lines, answers, strict=True)
    ]
    return Examples(examples, [path.name for path in workdirs], steps)


def of_split(
    workdirs: Sequence[Path],
    which: str | None,
    split: str,
    count: int,
    *,
    scores: bool = False,
) -> Examples:
    """Answers the first examples of a split; see `of_lines`.

    All checkpoints of a run that has kept moments of its training are shown with those,
    on their examples.

    Raises:
        UserError: for a run or a checkpoint that cannot be read, or runs whose examples
            are not the same.
    """
    by_workdir = {}
    if which == "all" and (first := moments.read(workdirs[0])):
        others = {path: moments.read(path) for path in workdirs[1:]}
        by_workdir = others | {workdirs[0]: first}
        split, count = moments.SPLIT, min(count, *map(len, first.values()))

    def predict(run: trained.Run) -> list[Prediction]:
        examples = moments.examples_of(run.task, split, count)
        return moments.predictions(run.task, run.state, examples)

    answers, steps = _answers(workdirs, which, predict, scores, by_workdir)
    if by_workdir:
        line = f"{len(answers)} examples of the {split} split, as stored in training"
        print(f"{workdirs[0]}: {line}", file=sys.stderr)
    runs = zip(("--workdir", "--compare"), workdirs, strict=False)
    flags = [f"{flag}={path}" for flag, path in runs]
    flags += [f"--checkpoints={which}"] * bool(which) + ["--scores"] * scores
    examples = []
    for number, each in enumerate(answers, 1):
        source = each[0][-1].source
        title = f"{split} {number}: {source}" if source else f"{split} {number}"
        example = [f"--split={split}", f"--examples={number}", "--out=example.html"]
        command = shlex.join([PYTHON, "explore.py", *flags, *example])
        examples.append(Example(title, command, each))
    return Examples(examples, [path.name for path in workdirs], steps)


def checkpoints_of(workdir: Path, which: str | None) -> list[str | None]:
    """Returns the checkpoints to load: those named, or None for the default.

    `which` is None, "all" or names of checkpoints with commas between them.
    """
    if which == "all":
        checkpoints.require(workdir)
        return [str(step) for step in run_directory.steps(workdir)]
    return which.split(",") if which else [None]


def _answers(
    workdirs: Sequence[Path],
    which: str | None,
    predict: Callable[[trained.Run], list[Prediction]],
    scores: bool,
    by_workdir: Mapping[Path, Mapping[int, list[Prediction]]],
) -> tuple[list[list[list[Prediction]]], list[str]]:
    """Returns the answers by example, run and moment, and the steps of the moments.

    `by_workdir` has the answers by step that a run has kept; for the rest see
    `of_lines`.
    """
    by_run, tasks = [], {}
    for workdir in workdirs:
        by_step = dict(by_workdir.get(workdir, {}))
        for checkpoint in checkpoints_of(workdir, which):
            run = trained.load(workdir, checkpoint)
            tasks[workdir] = type(run.task).__name__
            predicted = predict(run)
            if not scores:
                predicted = [without_scores(each) for each in predicted]
            by_step[int(run.state.step)] = predicted
        by_run.append(by_step)
    if len(set(tasks.values())) > 1:
        names = ", ".join(f"{path}: {name}" for path, name in tasks.items())
        raise UserError(f"the runs have different tasks ({names})")
    steps = sorted(by_run[0])
    by_run = [[_nearest(each, step) for step in steps] for each in by_run]
    count = min(len(each) for each in itertools.chain(*by_run))
    answers = [
        [[each[i] for each in by_step] for by_step in by_run] for i in range(count)
    ]
    return answers, [f"{step:,}" for step in steps]


def without_scores(prediction: Prediction) -> Prediction:
    """Returns a prediction without the terms that scores are the sums of."""
    maps = (
        each._replace(details=None) if isinstance(each.details, ScoreDetails) else each
        for each in prediction.attention
    )
    return prediction._replace(attention=tuple(maps))


def _nearest(by_step: Mapping[int, list[Prediction]], step: int) -> list[Prediction]:
    """The predictions at the step that is nearest, of a run with other steps."""
    return by_step[min(by_step, key=lambda each: abs(each - step))]
