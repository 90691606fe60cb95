"""Image captions: Show, Attend and Tell (Xu et al., 2015).

    python train.py --config=configs/captioning.py --workdir=runs/captioning

Scenes of two or three OpenMoji drawings, generated during training, with captions that
name the drawings and their positions. Takes about 19 minutes on one CPU core and
reaches 79.3 BLEU-4 (mean of five seeds). The paper's results, on photographs (MS-COCO),
are not comparable.

Variants:

*   `soft`: soft attention, the default.
*   `hard`: hard attention.
*   `none`: Show and Tell (Vinyals et al., 2015), without attention.
*   `frozen`: feature maps of a frozen EfficientNet-lite0, for images of 224 pixels.
*   `coco`: the model of the paper, for an accelerator and MS-COCO or Flickr8k files
    (`config.data.files`). It uses Adam; for Flickr8k the paper uses RMSProp and does
    not state the learning rate.
*   `tiny`: scenes of two coloured shapes, without a download; 57.3 BLEU-4 (floor,
    random names at random positions: 24.0) after 1,000 steps, which take 32 seconds of
    CPU time. It learns the positions, and not yet the names.
"""

from configs._variants import SMOKE_COSINE, config_maker, cosine, cosine_steps, steps
from models.captioner import ShowAndTell, ShowAttendTell
from tasks.captioning.task import Captioning
from training.optimizers import adam

# Fields of both captioners.
_FIELDS = {
    "cell": "lstm",
    "embedding": 128,
    "hidden": 256,
    "dropout": 0.1,
    "init_scheme": "standard",
    "encoder": "cnn",
    "channels": (64, 128),
}
# Changed fields by variant.
VARIANTS = {
    "": cosine(1e-3, 6000, warmup=200, clip=5.0)
    | {f"model.{name}": value for name, value in _FIELDS.items()}
    | {"model.score_hidden": 128},
    "soft": {},
    "hard": {"model.alignment": "hard", "loss.soft_steps": 3000},
    "none": {"architecture": ShowAndTell, "model": _FIELDS},
    "frozen": {
        "model.encoder": "maps",
        "model.channels": (256,),
        "data.size": 224,
    },
    "coco": {
        "model.encoder": "maps",  # 14 x 14 maps, which in the paper are VGG's
        "model.channels": (512,),
        "model.embedding": 512,  # the authors' code for MS-COCO, like the next three
        "model.hidden": 1800,
        "model.score_hidden": 512,
        "model.dropout": 0.5,
        "data.source": "files",
        "data.size": 224,
        "data.vocab_size": 10_000,
        "data.max_length": 100,
        "loss.coverage": 1.0,
        "data.batch_size": 64,
        "optimizer": adam(2e-4),  # the paper's for MS-COCO; rate not stated
        "evaluation.images": 5000,
        "evaluation.checkpoint": "best",  # early stopping on BLEU
    }
    | steps(100_000),
    "tiny": cosine_steps(1000)
    | {
        "data.groups": ("shapes",),  # needs no download
        "data.size": 48,
        "data.max_objects": 2,
        "data.max_length": 16,
        "optimizer.learning_rate": 0.003,
        "optimizer.warmup": 50,
        "model.channels": (32, 64),
        "model.embedding": 32,
        "model.hidden": 64,
        "model.score_hidden": 32,
        "evaluation.images": 200,
    },
    "smoke": SMOKE_COSINE
    | {
        "model.hidden": 11,
        "model.embedding": 7,
        "model.score_hidden": 5,
        "model.channels": (8, 8),
        "data.size": 24,
        "data.batch_size": 8,
        "evaluation.images": 8,
        "evaluation.batch_size": 8,
    },
}
get_config = config_maker(Captioning, ShowAttendTell, VARIANTS)
