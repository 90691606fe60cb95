"""Priority sort with a Neural Turing Machine (Graves et al., 2014, section 4.5).

    python train.py --config=configs/ntm_sort.py --workdir=runs/ntm_sort

The answer is the 16 of 20 vectors with the highest priority, in order. Takes about 13
minutes on one CPU core and reaches 77.72 bits per answer (guessing: 128); the loss is
still falling at the end. As in the paper, the machine writes each vector to a position
given by its priority, but not exactly.

Differs from the paper: the controller has one layer of LSTM instead of two (table 2).

Variants:

*   `feedforward`: the machine with a feed-forward controller.
*   `lstm`: the paper's baseline, three layers of LSTM.
*   `paper`: the default machine with the paper's optimizer, on a million sequences.
*   `tiny`: the first four of five vectors in a minute; 2,500 steps, 16.8 bits (floor,
    guessing: 32).
"""

from configs._ntm import FEEDFORWARD, FIELDS, LSTM_ALONE, SMALL, TINY, paper
from configs._variants import config_maker, steps
from models.ntm import NeuralTuringMachine
from tasks.algorithmic.task import Algorithmic

# Changed fields by variant.
VARIANTS = {
    "": FIELDS
    | steps(8000)
    | {
        "data.kind": "sort",
        "data.min_size": 20,  # vectors
        "data.max_size": 20,
        "data.buckets": 1,
        "evaluation.sizes": (10, 15),
        "model.read_heads": 5,
        "model.write_heads": 5,
        # Bits after 4000 steps: 117 at a rate of 0.001, 89 at 0.003, 117 at 0.003 with
        # a batch size of 8. After 8000 steps with a cosine: 83.
        "optimizer.learning_rate": 0.003,
        "optimizer.clip": 0.2,
    },
    "feedforward": FEEDFORWARD
    | {"model.hidden": 512, "model.read_heads": 8, "model.write_heads": 8},
    "lstm": LSTM_ALONE,
    "paper": paper(3e-5, bits=128.0),  # 16 vectors of 8 bits
    "tiny": steps(2500)
    | TINY
    | {
        "data.min_size": 5,
        "data.max_size": 5,
        "evaluation.sizes": (5,),
        "model.read_heads": 2,
        "model.write_heads": 2,
    },
    "smoke": SMALL | {"data.min_size": 3, "data.max_size": 3, "evaluation.sizes": (2,)},
}
get_config = config_maker(Algorithmic, NeuralTuringMachine, VARIANTS)
