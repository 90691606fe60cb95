"""Copying several times with a Neural Turing Machine (Graves et al. 2014, section 4.2).

    python train.py --config=configs/ntm_repeat_copy.py --workdir=runs/ntm_repeat_copy

Up to 10 vectors, up to 10 times. On one core this takes 6.4 minutes, after which it
pays 0.49 bits at 10 vectors, of 484. As in the paper, longer sequences are copied
nearly as well (20 vectors: 76 bits, 1 % of the bits are wrong), but it cannot count any
further: of 20 repeats it ends after 13.

Variants: `feedforward` is the machine without a recurrent controller, `lstm` the
paper's baseline, three layers of LSTM; `paper` has the default's machine with the
paper's optimizer, on a million sequences (its batch size is not stated, and the sum of
the loss over a sequence is taken as its mean times 280 bits); `smoke` trains for a
moment.
"""

from ml_collections import ConfigDict

from configs._ntm import FEEDFORWARD, LSTM_ALONE, SMOKE, ntm_config, paper
from configs._variants import steps

_FIELDS = steps(16_000) | {
    "data.kind": "repeat_copy",
    "data.max_size": 10,  # vectors; repeats are always 1 to 10
    "data.buckets": 2,
    # With 32 rows and a rate of 0.001 next to nothing is learned in 4000 steps. Without
    # a cosine it is learned as fast, but a rate so high goes on to unlearn it.
    "data.batch_size": 8,
    "optimizer.learning_rate": 0.003,
    "optimizer.schedule": "warmup_cosine",
    "optimizer.decay_steps": 16_000,
    "optimizer.clip": 0.2,
    "evaluation.sizes": ((10, 10), (20, 10), (10, 20)),  # the paper's figure 8
}
# What each variant changes.
VARIANTS = {
    "": {},
    "feedforward": FEEDFORWARD,
    "lstm": LSTM_ALONE,
    "paper": paper(1e-4, bits=280.0),  # 31 vectors of 9 bits
    "smoke": SMOKE | {"data.max_size": 2, "evaluation.sizes": (2, (2, 3))},
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return ntm_config(_FIELDS, VARIANTS, variant)
