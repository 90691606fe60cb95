"""What the configs of the Neural Turing Machine share."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from configs._optimizer import adam, rmsprop
from configs._variants import apply, steps, update
from models.ntm import LSTM, NeuralTuringMachine
from tasks.algorithmic import Algorithmic

FEEDFORWARD = {"model.controller": "feedforward"}
# The paper's baseline (table 3): three layers, of 128 in two tasks, 256 and 512 in the
# others, where that would take hours on a CPU.
LSTM_ALONE = {
    "architecture": LSTM,
    "model": ConfigDict({"hidden": 128, "layers": 3}),
}


def paper(learning_rate: float, bits: float) -> dict[str, Any]:
    """Fields of the paper's training: section 4.6.

    The form of RMSProp is that of Graves (2013), and each number of the gradient is
    clipped to +-10. The figures show 1M sequences; the batch size is not stated: 32 is
    that of Collier and Beel (2018).

    Args:
        learning_rate: of table 1 or 2.
        bits: asked for in a sequence, on average. The paper's loss is a sum over them.
    """
    return steps(31_250) | {
        "optimizer": rmsprop(
            learning_rate, momentum=0.9, scale=bits, clip=10.0, clip_by="value"
        ),
        "data.batch_size": 32,
    }


# Trains for a moment.
SMOKE = {
    "model.hidden": 11,
    "model.slots": 7,
    "model.width": 5,
    "data.batch_size": 16,
    "data.buckets": 1,
    "evaluation.sequences": 8,
    "train_steps": 6,
    "eval_every": 3,
    "save_every": 2,
    "log_every": 2,
}


def ntm_config(
    fields: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]], variant: str
) -> ConfigDict:
    """Returns the config of a variant.

    Args:
        fields: what the task's default changes in what all tasks share.
        variants: what each variant changes in that.
        variant: a key of `variants`.
    """
    config = ConfigDict()
    config.task = Algorithmic
    config.architecture = NeuralTuringMachine

    config.model = ConfigDict()
    config.model.controller = "lstm"  # or "feedforward"
    config.model.hidden = 100  # the paper's, tables 1 and 2, like the next four
    config.model.read_heads = 1
    config.model.write_heads = 1
    config.model.slots = 128
    config.model.width = 20
    config.model.shifts = 3  # -1, 0, 1; the paper does not say
    config.model.memory_init = "constant"  # learns fastest: Collier and Beel (2018)

    # The paper's RMSProp is in the variant `paper`. With a cosine the rate is gone
    # before the machine is sure; norms are mostly below 0.2, and it is the few others
    # that unlearn.
    config.optimizer = adam(1e-3, decay_steps=5000, clip=0.5)

    config.data = ConfigDict()
    config.data.kind = "copy"  # a key of data.algorithmic.KINDS
    config.data.min_size = 1
    config.data.max_size = 20
    config.data.buckets = 4  # batches hold sequences of 5 sizes, so little is padding
    config.data.batch_size = 32

    config.evaluation = ConfigDict()
    config.evaluation.sizes = (20,)
    config.evaluation.sequences = 200  # of each size
    config.evaluation.checkpoint = "best"  # what is learned can be lost again
    config.evaluation.average = 1

    config.seed = 0
    config.train_steps = 5000
    config.eval_every = 500
    config.save_every = 500
    config.log_every = 100
    config.checkpoints = ConfigDict({"keep": 1})
    config.mesh = ConfigDict({"data": -1, "fsdp": 1})
    config.parallel = "cores"  # small steps do not fill two cores; or "jit", "pmap"
    return apply(update(config, fields), variants, variant)
