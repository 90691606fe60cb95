"""Visual question answering: Kazemi and Elqursh (2017), on scenes of coloured shapes.

    python train.py --config=configs/vqa_scenes.py --workdir=runs/vqa

Takes about ten minutes on one core; 76.7 ± 0.4 % of the answers are right. The
questions are constructed so that a model without the image gets at most 29.2 % right on
average; `docs/results/visual-questions.md` has the results. The encoder also learns to
name the object of each region, in place of the papers' pre-training on ImageNet.

Variants:

*   `glimpses_1`: one glimpse instead of two.
*   `no_attention`: the mean of all regions.
*   `question_only`, `image_only`: without the other input.
*   `spatial_memory`: the network of Xu and Saenko (2016), with two hops.
*   `joint`: the encoder learns from the answers alone; 45.0 % (one seed) in the same
    number of steps.
*   `easy`: the images and questions of easy-VQA, a download of 4 MB.
*   `vqa`: the model of the paper, for an accelerator and the files of VQA
    (`config.data.files`); not run. The image encoder is trained from scratch, so we
    expect less than the paper's 59.7 %.
*   `tiny`: images of 24 pixels in a minute; 1,100 steps, 39.0 % (floor, the question
    alone: 29.2 %) in 47 seconds of CPU time.

The default reaches 56.0 % on the validation split after 1,200 steps, three minutes on
one core (`--config.train_steps=1200`; one seed).
"""

from configs._variants import SMOKE_COSINE, config_maker, cosine, cosine_steps, steps
from models.visual_questions import ShowAskAttendAnswer, SpatialMemoryNetwork
from tasks.visual_questions.task import VisualQuestionAnswering
from training.configuration import defaults
from training.optimizers import adam

# Fields of both models.
_FIELDS = {"channels": (32, 64), "embedding": 64, "dropout": 0.1}
_SPATIAL = defaults(VisualQuestionAnswering, SpatialMemoryNetwork).model
_SPATIAL.update(_FIELDS | {"embedding": 128})
# Changed fields by variant.
VARIANTS = {
    "": cosine(1e-3, 6000, warmup=100, clip=5.0)
    | {f"model.{name}": value for name, value in _FIELDS.items()}
    | {
        "model.hidden": 128,
        "model.score_hidden": 64,
        "model.classifier": 128,
        "loss.objects": 1.0,  # the papers' encoders have learned from ImageNet
        "evaluation.questions": 2000,
    },
    "glimpses_1": {"model.glimpses": 1},
    "no_attention": {"model.glimpses": 0},
    "question_only": {"model.inputs": "question"},
    "image_only": {"model.inputs": "image"},
    "spatial_memory": {
        "architecture": SpatialMemoryNetwork,
        "model": _SPATIAL,
    },
    "joint": {"loss.objects": 0.0},
    "easy": {"data.source": "easy", "evaluation.questions": 10_000},
    "vqa": {
        "data.source": "files",
        "data.size": 448,  # the paper's
        "data.max_length": 23,  # of the longest question
        "data.batch_size": 128,  # the paper's, like the next fields
        "model.channels": (64, 256, 512, 2048),
        "model.embedding": 300,
        "model.hidden": 1024,
        "model.score_hidden": 512,
        "model.classifier": 1024,
        "model.dropout": 0.5,
        "optimizer": adam(
            1e-3,
            schedule="exponential_decay",
            decay_begin=0,
            decay_every=50_000,
            decay_factor=0.5,
        ),
        "evaluation.questions": 100_000,
    }
    | steps(170_000),  # 50 epochs
    "tiny": cosine_steps(1100)
    | {"data.size": 24, "model.channels": (32, 64), "model.hidden": 64},
    "smoke": SMOKE_COSINE
    | {
        "data.size": 24,
        "data.batch_size": 8,
        "model.channels": (8, 8),
        "model.embedding": 7,
        "model.hidden": 11,
        "model.score_hidden": 5,
        "model.classifier": 13,
        "evaluation.questions": 20,
    },
}
get_config = config_maker(VisualQuestionAnswering, ShowAskAttendAnswer, VARIANTS)
