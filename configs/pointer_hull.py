"""Convex hulls with a pointer network (Vinyals, Fortunato and Jaitly, 2015).

    python train.py --config=configs/pointer_hull.py --workdir=runs/pointer_hull

Ten points. On one core this takes 3.2 minutes and has 72.0 % exact, with 99.6 % of the
area covered; the paper's network, trained on 5 to 50 points, has 87.0 % and 99.8 %
(table 1).

Variants: `small` has 5 points, `large` 50 (37 %, in 16 to 19 minutes; the paper:
72.6 %), `mixed` 5 to 50 (33 % of fifty in 8.5 minutes), and is asked for 100, too;
`seq2seq` and `attention` are the paper's baselines without a pointer; `paper` is the
paper's network and SGD at 50 points, for an accelerator (the paper's network reads the
coordinates, this one a linear map of them); `smoke` trains for a moment.
"""

from ml_collections import ConfigDict

from configs._pointing import (
    ATTENTION,
    SEQ2SEQ,
    SMOKE,
    lasting,
    paper,
    pointing_config,
    sized,
)

_FIELDS = lasting(4000) | {"evaluation.sizes": (5, 10, 20)}
# What each variant changes.
VARIANTS = {
    "": {},
    "small": sized(5, 5, 10),
    "large": sized(50, 50) | {"data.batch_size": 64, "evaluation.instances": 500},
    "mixed": sized(5, 50, 10, 100)
    | {"data.batch_size": 64, "data.buckets": 5, "evaluation.instances": 500},
    "seq2seq": SEQ2SEQ,
    "attention": ATTENTION,
    "paper": sized(50, 50) | paper(11.0) | {"evaluation.instances": 500},
    "smoke": SMOKE,
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return pointing_config("hull", _FIELDS, VARIANTS, variant)
