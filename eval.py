"""Scores a trained run on a whole split. It needs the run directory alone.

    python eval.py --workdir=runs/transformer_nmt --split=test
    python eval.py --workdir=runs/pointer_sorting --config.evaluation.sizes=5,10,20

Writes into the run directory: eval_SPLIT.json (the metrics, and how they came about),
what the task shows of the split (for a translator translations_SPLIT.tsv), and figures.
"""

import json
from pathlib import Path

from absl import flags

import storage
from errors import UserError
from training import runtime

_WORKDIR = flags.DEFINE_string("workdir", None, "The run directory.")
_CHECKPOINT = flags.DEFINE_string(
    "checkpoint",
    None,
    "last, best, average (of the last config.evaluation.average ones) or a step; by "
    "default what config.evaluation.checkpoint says.",
)
_SPLIT = flags.DEFINE_string("split", "test", "validation or test.")
_OPTIONS = {
    "beam": flags.DEFINE_integer("beam", None, "Width of the search; 1 is greedy."),
    "alpha": flags.DEFINE_float("alpha", None, "Exponent of the length penalty."),
}
_FIGURES = flags.DEFINE_bool("figures", True, "Draw the task's figures, too.")
_TUNE_MEMORY = flags.DEFINE_bool(
    "tune_memory",
    True,
    "On a CPU under Linux: start again with a malloc that keeps large buffers.",
)


def main(overrides: list[str]) -> None:
    """Evaluates."""
    if not _WORKDIR.value:
        raise UserError("--workdir is missing: name the folder of a run")
    runtime.tune_memory(_TUNE_MEMORY.value)
    from training import plots, trained  # slow to import: not for --help

    runtime.start()
    workdir, split = Path(_WORKDIR.value), _SPLIT.value
    task, state, which = trained.load(workdir, _CHECKPOINT.value, overrides)
    options = trained.options(task.evaluate, _OPTIONS)
    scores = task.evaluate(state, split, out_dir=workdir, **options)
    report = {"split": split, "checkpoint": which, "step": int(state.step), **scores}
    text = json.dumps(report, indent=2)
    storage.write(workdir / f"eval_{split}.json", text + "\n")
    if _FIGURES.value and plots.available():
        task.figures(state, workdir / "figures" / "eval")
    print(text)


if __name__ == "__main__":
    runtime.run(main, overrides=True)
