"""Scores and alignments of Luong et al. (2015), with three seeds each.

    python sweep.py --config=configs/luong_nmt.py:short --workdir=sweeps/alignments \
        --sweep=configs/sweeps/alignments.py --workers=2

The 36 runs take about five minutes each on one CPU core, and an hour and a half in all
on two cores.
"""

from sweeps.space import Sweep, choice


def get_sweep() -> Sweep:
    """Returns the sweep."""
    return Sweep(
        space={
            "model.score": choice("dot", "general", "concat", "location"),
            "model.alignment": choice("global", "local_m", "local_p"),
        },
        seeds=(0, 1, 2),
        split="test",
    )
