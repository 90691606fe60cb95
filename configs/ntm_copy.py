"""Copying with a Neural Turing Machine (Graves et al. 2014, section 4.1).

    python train.py --config=configs/ntm_copy.py --workdir=runs/ntm_copy

On one core this takes 3.5 minutes, after which a copy costs 0.17 bits at 20 vectors and
1.0 at 120 (the paper: near 0, with a mistake at 120). With the feed-forward controller
it is less at 20, but hundreds at 120. The LSTM pays 75 at 20 and is lost beyond.

Variants: `feedforward` is the machine without a recurrent controller, `lstm` the
paper's baseline, three layers of LSTM; `paper` has the default's machine with the
paper's optimizer, on a million sequences (its batch size is not stated, and the sum of
the loss over a sequence is taken as its mean times 84 bits); `smoke` trains for a
moment.
"""

from ml_collections import ConfigDict

from configs._ntm import FEEDFORWARD, LSTM_ALONE, SMOKE, ntm_config, paper
from configs._variants import steps

_FIELDS = steps(6000) | {
    "evaluation.sizes": (10, 20, 30, 50, 120),  # the paper's figure 4
}
# What each variant changes.
VARIANTS = {
    "": {},
    # Learns faster so, where one of three machines with LSTM does not.
    "feedforward": FEEDFORWARD | {"optimizer.learning_rate": 0.002},
    "lstm": LSTM_ALONE,
    "paper": paper(1e-4, bits=84.0),  # 10.5 vectors of 8 bits
    "smoke": SMOKE | {"data.max_size": 3, "evaluation.sizes": (3, 5)},
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return ntm_config(_FIELDS, VARIANTS, variant)
