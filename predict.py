"""Feeds lines to a trained run and prints what it makes of them, line by line.

    echo "The device is offline." | python predict.py --workdir=runs/transformer_nmt
    python predict.py --workdir=runs/transformer_nmt --input=in.txt --n_best=4 >out.tsv

It needs the run directory alone. An empty line gives an empty line. With --n_best above
1 a line is printed for each prediction: number of the input line, score, prediction,
with tabs between them.
"""

import sys
from pathlib import Path

from absl import flags

from errors import UserError
from training import runtime

_WORKDIR = flags.DEFINE_string("workdir", None, "The run directory.")
_CHECKPOINT = flags.DEFINE_string(
    "checkpoint",
    None,
    "last, best, average (of the last config.evaluation.average ones) or a step; by "
    "default what config.evaluation.checkpoint says.",
)
_INPUT = flags.DEFINE_string("input", None, "A UTF-8 file; default: standard input.")
_OPTIONS = {
    "n_best": flags.DEFINE_integer(
        "n_best",
        None,
        "Predictions of each line, as number, score and text; the score is what they "
        "are ranked by: log-probability, over the length penalty where one searches.",
    ),
    "beam": flags.DEFINE_integer("beam", None, "Width of the search; 1 is greedy."),
    "alpha": flags.DEFINE_float("alpha", None, "Exponent of the length penalty."),
    "temperature": flags.DEFINE_float(
        "temperature",
        None,
        "Draw at random instead of searching; 1 is the model's own.",
    ),
    "top_k": flags.DEFINE_integer("top_k", None, "Draw from the k most probable only."),
    "top_p": flags.DEFINE_float("top_p", None, "Draw from the nucleus of this size."),
    "seed": flags.DEFINE_integer("seed", None, "Seed of the drawing."),
    "figures": flags.DEFINE_string(
        "figures", None, "Folder for a picture of each line's best prediction."
    ),
}


def main(_: list[str]) -> None:
    """Predicts."""
    if not _WORKDIR.value:
        raise UserError("--workdir is missing: name the folder of a run")
    folder = _OPTIONS["figures"].value
    if folder:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UserError(f"--figures={folder} is a file: name a folder") from None
        except OSError as error:
            raise UserError(f"--figures={folder}: {error.strerror}") from error
    from training import trained  # slow to import: not for --help

    runtime.start()
    task, state, _ = trained.load(Path(_WORKDIR.value), _CHECKPOINT.value)
    options = trained.options(task.predict, _OPTIONS)
    lines = trained.read_lines(_INPUT.value)
    sys.stdout.reconfigure(encoding="utf-8")
    for number, found in enumerate(task.predict(state, lines, **options), 1):
        if options.get("n_best", 1) == 1:
            print(found[0].text)
        else:
            for text, score in found:
                print(number, f"{score:.4f}", text, sep="\t")


if __name__ == "__main__":
    runtime.run(main)
