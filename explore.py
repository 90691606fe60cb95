"""Writes a page that shows the attention of a trained run.

    python explore.py --workdir=runs/transformer_nmt --split=test --examples=50
    python explore.py --workdir=runs/transformer_nmt --input=lines.txt --out=page.html
    python explore.py --workdir=runs/bahdanau_nmt --compare=runs/luong_nmt
    python explore.py --workdir=runs/ntm_copy --checkpoints=all
    python explore.py --workdir=runs/bahdanau_nmt --scores --examples=5

The page is one file, which opens from disk in any browser and needs no network. It has
heat maps, ribbons, all heads, images with what is attended to, a player of the steps,
the numbers as tables, two runs side by side, moments of the training, the memory of an
NTM, the tree of a beam search and, with --scores, the computation of each weight.
"""

from pathlib import Path

from absl import flags

from base.errors import counted
from training import command_line, runtime
from training.command_line import Arguments

_WORKDIR = flags.DEFINE_string("workdir", None, "Run directory.")
_COMPARE = flags.DEFINE_string(
    "compare", None, "Run directory of a second run, shown beside the first."
)
_INPUT = flags.DEFINE_string(
    "input", None, "UTF-8 file of inputs, a line each; default: examples of --split."
)
_SPLIT = flags.DEFINE_enum(
    "split", "test", ["validation", "test"], "Split of the examples."
)
_EXAMPLES = flags.DEFINE_integer(
    "examples", 20, "Number of examples of the split.", lower_bound=1
)
_CHECKPOINTS = flags.DEFINE_string(
    "checkpoints",
    None,
    "all, or names of checkpoints with commas between them, for a slider over the "
    "training; default: config.evaluation.checkpoint.",
)
_SCORES = flags.DEFINE_bool(
    "scores",
    False,
    "Adds queries, keys and the terms of the scores; the page becomes larger.",
)
_OUT = flags.DEFINE_string("out", "explorer.html", "The page to write.")


def main(arguments: Arguments) -> None:
    """Answers the examples and writes the page."""
    workdirs = [command_line.require_workdir(_WORKDIR.value, arguments.options)]
    workdirs += [Path(_COMPARE.value)] if _COMPARE.value else []
    from explorer import examples, page  # slow to import: not for --help
    from training import trained

    runtime.start()
    runs, scores = (workdirs, _CHECKPOINTS.value), _SCORES.value
    if _INPUT.value:
        lines = trained.read_lines(_INPUT.value)
        content = examples.of_lines(*runs, lines, scores=scores)
    else:
        split, count = _SPLIT.value, _EXAMPLES.value
        content = examples.of_split(*runs, split, count, scores=scores)
    out = Path(_OUT.value)
    size = page.write(out, content, f"Attention of {' and '.join(content.runs)}")
    note = ", large for a browser" if size > page.WARNING else ""
    count = counted(len(content.examples), "example")
    runtime.write_line(f"{out} ({count}, {size:.1f} MB{note})")


if __name__ == "__main__":
    runtime.run(main)
