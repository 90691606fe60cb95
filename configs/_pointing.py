"""Fields shared by the configs of pointer networks."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from configs._optimizer import adam, sgd
from configs._variants import apply, steps, update
from models.pointer import PointerNetwork
from tasks.pointing.task import Pointing

# A few steps of a small model.
SMOKE = {
    "model.embedding": 7,
    "model.hidden": 11,
    "model.score_hidden": 13,
    "data.min_size": 4,
    "data.max_size": 5,
    "data.buckets": 1,
    "data.batch_size": 16,
    "evaluation.sizes": (5, 6),
    "evaluation.instances": 20,
    "train_steps": 6,
    "eval_every": 3,
    "save_every": 2,
    "log_every": 2,
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
        "data.batch_size": 128,
    }


def sized(min_size: int, max_size: int, *sizes: int) -> dict[str, Any]:
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


def lasting(count: int) -> dict[str, int]:
    """Returns the fields for `count` steps, with a cosine that reaches 0 at the end."""
    return steps(count) | {"optimizer.decay_steps": count}


def pointing_config(
    kind: str,
    fields: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    variant: str,
) -> ConfigDict:
    """Returns the config of a variant.

    Args:
        kind: a key of `tasks.pointing.data.KINDS`.
        fields: changed fields of the task.
        variants: changed fields by variant.
        variant: a key of `variants`.
    """
    config = ConfigDict()
    config.task = Pointing
    config.architecture = PointerNetwork

    config.model = ConfigDict()
    config.model.encoder = "recurrent"  # or "process", from Order Matters
    config.model.process_steps = 5  # for "process"
    config.model.output = "pointer"  # or the baselines "attention" and "none"
    config.model.glimpses = 0  # reads per pointer; 0 or 1 in Order Matters
    config.model.score = "additive"  # any key of attention.scores
    config.model.cell = "lstm"  # or "gru", "rnn"
    config.model.embedding = 128
    config.model.hidden = 128  # 256 or 512 in the paper
    config.model.score_hidden = 128
    config.model.max_inputs = 50  # for the baselines and the location score
    config.model.init_scheme = "standard"  # or "paper", U(-0.08, 0.08)

    # The clipping is the paper's; its SGD is in the variant `paper`.
    config.optimizer = adam(
        3e-3, schedule="warmup_cosine", warmup=100, decay_steps=3000, clip=2.0
    )

    config.data = ConfigDict()
    config.data.kind = kind
    config.data.min_size = 10  # inputs
    config.data.max_size = 10
    config.data.buckets = 1  # batch shapes; each costs a compilation
    config.data.batch_size = 128  # the paper's

    config.evaluation = ConfigDict()
    config.evaluation.sizes = (5, 10)
    config.evaluation.instances = 1000  # per size
    config.evaluation.beam = 1  # greedy
    config.evaluation.constrain = False  # of the first metrics; True for permutations
    config.evaluation.checkpoint = "last"
    config.evaluation.average = 1

    config.seed = 0
    config.train_steps = 3000
    config.eval_every = 300
    config.save_every = 300
    config.log_every = 100
    config.checkpoints = ConfigDict({"keep": 1})
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1})
    config.parallel = "cores"  # for small steps; or "jit", "pmap"
    config.non_finite = "stop"  # or "skip": leave out updates that are not finite
    return apply(update(config, fields), variants, variant)
