"""Fields shared by the configs of the Neural Turing Machine."""

from typing import Any

from configs._variants import SMOKE, steps
from models.ntm import LSTM
from training.optimizers import adam, rmsprop

# Fields of every task. The paper's RMSProp is in the variant `paper`. A cosine schedule
# decays before the machine has converged. Gradient norms are mostly below 0.2; a few
# larger ones undo what was learned.
FIELDS = steps(5000) | {
    "optimizer": adam(1e-3, decay_steps=5000, clip=0.5),
    "parallel": "cores",  # for small steps; or "jit", "pmap"
}
FEEDFORWARD = {"model.controller": "feedforward"}
# The paper's baseline (table 3) has three layers, of width 128 in two tasks and 256 or
# 512 in the others, which would take hours on a CPU.
LSTM_ALONE = {
    "architecture": LSTM,
    "model": {"hidden": 128, "layers": 3},
}


def paper(learning_rate: float, bits: float) -> dict[str, Any]:
    """Returns the fields of the paper's training, section 4.6.

    RMSProp in the form of Graves (2013), with each component of the gradient clipped to
    [-10, 10]. The paper's figures show 1M sequences. It does not state the batch size;
    32 is from Collier and Beel (2018).

    Args:
        learning_rate: learning rate, table 1 or 2.
        bits: mean number of target bits per sequence; the paper's loss sums over them.
    """
    return steps(31_250) | {
        "optimizer": rmsprop(
            learning_rate, momentum=0.9, scale=bits, clip=10.0, clip_by="value"
        ),
        "data.batch_size": 32,
    }


# Sizes for a minute of training.
TINY = {
    "model.hidden": 64,
    "model.slots": 16,
    "model.width": 12,
    "data.buckets": 1,
}
# A few steps of a small model.
SMALL = SMOKE | {
    "model.hidden": 11,
    "model.slots": 7,
    "model.width": 5,
    "data.batch_size": 16,
    "data.buckets": 1,
    "evaluation.sequences": 8,
}
