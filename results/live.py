"""Packed examples of short trainings: the live figures of docs/.

    python -m results.live               # those that are missing
    python -m results.live bahdanau_nmt  # the named ones, again

A run is trained in runs/live/NAME, in minutes on a CPU, unless it is there. Examples of
its validation split, as they are answered at moments of the training, are packed into
docs/live/NAME.zlib; `docs/conf.py` makes a page of each.
"""

import shlex
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from base import storage
from base.errors import UserError
from results.arguments import Parser
from results.records import ROOT
from results.schema import rows
from training import moments

FOLDER = ROOT / "docs/live"
LIMIT = 200_000  # bytes


class Live(NamedTuple):
    """A packed example docs/live/<name>.zlib."""

    name: str
    trainings: tuple[str, ...]  # arguments of each training, without "configs/"
    count: int  # of the examples
    title: str


LIVE = {
    name: Live(name, tuple(trainings.split(", ")), int(count), title)
    for name, trainings, count, title in rows("""
bahdanau_nmt | bahdanau_nmt:tiny | 3 | RNNsearch learns to reverse sixteen letters
""")
}


def commands(live: Live) -> list[str]:
    """Returns the commands that train the runs of a packed example."""
    lines = []
    for number, training in enumerate(live.trainings):
        config, *overrides = shlex.split(training)
        path, _, variant = config.partition(":")
        flag = f"--config=configs/{path}.py" + f":{variant}" * bool(variant)
        workdir = f"--workdir={_workdir(live, number).relative_to(ROOT)}"
        lines.append(shlex.join(["python", "train.py", flag, workdir, *overrides]))
    return lines


def make(live: Live) -> Path:
    """Trains the runs of an example unless they are there; packs and returns it.

    Raises:
        UserError: for a training that fails, or an example above `LIMIT`.
    """
    from explorer import examples, page  # slow to import: not for --help

    workdirs = [_workdir(live, i) for i in range(len(live.trainings))]
    lines = commands(live)
    for workdir, line in zip(workdirs, lines, strict=True):
        if (workdir / "checkpoints").exists():
            continue
        print(line, flush=True)
        done = subprocess.run([sys.executable, *shlex.split(line)[1:]], cwd=ROOT)
        if done.returncode:
            raise UserError(f"{line} exited with status {done.returncode}")
    content = examples.of_split(workdirs, "all", moments.SPLIT, live.count)
    content = content._replace(
        runs=[each.partition(" ")[0] for each in live.trainings],
        examples=[
            each._replace(command="\n".join([*lines, each.command]))
            for each in content.examples
        ],
    )
    data = zlib.compress(page.pack(content, live.title), 9)
    if len(data) > LIMIT:
        raise UserError(f"{live.name} has {len(data):,} bytes: at most {LIMIT:,}")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{live.name}.zlib"
    storage.write(path, data)
    return path


def _workdir(live: Live, number: int) -> Path:
    return ROOT / "runs/live" / (live.name + f"_{number + 1}" * bool(number))


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the packed examples that are named, or missing.

    Raises:
        UserError: for a name that is not in `LIVE`.
    """
    parser = Parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(LIVE))
    args = parser.parse_args(arguments)
    missing = [name for name in LIVE if not (FOLDER / f"{name}.zlib").exists()]
    for name in args.names or missing:
        if name not in LIVE:
            raise UserError(f"example {name}: must be one of {', '.join(LIVE)}")
        path = make(LIVE[name])
        print(f"{path.relative_to(ROOT)} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
