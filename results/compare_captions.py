"""Compares the attention of several captioners on the same images.

    python -m results.compare_captions runs/captioning_soft runs/captioning_hard

Writes runs/captions/captions_N.png for image N of the test split.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from base import storage
from base.errors import UserError
from figures import canvas
from figures.strips import caption_strips
from results.arguments import Parser, run_main, whole
from tasks.captioning.task import Captioning
from training import trained


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Draws the figures; returns their paths.

    Raises:
        UserError: if a folder is not the run of a captioner with attention, or the
            runs have different test images.
    """
    parser = Parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--images", nargs="+", type=whole, default=[1, 2], metavar="N")
    folder = Path("runs/captions")
    parser.add_argument("--to", type=Path, default=folder, metavar="FOLDER")
    args = parser.parse_args(arguments)
    canvas.require()
    storage.make_folder(args.to, f"--to={args.to}")
    captions = [_captions(run, args.images) for run in args.runs]
    paths = []
    for number, *row in zip(args.images, *captions, strict=True):
        first, strips = row[0].example.image, []
        for run, details in zip(args.runs, row, strict=True):
            if details.strip.maps is None:
                raise UserError(f"{run}: must be a captioner with attention")
            if not np.array_equal(details.example.image, first):
                raise UserError(
                    f"{run}: must have the same test images as {args.runs[0]}"
                )
            strips.append(details.strip._replace(label=run.name))
        path, title = args.to / f"captions_{number}.png", f"Test image {number}"
        given = {"references": row[0].references}
        paths.append(caption_strips(first, strips, title, path, **given))
    return paths


def _captions(folder: Path, numbers: Sequence[int]) -> list[Any]:
    """Details of a run's captions of test images by number."""
    run = trained.load(folder)
    if not isinstance(run.task, Captioning):
        raise UserError(f"{folder}: must be the run of a captioner")
    examples = run.task.examples("test", full=False)["test"]
    for number in numbers:
        if not 1 <= number <= len(examples):
            raise UserError(f"image {number}: must be in 1..{len(examples)}")
    selected = [examples[number - 1] for number in numbers]
    predictions = run.task.answers(run.state, selected, run.task.EvaluationOptions())
    return [prediction.details for prediction in predictions]


if __name__ == "__main__":
    run_main(main)
