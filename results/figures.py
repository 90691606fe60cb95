"""Figures of docs/ that show a trained run, drawn from the arrays kept beside them.

    python -m results.figures  # draws all again
    python -m results.figures --from runs/kernels  # keeps the arrays of a run's figures

docs/figures/NAME.npz has the arrays and labels of NAME.png, whose texts are in the PNG.
`SHOWN` lists the figures of each run, by the name of its directory. `results.tables`
draws all figures of docs/.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from base.errors import UserError
from figures import canvas, charts, drawings, heatmaps, strips
from results import compare_captions
from results.arguments import Parser
from results.records import ROOT
from tasks.algorithmic import figures as sequences
from tasks.pointing import figures as geometry
from tasks.speech import figures as spectrogram
from training import evaluate, trained
from training.task import Evaluation

# The functions of stored figures are in these modules.
_MODULES = charts, geometry, heatmaps, sequences, spectrogram, strips


class Shown(NamedTuple):
    """A figure of docs/ that shows a trained run.

    Attributes:
        name: the figure is docs/figures/<name>.png.
        training: arguments of the training, which takes `minutes` on one core.
        minutes: minutes of the training.
        runs: names of the run directories.
        figure: the file that the run draws: a figure of `split`, of the prediction of
            `line`, or of a comparison of several runs.
        split: split of the figure.
        line: input line of the prediction.
    """

    name: str
    training: str
    minutes: float
    runs: tuple[str, ...]
    figure: str = "alignment_0001.png"
    split: str = "test"
    line: str = ""


_SERVER = "Failed to connect to the server, please check the address and try again."
_LOCAL_P = "--config.model.alignment=local_p --config.optimizer.learning_rate=0.003"
_TASK_2 = "--config.data.tasks='(2,)' --config.train_steps=900"
SHOWN = (
    Shown("kernels", "kernel_regression", 0.1, ("kernels",), "fit_test.png"),
    Shown(
        "kernels_attention",
        "kernel_regression",
        0.1,
        ("kernels",),
        "attention_test.png",
    ),
    Shown(
        "ff_attention", "ff_attention", 0.3, ("ff_attention",), "attention_1_test.png"
    ),
    Shown(
        "memory_network",
        f"memory_network_qa {_TASK_2}",
        1,
        ("memory_network",),
        "task_2_1_validation.png",
        split="validation",
    ),
    Shown("lstmn", "lstmn_language", 1, ("lstmn_language",), "agreement_2_test.png"),
    Shown(
        "reversal",
        "bahdanau_nmt:reversal",
        1.6,
        ("reversal_bahdanau",),
        line="i t b k k m h i n a m j s j j t",
    ),
    Shown("ntm_copy_120", "ntm_copy", 3.5, ("ntm_copy",), "copy_120_test.png"),
    Shown(
        "pointer_sorting",
        "pointer_sorting",
        3.6,
        ("pointer_sorting",),
        "pointing_0001.png",
        line="0.3 0.9 0.1 0.7 0.5 0.2 0.8 0.4 0.6 0.0",
    ),
    Shown("lstm_copy_30", "ntm_copy:lstm", 4.2, ("lstm",), "copy_30_test.png"),
    Shown(
        "ntm_repeat_copy",
        "ntm_repeat_copy",
        6.4,
        ("ntm_repeat_copy",),
        "repeat_copy_10x20_test.png",
    ),
    Shown(
        "corners",
        "sagan:corners",
        7.2,
        ("sagan_corners",),
        "attention_16_test_1.png",
    ),
    Shown(
        "corners_made",
        "sagan:corners",
        7.2,
        ("sagan_corners",),
        "images_0001.png",
        line="corners",
    ),
    Shown(
        "alignment",
        "transformer_nmt",
        9.2,
        ("transformer_nmt",),
        line="The device is no longer available.",
    ),
    Shown("pointer_tour", "pointer_tsp", 11.2, ("pointer_tsp",), "tsp_test_1.png"),
    Shown("las", "las_digits", 20.6, ("las_digits",), "alignment_1_test.png"),
    Shown("sagan", "sagan", 21.1, ("sagan",), "images_test.png"),
    Shown("sagan_attention", "sagan", 21.1, ("sagan",), "attention_16_test_1.png"),
    Shown("bahdanau", "bahdanau_nmt", 23.4, ("bahdanau_nmt",), line=_SERVER),
    Shown(
        "local_p", f"luong_nmt {_LOCAL_P}", 29.4, ("luong_nmt_local_p",), line=_SERVER
    ),
    Shown(
        "captions_1",
        "captioning:soft, captioning:hard",
        40.6,
        ("captioning_soft", "captioning_hard"),
        "captions_1.png",
    ),
)
"""The figures, in order of the minutes of their training."""


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
        compare_captions.main([*map(str, runs), "--images", "1", "--to", str(folder)])
        return
    run = trained.load(runs[0])
    if drawing.line:
        run.predict([drawing.line], figures=folder)
    else:
        evaluate.draw(run.task, run.state, Evaluation(drawing.split), folder)


def redraw(root: Path = ROOT, to: Path | None = None) -> list[Path]:
    """Draws all figures from their arrays; returns their paths.

    Args:
        root: folder with docs/figures.
        to: folder of the figures; by default docs/figures.
    """
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
    try:
        print(*main(), sep="\n")
    except UserError as error:
        sys.exit(f"error: {error}")
