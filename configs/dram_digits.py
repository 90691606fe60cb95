"""Reading pairs of digits with recurrent visual attention: DRAM, Ba et al. (2015).

    python train.py --config=configs/dram_digits.py --workdir=runs/dram_digits

The model names two MNIST digits on a canvas of 100 x 100 pixels from left to right,
then gives a stop symbol, with three glimpses for each of these three answers. Takes
20 to 35 minutes on one core; 7.6 ± 0.7 % of the pairs are wrong. The paper's model,
trained on 60,000 digits to name one of 55 unordered pairs, gets 5 % wrong. See
docs/results/glimpses.md.

Variants:

*   `no_context`: the upper layer starts from 0, without a coarse view of the image.
*   `sum`: the answer is the sum of the two digits (the paper: 2.5 % wrong).
*   `one_to_three`: one to three digits.
*   `ram`, `cnn`: baselines that give all answers at once: RAM, and a network without
    attention.
*   `tiny`: drawn digits on canvases of 56 pixels, without a download; 1,600 steps, a
    minute of CPU time. On one core, 39 % of the pairs and 14 % of the answers are wrong
    (floor, the same two digits for every image: 99 and 60 %).
"""

from configs._variants import SMOKE_COSINE, config_maker, cosine, cosine_steps
from models.recurrent_visual import (
    DeepRecurrentAttention,
    ImageClassifier,
    RecurrentVisualAttention,
)
from tasks.recognition.task import Recognition

# Changed fields by variant.
VARIANTS = {
    "": cosine(1e-3, 6000, warmup=100, clip=5.0)
    | {
        "model.channels": (16, 16, 32),  # the paper: 64, 64, 128
        "model.width": 128,
        "model.hidden": 256,  # 512
        "model.scales": 3,  # 2
        "model.std": 0.2,
        "model.gain": 0.1,  # 1, with which some runs end at an edge of the image
        "loss.rewarded": "likelihood",  # the number of correct answers
        "data.side": 100,
        "data.min_objects": 2,
        "data.objects": 2,
        "data.batch_size": 64,
    },
    "no_context": {"model.context": 0},
    "sum": {"data.answer": "sum", "model.glimpses": 6},
    "one_to_three": {"data.min_objects": 1, "data.objects": 3},
    "ram": {
        "architecture": RecurrentVisualAttention,
        "model": {
            "size": 12,
            "scales": 4,
            "glimpses": 8,
            "std": 0.2,
            "gain": 0.1,  # as for DRAM
            "locator_hidden": 128,
        },
    },
    "cnn": {
        "architecture": ImageClassifier,
        "model": {"channels": (32, 64, 64), "layers": (256,)},
    }
    | cosine_steps(2000),
    "tiny": cosine_steps(1600)
    | {
        "data.source": "drawn",  # needs no download
        "data.side": 56,
        "data.batch_size": 32,
        "model.glimpses": 2,
        "model.channels": (8, 8, 16),
        "model.width": 64,
        "model.hidden": 96,
        "optimizer.learning_rate": 2e-3,
    },
    "smoke": SMOKE_COSINE
    | {
        "data.source": "drawn",
        "data.side": 60,
        "data.batch_size": 8,
        "model.glimpses": 2,
        "model.size": 6,
        "model.channels": (3, 5, 7),
        "model.width": 11,
        "model.hidden": 13,
        "model.context": 8,
        "evaluation.images": 20,
    },
}
get_config = config_maker(Recognition, DeepRecurrentAttention, VARIANTS)
