"""End-to-end memory networks on the bAbI tasks (Sukhbaatar et al. 2015).

    python train.py --config=configs/memory_network_qa.py --workdir=runs/memory_network

Each of the twenty tasks has its own model; all are trained side by side.
`--config.data.tasks='(1, 2)'` trains only these tasks. `--config.data.repeats=10`
trains ten models for each task, as in the paper; the evaluation reports their mean and
the best.

With ten models per task, training takes 8 minutes on one core. The mean error is
15.7 %, and 14.8 % for the best of ten; the paper reports 13.9 %, on the published
stories. See docs/results/questions.md; docs/mechanisms/memory-networks.md lists the
differences from the authors' code.

Variants:

*   `no_noise`: without random time indices (the paper's PE LS).
*   `no_linear_start`: also without the linear start (PE).
*   `bag`: also without the position encoding (BoW).
*   `supervised`: the attention is trained on the supporting facts, without a linear
    start.
*   `joint`: one model of width 50 for all tasks; 60 epochs after the linear start.
*   `layerwise`: `joint` with layer-wise tying.
*   `10k`: 10,000 questions per task instead of 1,000.
*   `tiny`: task 1, one supporting fact, in half a minute; 3,360 steps, 0.6 % errors
    (floor, by the question alone: 82.0 %).
"""

from configs._variants import SMOKE, config_maker
from models.memory_network import MemoryNetwork
from tasks.questions.task import QuestionAnswering
from training.optimizers import sgd

_EPOCH = 28  # batches of 32 in 900 questions
_NO_NOISE = {"data.time_noise": 0.0}
# Without a linear start the paper's initial rate is 0.01.
_NO_LINEAR_START = {
    **_NO_NOISE,
    "loss.linear_steps": 0,
    "optimizer.learning_rate": 0.01,
    "train_steps": 100 * _EPOCH,
}
_JOINT_EPOCH = 562  # batches of 32 in 18,000 questions
_JOINT = {
    "data.training": "joint",
    "model.width": 50,
    "optimizer.decay_begin": 15 * _JOINT_EPOCH,
    "optimizer.decay_every": 15 * _JOINT_EPOCH,
    "loss.linear_steps": 30 * _JOINT_EPOCH,
    "train_steps": 90 * _JOINT_EPOCH,
    "eval_every": 2 * _JOINT_EPOCH,
    "save_every": 2 * _JOINT_EPOCH,
}
_LARGE_EPOCH = 282  # batches of 32 in 9,000 questions
_LARGE = {
    "data.questions": 10_000,
    "optimizer.decay_begin": 25 * _LARGE_EPOCH,
    "optimizer.decay_every": 25 * _LARGE_EPOCH,
    "loss.linear_steps": 20 * _LARGE_EPOCH,
    "train_steps": 120 * _LARGE_EPOCH,
    "eval_every": 4 * _LARGE_EPOCH,
    "save_every": 4 * _LARGE_EPOCH,
}
# Changed fields by variant.
VARIANTS = {
    "": {
        "loss.linear_steps": 20 * _EPOCH,  # at most; exactly, in the authors' code
        "optimizer": sgd(
            0.005,  # the paper's with a linear start, in both phases
            schedule="step_decay",
            decay_begin=25 * _EPOCH,  # the paper's, from the end of the linear start
            decay_every=25 * _EPOCH,
            decay_factor=0.5,
            scale=32.0,  # the batch size: the paper's gradient is a sum
            clip=40.0,  # the paper's, on that sum
            clip_by="matrix",
        ),
        "train_steps": 120 * _EPOCH,  # 100 epochs after the linear start
        "eval_every": 4 * _EPOCH,
        "save_every": 20 * _EPOCH,
        "log_every": _EPOCH,
    },
    "no_noise": _NO_NOISE,
    "no_linear_start": _NO_LINEAR_START,
    "bag": _NO_LINEAR_START | {"model.encoding": "bag"},
    "supervised": _NO_LINEAR_START
    | {"data.time_noise": 0.1, "loss.supervision": 0.02},  # better than 0.1 and 1
    "joint": _JOINT,
    "layerwise": _JOINT | {"model.tying": "layerwise"},
    "10k": _LARGE,
    "tiny": {"data.tasks": (1,)},  # one supporting fact
    "smoke": SMOKE
    | {
        "model.hops": 2,
        "model.width": 7,
        "data.tasks": (1, 4),
        "data.questions": 50,
        "data.repeats": 2,
        "data.batch_size": 8,
        "loss.linear_steps": 4,
        "eval_every": 2,
    },
}
get_config = config_maker(QuestionAnswering, MemoryNetwork, VARIANTS)
