"""Learning 6-grams with a Neural Turing Machine (Graves et al. 2014, section 4.4).

    python train.py --config=configs/ntm_ngrams.py --workdir=runs/ntm_ngrams

On one core this takes 9.5 minutes and pays 138.4 bits for 200, other seeds 137 and 146;
the LSTM pays 138, the best predictor 134.8. The paper's machine comes close to that,
without a recurrent controller, too; here it has learned little without (176 bits).

Variants: `feedforward` is the machine without a recurrent controller, `lstm` the
paper's baseline, three layers of LSTM; `paper` has the default's machine with the
paper's optimizer, on a million sequences (its batch size is not stated, and the sum of
the loss over a sequence is taken as its mean times 200 bits); `smoke` trains for a
moment.
"""

from ml_collections import ConfigDict

from configs._ntm import FEEDFORWARD, LSTM_ALONE, SMOKE, ntm_config, paper
from configs._variants import steps

_FIELDS = steps(8000) | {
    "data.kind": "ngrams",
    "data.min_size": 200,  # bits
    "data.max_size": 200,
    "data.buckets": 1,
    "data.batch_size": 8,  # of 32 there would be a fourth of the steps
    "evaluation.sizes": (),
    "evaluation.sequences": 1000,  # the paper's
    # At 0.001 two of three machines have learned next to nothing after 6000 steps; at
    # 0.003 and clipped at 0.5 two of three still paid 150 bits then.
    "optimizer.learning_rate": 0.003,
    "optimizer.clip": 0.2,
}
# What each variant changes.
VARIANTS = {
    "": {},
    "feedforward": FEEDFORWARD,
    "lstm": LSTM_ALONE,
    "paper": paper(3e-5, bits=200.0),
    "smoke": SMOKE | {"data.min_size": 11, "data.max_size": 11},
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return ntm_config(_FIELDS, VARIANTS, variant)
