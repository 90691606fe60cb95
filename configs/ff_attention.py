"""Adding and multiplying with feed-forward attention (Raffel and Ellis, 2015).

    python train.py --config=configs/ff_attention.py --workdir=runs/ff_attention

Two marked numbers in a sequence of 100 to 109 steps are added. Longer sequences
(`--config.data.length=1000 --config.train_steps=5000`) take 2 minutes on one CPU core;
all 1,000 test sums are then correct, as in the paper (70 % with the mean of all steps).

Variants:

*   `multiply`: products instead of sums.
*   `mean`, `multiply_mean`: the paper's baseline, the mean of all steps.
*   `variable`, `variable_multiply`, `variable_mean`, `variable_multiply_mean`: lengths
    from 50 to 1,000, with a mask (up to 10,000 in the paper:
    `--config.data.length=10000`). After a minute, 84 to 96 % are correct (with the mean
    of all steps, 47 % of the sums and 60 % of the products).
*   `tiny`: the default in half a minute; 1,000 steps, 100 % correct (floor, the mean
    target: 14.1 %).
"""

from configs._variants import SMOKE, config_maker
from models.feedforward import FeedForwardAttention
from tasks.adding.task import Adding
from training.optimizers import adam

_MULTIPLY = {"data.operation": "multiply"}
_MEAN = {"model.pooling": "mean"}
_VARIABLE = {
    "data.protocol": "variable",
    "data.length": 1000,
    # At a constant rate, accuracy fluctuates by tens of per cent.
    "optimizer.schedule": "warmup_cosine",
    "optimizer.decay_steps": 5000,
    "train_steps": 5000,
}
# Changed fields by variant.
VARIANTS = {
    "": {
        # One of the paper's rates: 0.01, 0.003, 0.001 and 0.0003.
        "optimizer": adam(0.003, decay_steps=3000),
        "train_steps": 3000,
        "eval_every": 1000,  # the paper's epoch: 100,000 sequences
        "save_every": 1000,
    },
    "mean": _MEAN,
    "multiply": _MULTIPLY,
    "multiply_mean": _MULTIPLY | _MEAN,
    "variable": _VARIABLE,
    "variable_mean": _VARIABLE | _MEAN,
    "variable_multiply": _VARIABLE | _MULTIPLY,
    "variable_multiply_mean": _VARIABLE | _MULTIPLY | _MEAN,
    "tiny": {
        "evaluation.lengths": (100,),
        "optimizer.decay_steps": 1000,
        "train_steps": 1000,
        "eval_every": 500,
        "save_every": 500,
    },
    "smoke": SMOKE
    | {
        "model.hidden": 11,
        "data.length": 23,
        "data.batch_size": 16,
        "evaluation.lengths": (29,),
    },
}
get_config = config_maker(Adding, FeedForwardAttention, VARIANTS)
