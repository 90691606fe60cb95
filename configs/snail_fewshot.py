"""SNAIL on few-shot classification of characters (Mishra et al. 2018, section 5.1).

    python train.py --config=configs/snail_fewshot.py --workdir=runs/snail_fewshot

An episode has five classes of letters and one to five examples of each; the scripts of
the test split are not in training. After 3,000 steps, 40 minutes on one CPU core,
82.6 ± 2.4 % of the queries of 1,000 test episodes are classified correctly with one
example of each class and 91.1 ± 1.8 % with five (one seed; ± is the 95 % confidence
interval). The nearest neighbour in pixels reaches 50.5 and 73.8 %. The paper, on
Omniglot, reports 99.1 % with one example and 99.8 % with five.

Variants:

*   `way_20`: 20 classes.
*   `paper`: blocks of the published width.
*   `noto`: letters of more scripts, from the Debian package fonts-noto-core.
*   `no_attention`, `no_convolutions`: SNAIL without one of its two kinds of blocks.
    With one example of each class, the first is no better than chance, and the second
    reaches 84.3 ± 2.3 % (one seed each).
*   `lstm`: an LSTM with about the same number of parameters; no better than chance.
*   `matching`: matching networks; 94.6 ± 1.4 % with one example of each class.
*   `tiny`: matching networks with one example of each class, in a minute; 300 steps,
    64.6 % (floor, the nearest neighbour in pixels: 50.8 %). SNAIL is still at chance.
"""

from configs._variants import SMOKE, config_maker, steps
from models.few_shot import LSTMClassifier, MatchingNetwork, SnailClassifier
from models.snail import FEW_SHOT
from tasks.fewshot.task import FewShot
from training.optimizers import adam

# Changed fields by variant.
VARIANTS = {
    "": steps(3000)
    | {
        # The paper: double, except for (64, 32).
        "model.blocks": ((64, 32), 64, (128, 64), 64, (256, 128)),
        "data.batch_size": 16,
        "optimizer": adam(1e-3, clip=5.0),
        "log_every": 20,
    },
    "way_20": {"data.ways": 20, "data.batch_size": 8},
    "noto": {"data.source": "noto"},
    "paper": {"model.blocks": FEW_SHOT, "data.batch_size": 32} | steps(40_000),
    "no_attention": {"model.blocks": (64, 64)},
    "no_convolutions": {"model.blocks": ((64, 32), (128, 64), (256, 128))},
    "lstm": {"architecture": LSTMClassifier, "model": {"hidden": 360}},
    "matching": {"architecture": MatchingNetwork, "model": {}},
    "tiny": {
        "architecture": MatchingNetwork,
        "model": {"channels": (16, 16, 16, 16)},
        "data.shots": 1,
        "evaluation.episodes": 500,
        "evaluation.shots": (1,),
    }
    | steps(300),
    "smoke": SMOKE
    | {
        "data.ways": 3,
        "data.shots": 2,
        "data.batch_size": 8,
        "model.channels": (2, 3, 5, 7),
        "model.embedding": 11,
        "model.blocks": ((5, 3), 7, (13, 2)),
        "evaluation.episodes": 20,
        "evaluation.shots": (1, 2),
    },
}
get_config = config_maker(FewShot, SnailClassifier, VARIANTS)
