"""Sorting numbers with a pointer network and a glimpse (Order Matters, 2016).

    python train.py --config=configs/pointer_sorting.py --workdir=runs/pointer_sorting

Ten numbers of [0, 1). On one core, shared with other work, this takes 5.8 minutes and
has 81.2 % exact; Order Matters (Vinyals, Bengio and Kudlur, table 1) has 28 % after
10,000 iterations, and 8 % without the glimpse (`--config.model.glimpses=0`).

Variants: `small` sorts five, `mixed` five to fifteen numbers; `process` has the encoder
that does not see the order of its inputs, with five steps
(`--config.model.process_steps=1` for one); `seq2seq` and `attention` are the baselines
without a pointer; `smoke` trains for a moment.
"""

from ml_collections import ConfigDict

from configs._pointing import (
    ATTENTION,
    PROCESS,
    SEQ2SEQ,
    SMOKE,
    lasting,
    pointing_config,
    sized,
)

_FIELDS = {"model.glimpses": 1, "evaluation.sizes": (5, 10, 15)}
# What each variant changes.
VARIANTS = {
    "": {},
    "small": sized(5, 5, 10),
    "mixed": sized(5, 15, 10, 20) | lasting(6000) | {"data.buckets": 4},
    "process": PROCESS,
    "seq2seq": SEQ2SEQ | {"model.glimpses": 0},
    "attention": ATTENTION | {"model.glimpses": 0},
    "smoke": SMOKE,
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return pointing_config("sorting", _FIELDS, VARIANTS, variant)
