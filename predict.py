"""Predicts with a trained run: one line of output per line of input.

    echo "The battery level is low." | python predict.py --workdir=runs/transformer_nmt
    python predict.py --workdir=runs/transformer_nmt --input=in.txt --n_best=4 >out.tsv
    python predict.py --workdir=runs/transformer_nmt --help

Needs only the run directory; the last command lists the options of its task. A blank
input line gives an empty output line. With --n_best above 1, each prediction is a line
with the number of its input line, its score and its text, separated by tabs; a text
with a quote is quoted as in CSV files.
"""

import contextlib
import sys
from pathlib import Path

from absl import flags

from base import storage
from base.errors import UserError
from training import command_line, runtime
from training.command_line import Arguments

_WORKDIR = flags.DEFINE_string("workdir", None, "Run directory.")
_CHECKPOINT = flags.DEFINE_string(
    "checkpoint",
    None,
    "last, best, average (of the last config.evaluation.average checkpoints) or a "
    "step; default: config.evaluation.checkpoint.",
)
_INPUT = flags.DEFINE_string(
    "input", None, "UTF-8 file of inputs; default: standard input."
)
_FIGURES = flags.DEFINE_string(
    "figures", None, "Folder for a figure of the best prediction of each line."
)


def main(arguments: Arguments) -> None:
    """Predicts the input lines and prints the predictions."""
    workdir = command_line.require_workdir(_WORKDIR.value, arguments.options)
    with contextlib.ExitStack() as stack:
        if folder := _FIGURES.value:
            if folder in ("true", "false"):
                raise UserError(f"--figures={folder}: name a folder")
            stack.enter_context(storage.without_empty(Path(folder)))
            storage.make_folder(Path(folder), f"--figures={folder}")
        _predict(arguments, workdir, folder)


def _predict(arguments: Arguments, workdir: Path, folder: str | None) -> None:
    from base import options
    from training import trained  # slow to import: not for --help

    runtime.start()
    run = trained.load(workdir, _CHECKPOINT.value)
    settings = options.parse(
        run.task, "Options", arguments.options, command_line.flag_names()
    )
    if run.task.needs_figures and not folder:
        raise UserError("--figures=FOLDER is missing: the predictions are images")
    lines = trained.read_lines(_INPUT.value)
    sys.stdout.reconfigure(encoding="utf-8")
    with options.as_flags(settings):
        predictions = run.predict(lines, settings, figures=folder, attention=False)
    if not lines:
        raise UserError("the input is empty: must have at least one line")
    for number, best in enumerate(predictions, 1):
        if not settings.ranked:
            runtime.write_line(best.text)
            continue
        for prediction in (best, *best.others):
            cells = number, f"{prediction.score:.4f}", prediction.text
            runtime.write_line(storage.tsv_row(cells))


if __name__ == "__main__":
    runtime.run(main, options="Options")
