"""Sorting by priority with a Neural Turing Machine (Graves et al. 2014, section 4.5).

    python train.py --config=configs/ntm_sort.py --workdir=runs/ntm_sort

The 16 of 20 vectors of highest priority, in order. On one core this takes 13.2 minutes,
after which it pays 77.72 bits at 20 vectors, of 128, and still learns: each vector is
written to a place that its priority says, which is the paper's way, but not exactly.

Differs from the paper: its controller has two layers of LSTM (table 2), this one one.

Variants: `feedforward` is the machine without a recurrent controller, `lstm` the
paper's baseline, three layers of LSTM; `paper` has the default's machine with the
paper's optimizer, on a million sequences (its batch size is not stated, and the sum of
the loss over a sequence is taken as its mean times 128 bits); `smoke` trains for a
moment.
"""

from ml_collections import ConfigDict

from configs._ntm import FEEDFORWARD, LSTM_ALONE, SMOKE, ntm_config, paper
from configs._variants import steps

_FIELDS = steps(8000) | {
    "data.kind": "sort",
    "data.min_size": 20,  # vectors
    "data.max_size": 20,
    "data.buckets": 1,
    "evaluation.sizes": (10, 15),
    "model.read_heads": 5,
    "model.write_heads": 5,
    # After 4000 steps a rate of 0.001 pays 117 bits, this one 89, and with 8 rows 117
    # again; after 8000 a cosine pays 83.
    "optimizer.learning_rate": 0.003,
    "optimizer.clip": 0.2,
}
# What each variant changes.
VARIANTS = {
    "": {},
    "feedforward": FEEDFORWARD
    | {"model.hidden": 512, "model.read_heads": 8, "model.write_heads": 8},
    "lstm": LSTM_ALONE,
    "paper": paper(3e-5, bits=128.0),  # 16 vectors of 8 bits
    "smoke": SMOKE | {"data.min_size": 3, "data.max_size": 3, "evaluation.sizes": (2,)},
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return ntm_config(_FIELDS, VARIANTS, variant)
