"""Evaluates a trained run on a whole split; needs only its run directory.

    python eval.py --workdir=runs/transformer_nmt --split=test
    python eval.py --workdir=runs/pointer_sorting --config.evaluation.sizes=5,10,20

Writes to the run directory: eval_SPLIT.json, with the metrics and the settings they
were computed with; the tables of the task, such as translations_SPLIT.tsv; and its
figures, in figures/SPLIT.
"""

import json
import sys
from pathlib import Path
from typing import Any

from absl import flags

from base import storage
from base.errors import UserError
from training import command_line, run_directory, runtime
from training.cluster import hosts, job
from training.cluster.watchdog import Watchdog
from training.command_line import Arguments

_WORKDIR = flags.DEFINE_string("workdir", None, "Run directory.")
_CHECKPOINT = flags.DEFINE_string(
    "checkpoint",
    None,
    "last, best, average (of the last config.evaluation.average checkpoints) or a "
    "step; default: config.evaluation.checkpoint.",
)
_SPLIT = flags.DEFINE_enum(
    "split", "test", ["validation", "test"], "Split to evaluate."
)
_FIGURES = flags.DEFINE_bool("figures", True, "Draw the figures of the task.")
_TUNE_MEMORY = flags.DEFINE_bool(
    "tune_memory",
    True,
    "On a CPU under Linux: restart with a malloc that keeps large buffers.",
)
hosts.define_flags()


def main(arguments: Arguments) -> None:
    """Evaluates the run and writes its metrics, tables and figures."""
    workdir = command_line.require_workdir(_WORKDIR.value, arguments.options)
    runtime.tune_memory(_TUNE_MEMORY.value)
    import jax  # slow to import: not for --help

    from base import options
    from training import trained

    runtime.start()
    split = _SPLIT.value
    run = trained.load(workdir, _CHECKPOINT.value, arguments.overrides)
    settings = options.parse(
        run.task, "EvaluationOptions", arguments.options, command_line.flag_names()
    )
    run_directory.check_evaluation(workdir, split)
    runtime.report_memory()
    job.agree({"the checkpoint": int(run.state.step)})
    with Watchdog(flags.FLAGS.watchdog) as watchdog:
        with options.as_flags(settings):
            evaluation = run.evaluate(split, settings, watchdog.progress)
        if jax.process_index() == 0:  # of a job of several processes, one writes
            watchdog.progress()
            _write(run, evaluation, workdir)
    job.wait("the evaluation is written")


def _write(run: Any, evaluation: Any, workdir: Path) -> None:
    """Writes metrics, tables and figures of an evaluation, and prints the metrics."""
    from figures import canvas  # slow to import
    from training import evaluate

    split = evaluation.split
    report = {"split": split, "checkpoint": run.checkpoint}
    # 10 digits: 30.6, not 30.599999999999998.
    scores = {
        name: float(f"{x:.10g}") if isinstance(x, float) else x
        for name, x in evaluation.scores.items()
    }
    report |= {"step": int(run.state.step), **scores}
    text = json.dumps(report, indent=2)
    try:
        storage.write(workdir / f"eval_{split}.json", text + "\n")
        evaluate.write_table(run.task, evaluation, workdir)
        if _FIGURES.value and canvas.available():
            folder = workdir / "figures" / split
            print(f"drawing figures in {folder}", file=sys.stderr, flush=True)
            with storage.filling(folder, root=workdir) as unfinished:
                paths = evaluate.draw(run.task, run.state, evaluation, unfinished)
            if not paths:
                print("no figures: nothing to draw", file=sys.stderr)
    except OSError as error:
        reason = f"{error.filename or workdir}: {error.strerror}"
        raise UserError(f"the evaluation cannot be written: {reason}") from error
    runtime.write_line(text)


if __name__ == "__main__":
    runtime.run(main, overrides=True, options="EvaluationOptions")
