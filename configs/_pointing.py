"""Fields shared by the configs of pointer networks."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from configs._variants import SMOKE_COSINE, apply, cosine, steps, update
from models.pointer import PointerNetwork
from tasks.pointing.task import Pointing
from training.configuration import defaults
from training.optimizers import sgd

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
    """Returns the fields for a range of sizes.

    Args:
        min_size: minimum number of inputs in training.
        max_size: maximum number of inputs in training.
        *sizes: sizes to evaluate in addition to the minimum and the maximum.
    """
    return {
        "data.min_size": min_size,
        "data.max_size": max_size,
        "evaluation.sizes": tuple(sorted({min_size, max_size, *sizes})),
    }


def pointing_config(
    kind: str,
    fields: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    variant: str = "",
) -> ConfigDict:
    """Returns the config of a variant.

    Args:
        kind: a key of `tasks.pointing.data.KINDS`.
        fields: changed fields of the task.
        variants: changed fields by variant.
        variant: a key of `variants`; "" is the default.
    """
    config = defaults(Pointing, PointerNetwork)
    config.model.embedding = 128
    config.model.hidden = 128  # 256 or 512 in the paper
    config.model.score_hidden = 128
    config.model.init_scheme = "standard"  # or "paper", U(-0.08, 0.08)
    # The clipping is the paper's; its SGD is in the variant `paper`.
    config.update(cosine(3e-3, 3000, warmup=100, clip=2.0))
    config.data.kind = kind
    config.parallel = "cores"  # for small steps; or "jit", "pmap"
    return apply(update(config, fields), variants, variant)
