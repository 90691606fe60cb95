"""Figures of docs/ that show a trained run, drawn from the arrays kept beside them.

    python -m results.figures  # draws all again
    python -m results.figures --from runs/kernels  # keeps the arrays of a run's figures

docs/figures/NAME.npz has the arrays and labels of NAME.png, whose texts are in the PNG.
`SHOWN` lists the figures of each run, by the name of its directory. `results.tables`
draws all figures of docs/.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from base.errors import UserError
from figures import canvas, charts, drawings, heatmaps, strips
from results.arguments import Parser, run_main
from results.records import ROOT
from results.schema import rows
from tasks.algorithmic import figures as sequences
from tasks.pointing import figures as geometry
from tasks.speech import figures as spectrogram
from training import evaluate, trained
from training.task import Evaluation

# The functions of stored figures are in these modules.
_MODULES = charts, geometry, heatmaps, sequences, spectrogram, strips


class Shown(NamedTuple):
    """A figure docs/figures/<name>.png that shows a trained run."""

    name: str
    figure: str  # file that the run draws for a split, `line` or a comparison of runs
    runs: tuple[str, ...]  # names of the run directories
    training: str  # arguments of the training
    minutes: float  # of the training, on one core
    line: str  # input line of the prediction


# In order of the minutes of their training.
SHOWN = [
    Shown(name, figure, tuple(runs), training, float(minutes), line)
    for words, training, minutes, line in rows("""
kernels fit_test.png kernels | kernel_regression | 0.1
kernels_attention attention_test.png kernels | kernel_regression | 0.1
ff_attention attention_1_test.png ff_attention | ff_attention | 0.3
memory_network task_2_1_validation.png memory_network
    | memory_network_qa --config.data.tasks='(2,)' --config.train_steps=900 | 1
lstmn agreement_2_test.png lstmn_language | lstmn_language | 1
reversal alignment_0001.png reversal_bahdanau
    | bahdanau_nmt:reversal | 1.6 | i t b k k m h i n a m j s j j t
ntm_copy_120 copy_120_test.png ntm_copy | ntm_copy | 3.5
pointer_sorting pointing_0001.png pointer_sorting
    | pointer_sorting | 3.6 | 0.3 0.9 0.1 0.7 0.5 0.2 0.8 0.4 0.6 0.0
lstm_copy_30 copy_30_test.png lstm | ntm_copy:lstm | 4.2
ntm_repeat_copy repeat_copy_10x20_test.png ntm_repeat_copy | ntm_repeat_copy | 6.4
corners attention_16_test_1.png sagan_corners | sagan:corners | 7.2
corners_made images_0001.png sagan_corners | sagan:corners | 7.2 | corners
alignment alignment_0001.png transformer_nmt
    | transformer_nmt | 9.2 | The device is no longer available.
pointer_tour tsp_1_test.png pointer_tsp | pointer_tsp | 11.2
las alignment_1_test.png las_digits | las_digits | 20.6
sagan images_test.png sagan | sagan | 21.1
sagan_attention attention_16_test_1.png sagan | sagan | 21.1
bahdanau alignment_0001.png bahdanau_nmt
    | bahdanau_nmt | 23.4
    | Failed to connect to the server, please check the address and try again.
local_p alignment_0001.png luong_nmt_local_p
    | luong_nmt --config.model.alignment=local_p --config.optimizer.learning_rate=0.003
    | 29.4
    | Failed to connect to the server, please check the address and try again.
captions_1 captions_1.png captioning_soft captioning_hard
    | captioning:soft, captioning:hard | 40.6
""")
    for name, figure, *runs in [words.split()]
]


def keep(runs: Sequence[Path], root: Path = ROOT) -> list[Path]:
    """Keeps the arrays of the figures of a run, and draws them; returns the figures.

    Raises:
        UserError: if no figure shows the runs.
    """
    names, paths = tuple(Path(run).name for run in runs), []
    matching = [each for each in SHOWN if each.runs == names]
    if not matching:
        choices = ", ".join(dict.fromkeys(" ".join(each.runs) for each in SHOWN))
        raise UserError(f"--from is {' '.join(names)}: must be named {choices}")
    for each in matching:
        with tempfile.TemporaryDirectory() as folder, drawings.recorded() as calls:
            _draw(each, runs, Path(folder))
        drawn = {call.path.name: call for call in calls}
        if each.figure not in drawn:
            raise UserError(
                f"{names[0]} draws no {each.figure}, but {', '.join(sorted(drawn))}"
            )
        stored = root / f"docs/figures/{each.name}.npz"
        drawings.store(drawn[each.figure], stored)
        paths += _redraw([stored])
    return paths


def _draw(drawing: Shown, runs: Sequence[Path], folder: Path) -> None:
    """Draws the figures of a run into a folder."""
    if len(runs) > 1:
        _compare(runs, folder / drawing.figure)
        return
    run = trained.load(runs[0])
    if drawing.line:
        run.predict([drawing.line], figures=folder)
    else:
        split = "validation" if "validation" in drawing.figure else "test"
        evaluate.draw(run.task, run.state, Evaluation(split), folder)


def _compare(runs: Sequence[Path], path: Path) -> None:
    """Draws the captions of several runs for the first test image."""
    captions = []
    for workdir in runs:
        run = trained.load(workdir)
        first = run.task.examples("test", full=False)["test"][:1]
        (best,) = run.task.answers(run.state, first, run.task.EvaluationOptions())
        captions.append(best.details.strip._replace(label=workdir.name))
    image, references = best.details.example.image, best.details.references
    strips.caption_strips(image, captions, "Test image 1", path, references=references)


def redraw(root: Path = ROOT, to: Path | None = None) -> list[Path]:
    """Draws all figures from their arrays, to docs/figures or `to`; returns them."""
    return _redraw(sorted((root / "docs/figures").glob("*.npz")), to)


def _redraw(stored: Sequence[Path], to: Path | None = None) -> list[Path]:
    with drawings.recorded():
        return [
            drawings.redraw(path, (to or path.parent) / f"{path.stem}.png")
            for path in stored
        ]


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Keeps the arrays of a run, or draws all figures; returns the figures."""
    parser = Parser(__doc__)
    parser.add_argument("--from", nargs="+", type=Path, metavar="RUN", dest="runs")
    args = parser.parse_args(arguments)
    canvas.require()
    return keep(args.runs) if args.runs else redraw()


if __name__ == "__main__":
    run_main(main)
