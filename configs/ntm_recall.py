"""Associative recall with a Neural Turing Machine (Graves et al., 2014, section 4.3).

    python train.py --config=configs/ntm_recall.py --workdir=runs/ntm_recall

A list has two to six items, each of three vectors of 6 bits. Takes about 3 minutes on
one CPU core; the loss of the recalled item is then 0.01 bits at 6 items and 0.04 at 15.
With the feed-forward controller, which has four heads instead of one, it is 0.34 and
7.8 (mean of five seeds, of which three get worse with the number of items). The paper
reports near 0 for both.

Variants:

*   `feedforward`: the machine with a feed-forward controller.
*   `lstm`: the paper's baseline, three layers of LSTM.
*   `paper`: the default machine with the paper's optimizer, on a million sequences.
*   `tiny`: two or three items in a minute; 3,000 steps, 1.1 bits (floor, guessing: 18).
"""

from configs._ntm import FEEDFORWARD, FIELDS, LSTM_ALONE, SMALL, TINY, paper
from configs._variants import config_maker, steps
from models.ntm import NeuralTuringMachine
from tasks.algorithmic.task import Algorithmic

# Changed fields by variant.
VARIANTS = {
    "": FIELDS
    | {
        "data.kind": "recall",
        "data.min_size": 2,
        "data.max_size": 6,  # items
        "data.buckets": 1,
        "evaluation.sizes": (6, 8, 10, 12, 15),  # the paper's figure 11
        "optimizer.learning_rate": 0.002,
    },
    "feedforward": FEEDFORWARD
    | {"model.hidden": 256, "model.read_heads": 4, "model.write_heads": 4},
    "lstm": LSTM_ALONE,
    "paper": paper(1e-4, bits=18.0),  # bits per item
    "tiny": steps(3000)
    | TINY
    | {"data.max_size": 3, "evaluation.sizes": (2, 3), "optimizer.learning_rate": 5e-3},
    "smoke": SMALL | {"data.max_size": 3, "evaluation.sizes": (2, 4)},
}
get_config = config_maker(Algorithmic, NeuralTuringMachine, VARIANTS)
