"""Repeat copy with a Neural Turing Machine (Graves et al., 2014, section 4.2).

    python train.py --config=configs/ntm_repeat_copy.py --workdir=runs/ntm_repeat_copy

Up to 10 vectors are repeated up to 10 times. Takes about 6 minutes on one CPU core; the
loss at 10 vectors is then 0.49 bits (guessing: 484). As in the paper, longer sequences
are copied nearly as well (20 vectors: 76 bits, with 1 % wrong bits). The machine does
not count beyond the repeats of training: asked for 20 repeats, it ends after 13.

Variants:

*   `feedforward`: the machine with a feed-forward controller.
*   `lstm`: the paper's baseline, three layers of LSTM.
*   `paper`: the default machine with the paper's optimizer, on a million sequences.
*   `tiny`: up to three vectors in a minute; 2,000 steps, 109 bits (floor, guessing:
    161). The answer is still a mean of the vectors, not a copy.
"""

from configs._ntm import FEEDFORWARD, FIELDS, LSTM_ALONE, SMALL, TINY, paper
from configs._variants import config_maker, cosine_steps
from models.ntm import NeuralTuringMachine
from tasks.algorithmic.task import Algorithmic

# Changed fields by variant.
VARIANTS = {
    "": FIELDS
    | cosine_steps(16_000)
    | {
        "data.kind": "repeat_copy",
        "data.max_size": 10,  # vectors; always 1 to 10 repeats
        "data.buckets": 2,
        # With a batch size of 32 and a rate of 0.001, almost nothing is learned in 4000
        # steps. Without the cosine, later steps at this rate undo what was learned.
        "data.batch_size": 8,
        "optimizer.learning_rate": 0.003,
        "optimizer.schedule": "warmup_cosine",
        "optimizer.clip": 0.2,
        "evaluation.sizes": ((10, 10), (20, 10), (10, 20)),  # the paper's figure 8
    },
    "feedforward": FEEDFORWARD,
    "lstm": LSTM_ALONE,
    "paper": paper(1e-4, bits=280.0),  # 31 vectors of 9 bits
    "tiny": cosine_steps(2000)
    | TINY
    | {"data.max_size": 3, "evaluation.sizes": ((3, 10),)},
    "smoke": SMALL
    | {
        "data.max_size": 2,
        "evaluation.sizes": (2, (2, 3)),
        "optimizer.decay_steps": 6,
    },
}
get_config = config_maker(Algorithmic, NeuralTuringMachine, VARIANTS)
