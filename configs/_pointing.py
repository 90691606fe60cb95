"""Fields shared by the configs of pointer networks."""

from typing import Any

from configs._variants import SMOKE_COSINE, cosine, steps
from training.optimizers import sgd

# Fields of every task. The clipping is the paper's; its SGD is in the variant `paper`.
FIELDS = cosine(3e-3, 3000, warmup=100, clip=2.0) | {
    "model.embedding": 128,
    "model.hidden": 128,  # 256 or 512 in the paper
    "model.score_hidden": 128,
    "model.init_scheme": "standard",  # or "paper", U(-0.08, 0.08)
    "parallel": "cores",  # for small steps; or "jit", "pmap"
}
# A few steps of a small model.
SMALL = SMOKE_COSINE | {
    "model.embedding": 7,
    "model.hidden": 11,
    "model.score_hidden": 13,
    "data.min_size": 4,
    "data.max_size": 5,
    "data.buckets": 1,
    "data.batch_size": 16,
    "evaluation.sizes": (5, 6),
    "evaluation.instances": 20,
}
# Sizes for a minute of training.
TINY = {
    "model.embedding": 64,
    "model.hidden": 64,
    "model.score_hidden": 64,
}
# The encoder of Order Matters, invariant to the order of its inputs.
PROCESS = {"model.encoder": "process"}
# The paper's baselines; each is trained for a single size.
SEQ2SEQ = {"model.output": "none"}
ATTENTION = {"model.output": "attention"}


def paper(length: float) -> dict[str, Any]:
    """Returns the fields of the paper's model and training, section 4.1.

    Ten epochs of 1M instances. The paper does not state whether the loss of an instance
    is the sum or the mean over its pointers; here it is the sum, as in Sutskever et al.
    (2014).

    Args:
        length: mean output length, including the end.
    """
    return steps(80_000) | {
        "model.embedding": 256,  # not in the paper, whose LSTM reads the coordinates
        "model.hidden": 256,  # or 512
        "model.score_hidden": 256,
        "model.init_scheme": "paper",
        "optimizer": sgd(1.0, clip=2.0, scale=length),
    }


def size_range(min_size: int, max_size: int, *sizes: int) -> dict[str, Any]:
    """Returns the fields for a range of sizes, evaluated at both and at `sizes`."""
    return {
        "data.min_size": min_size,
        "data.max_size": max_size,
        "evaluation.sizes": tuple(sorted({min_size, max_size, *sizes})),
    }
