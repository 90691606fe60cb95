"""Associative recall with a Neural Turing Machine (Graves et al. 2014, section 4.3).

    python train.py --config=configs/ntm_recall.py --workdir=runs/ntm_recall

Two to six items, each three vectors of 6 bits. On one core this takes 3.0 minutes, and
what is recalled costs 0.00 bits at 6 items and 0.01 at 15, which is as good as nothing;
with the feed-forward controller, which has four heads for one, it is 0.001 and, the
mean of three runs, 2.3. The paper: near 0 for both.

Variants: `feedforward` is the machine without a recurrent controller, `lstm` the
paper's baseline, three layers of LSTM; `paper` has the default's machine with the
paper's optimizer, on a million sequences (its batch size is not stated, and the sum of
the loss over a sequence is taken as its mean times 18 bits); `smoke` trains for a
moment.
"""

from ml_collections import ConfigDict

from configs._ntm import FEEDFORWARD, LSTM_ALONE, SMOKE, ntm_config, paper
from configs._variants import steps

_FIELDS = steps(5000) | {
    "data.kind": "recall",
    "data.min_size": 2,
    "data.max_size": 6,  # items
    "data.buckets": 1,
    "evaluation.sizes": (6, 8, 10, 12, 15),  # the paper's figure 11
    "optimizer.learning_rate": 0.002,
}
# What each variant changes.
VARIANTS = {
    "": {},
    "feedforward": FEEDFORWARD
    | {"model.hidden": 256, "model.read_heads": 4, "model.write_heads": 4},
    "lstm": LSTM_ALONE,
    "paper": paper(1e-4, bits=18.0),  # an item
    "smoke": SMOKE | {"data.max_size": 3, "evaluation.sizes": (2, 4)},
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return ntm_config(_FIELDS, VARIANTS, variant)
