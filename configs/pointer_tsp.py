"""Tours with a pointer network (Vinyals, Fortunato and Jaitly, 2015).

    python train.py --config=configs/pointer_tsp.py --workdir=runs/pointer_tsp

Ten cities. On one core, shared with other work, this takes 11.2 minutes and finds tours
of 2.897 length, the shortest ones having 2.863 (the paper: 2.88, of 2.87). The search
is kept to tours, as there; the final evaluation also tells how many are tours without
that (`valid_free`).

Variants: `small` has 5 cities (the paper: 2.12, the optimum); `mixed` 5 to 20, and is
asked for 25, too; `seq2seq` and `attention` are baselines without a pointer; `paper` is
the paper's network and SGD, for an accelerator (the paper's network reads the
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

_FIELDS = lasting(12_000) | {
    "evaluation.sizes": (5, 10),
    "evaluation.constrain": True,
    "evaluation.beam": 4,  # in the final evaluation; greedy in training
}
# What each variant changes.
VARIANTS = {
    "": {},
    "small": sized(5, 5, 10) | lasting(3000),
    "mixed": sized(5, 20, 10, 25)
    | lasting(5000)
    | {"data.buckets": 4, "evaluation.instances": 100},  # exact tours of 20 take long
    "seq2seq": SEQ2SEQ,
    "attention": ATTENTION,
    "paper": paper(11.0),
    "smoke": SMOKE,
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return pointing_config("tsp", _FIELDS, VARIANTS, variant)
