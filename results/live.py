"""Packed examples of short trainings: the live figures of docs/.

    python -m results.live               # those that are missing
    python -m results.live bahdanau_nmt  # the named ones, again

A run is trained in runs/live/NAME, in minutes on a CPU, unless it is there. Examples of
its validation split, as they are answered at moments of the training, or at its end
with the terms of the scores, are packed into docs/live/NAME.zlib, of which
`docs/conf.py` makes a page.
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
from results.arguments import Parser, run_main
from results.records import ROOT
from results.schema import config_file, rows
from training import moments

FOLDER = ROOT / "docs/live"
LIMIT = 200_000  # bytes
_MOMENTS = 12  # of a training


class Live(NamedTuple):
    """A packed example docs/live/<name>.zlib."""

    name: str
    trainings: tuple[str, ...]  # arguments of each training, without "configs/"
    count: int  # of the examples
    title: str
    scores: bool = False  # the end of the training, with what scores are made of


LIVE = {
    name: Live(
        name,
        tuple(trainings.split(", ")),
        int(count.split()[0]),
        title,
        "scores" in count,
    )
    for name, trainings, count, title in rows("""
bahdanau_nmt | bahdanau_nmt:tiny | 3 | RNNsearch learns to reverse sixteen letters
luong_nmt | luong_nmt:tiny | 3
    | An LSTM with the general score learns to reverse letters
luong_local_p | luong_nmt:tiny --config.model.alignment=local_p | 3
    | Local-p alignment learns where to look in a text to be reversed
luong_gumbel | luong_nmt:tiny --config.model.alignment=gumbel | 3
    | Gumbel alignment picks a single letter at each step
two_scores | bahdanau_nmt:tiny, luong_nmt:tiny | 2
    | The additive score and the general score, side by side
additive_score | bahdanau_nmt:tiny | 1 with scores
    | An additive score, unit by unit
transformer_nmt | transformer_nmt:tiny | 1 | A Transformer learns to reverse letters
scaled_dot_score | transformer_nmt:tiny | 1 with scores
    | A scaled dot product, dimension by dimension
ntm_copy | ntm_copy:tiny | 3 | A Neural Turing Machine learns to copy vectors
memory_network_qa | memory_network_qa:tiny | 3
    | A memory network finds the fact that answers a question
lstmn_language | lstmn_language:tiny | 3 | LSTMN learns the agreement of verbs in number
lstmn_sentences | lstmn_sentences:entailment | 3 | Two texts: does one imply the other?
pointer_sorting | pointer_sorting:tiny | 3
    | A pointer network learns to sort five numbers
pointer_hull | pointer_hull:tiny | 3 | A pointer network learns convex hulls
pointer_tsp | pointer_tsp:tiny | 3 | A pointer network learns tours of five cities
captioning | captioning | 2
    | Show, Attend and Tell learns to describe scenes
las_digits | las_digits --config.train_steps=1500 | 1
    | Listen, Attend and Spell learns to spell spoken digits
sagan | sagan:corners --config.train_steps=1500 | 2
    | SAGAN learns to draw two corners that match
ntm_recall | ntm_recall | 2 | A Neural Turing Machine recalls the next item of a list
vqa_scenes | vqa_scenes | 3 | Two glimpses of an image answer a question
snail_bandits | snail_bandits --config.train_steps=400 | 2
    | SNAIL pulls the arms of a bandit
snail_mdp | snail_mdp:tiny | 2 | SNAIL acts in a Markov decision process of two states
snail_fewshot | snail_fewshot:tiny | 3
    | A matching network compares a letter with one example of each class
ram_digits | ram_digits:tiny | 3 | Glimpses of a digit, chosen by a learned policy
dram_digits | dram_digits | 2 | DRAM reads two digits from left to right
icm_rooms | icm_rooms:tiny | 2 | A curious agent explores four rooms
ff_attention | ff_attention:tiny | 3 | Attention without a query adds two marked numbers
kernel_regression | kernel_regression:tiny | 1
    | Kernel regression learns the width of its kernel
""")
}


def commands(live: Live) -> list[str]:
    """Returns the commands that train the runs of a packed example."""
    lines = []
    for number, training in enumerate(live.trainings):
        config, *overrides = shlex.split(training)
        flag = f"--config={config_file(config)}"
        workdir = f"--workdir={_workdir(live, number).relative_to(ROOT)}"
        lines.append(
            shlex.join([".venv/bin/python", "train.py", flag, workdir, *overrides])
        )
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
    which = None if live.scores else "all"
    content = examples.of_split(
        workdirs, which, moments.SPLIT, live.count, scores=live.scores
    )
    last = len(content.steps) - 1
    chosen = sorted({round(i * last / (_MOMENTS - 1)) for i in range(_MOMENTS)})
    content = content._replace(
        steps=[content.steps[i] for i in chosen],
        runs=[each.partition(" ")[0] for each in live.trainings],
        examples=[
            each._replace(
                command="\n".join([*lines, each.command.replace(f"{ROOT}/", "")]),
                answers=[[run[i] for i in chosen] for run in each.answers],
            )
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
    run_main(main)
