"""Draws where captioners look at the same pictures, one below the other.

    python -m results.beside runs/captioning_soft runs/captioning_hard

Writes docs/captions_N.png for pictures N of the test split.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from errors import UserError
from training import plots, trained


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Draws the figures, and returns where they are.

    Raises:
        UserError: if a folder is no run of a captioner whose model attends, or the runs
            do not see the same pictures.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--pictures", nargs="+", type=int, default=[1, 2], metavar="N")
    parser.add_argument("--to", type=Path, default=Path("docs"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    plots.require()
    every = []
    for run in args.runs:
        task, state, _ = trained.load(run)
        if not hasattr(task, "strips"):
            raise UserError(f"{run} is no run of a captioner")
        every.append(task.strips(state, "test", args.pictures, run.name))
    drawn = []
    for number, *row in zip(args.pictures, *every, strict=True):
        pictures, strips = zip(*row, strict=True)
        for run, picture, strip in zip(args.runs, pictures, strips, strict=True):
            if strip.maps is None:
                raise UserError(f"the captioner of {run} does not attend")
            other = pictures[0]
            if picture.shape != other.shape or (picture != other).any():
                raise UserError(f"{run} sees other pictures than {args.runs[0]}")
        path = args.to / f"captions_{number}.png"
        title = f"Test picture {number}"
        drawn.append(plots.caption_strips(pictures[0], strips, title, path))
    return drawn


if __name__ == "__main__":
    try:
        print(*main(), sep="\n")
    except UserError as error:
        sys.exit(f"error: {error}")
