"""Adding and multiplying with feed-forward attention (Raffel and Ellis 2015).

    python train.py --config=configs/ff_attention.py --workdir=runs/ff_attention

Sums of two numbers among 100 to 109. Longer ones by field: with
`--config.data.length=1000 --config.train_steps=5000` this takes 2 minutes on one core
and has all of 1,000 sums right, as in the paper; the mean of all steps has 70 %.

Variants: `multiply` is the other operation, `mean` and `multiply_mean` have the paper's
baseline, the mean of all steps; `variable`, `variable_multiply`, `variable_mean` and
`variable_multiply_mean` the protocol of lengths from 50 to 1,000 (the paper: 10,000, by
`--config.data.length=10000`) with a mask, which in a minute has 84 to 96 % right, and
with the mean of all steps 47 %; `smoke` trains for a moment.
"""

from ml_collections import ConfigDict

from configs._optimizer import adam
from configs._variants import apply
from models.feedforward import FeedForwardAttention
from tasks.adding import Adding

_MULTIPLY = {"data.operation": "multiply"}
_MEAN = {"model.pooling": "mean"}
_VARIABLE = {
    "data.protocol": "variable",
    "data.length": 1000,
    # At a constant rate accuracy goes up and down by tens of per cent.
    "optimizer.schedule": "warmup_cosine",
    "optimizer.decay_steps": 5000,
    "train_steps": 5000,
}
# What each variant changes.
VARIANTS = {
    "": {},
    "mean": _MEAN,
    "multiply": _MULTIPLY,
    "multiply_mean": _MULTIPLY | _MEAN,
    "variable": _VARIABLE,
    "variable_mean": _VARIABLE | _MEAN,
    "variable_multiply": _VARIABLE | _MULTIPLY,
    "variable_multiply_mean": _VARIABLE | _MULTIPLY | _MEAN,
    "smoke": {
        "model.hidden": 11,
        "data.length": 23,
        "data.batch_size": 16,
        "evaluation.lengths": (29,),
        "train_steps": 6,
        "eval_every": 3,
        "save_every": 2,
        "log_every": 2,
    },
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    config = ConfigDict()
    config.task = Adding
    config.architecture = FeedForwardAttention

    config.model = ConfigDict()
    config.model.pooling = "attention"  # or "mean", the paper's baseline
    config.model.hidden = 100  # the paper's

    # One of the paper's 0.01, 0.003, 0.001 and 0.0003, with Adam's own defaults.
    config.optimizer = adam(0.003, decay_steps=3000)

    config.data = ConfigDict()
    config.data.operation = "add"  # or "multiply"
    config.data.protocol = "fixed"  # or "variable"
    config.data.length = 100  # T0; of the variable protocol the longest
    config.data.min_length = 50  # of the variable protocol, like `buckets`
    config.data.buckets = 16  # the number of shapes
    config.data.batch_size = 100  # the paper's

    config.evaluation = ConfigDict()
    config.evaluation.lengths = (50, 100, 200, 500, 1000)  # also scored, at the end
    config.evaluation.checkpoint = "last"
    config.evaluation.average = 1

    config.seed = 0
    config.train_steps = 3000
    config.eval_every = 1000  # the paper's epoch: 100,000 sequences
    config.save_every = 1000
    config.log_every = 100
    config.checkpoints = ConfigDict({"keep": 1})
    config.mesh = ConfigDict({"data": -1, "fsdp": 1})
    config.parallel = "jit"  # or "pmap"
    return apply(config, VARIANTS, variant)
