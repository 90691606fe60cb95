"""Image captions: Show, Attend and Tell (Xu et al., 2015).

    python train.py --config=configs/captioning.py --workdir=runs/captioning

Scenes of two or three OpenMoji drawings, generated during training, with captions that
name the drawings and their positions. Takes 19 minutes on one CPU core and reaches
79.3 BLEU-4 (mean of five seeds). The paper's results, on photographs (MS-COCO), are not
comparable.

Variants:

*   `soft`: soft attention, the default.
*   `hard`: hard attention.
*   `none`: Show and Tell (Vinyals et al., 2015), without attention.
*   `frozen`: feature maps of a frozen EfficientNet-lite0, for images of 224 pixels.
*   `coco`: the model of the paper, for an accelerator and MS-COCO or Flickr8k files
    (`config.data.files`). It uses Adam; for Flickr8k the paper uses RMSProp, at a rate
    that it does not state.
*   `smoke`: a few steps.
"""

from ml_collections import ConfigDict

from configs._optimizer import adam
from configs._variants import apply, steps
from models.captioner import ShowAndTell, ShowAttendTell
from tasks.captioning.task import Captioning

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
    "": {},
    "soft": {},
    "hard": {"model.alignment": "hard", "loss.soft_steps": 3000},
    "none": {"architecture": ShowAndTell, "model": ConfigDict(_FIELDS)},
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
    "smoke": {
        "model.hidden": 11,
        "model.embedding": 7,
        "model.score_hidden": 5,
        "model.channels": (8, 8),
        "data.size": 24,
        "data.batch_size": 8,
        "evaluation.images": 8,
        "evaluation.batch_size": 8,
        "train_steps": 6,
        "eval_every": 3,
        "save_every": 2,
        "log_every": 2,
    },
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; "" is the default."""
    config = ConfigDict()
    config.task = Captioning
    config.architecture = ShowAttendTell

    config.model = ConfigDict(_FIELDS)
    config.model.score = "additive"  # any key of attention.scores
    config.model.alignment = "global"  # any key of attention.alignments
    config.model.score_hidden = 128
    config.model.max_length = 196  # positions; for the location score
    config.model.window = 10  # D of local alignments
    config.model.temperature = 1.0  # for the Gumbel alignment
    config.model.selector = True  # section 4.2.1
    config.model.soft_prob = 0.5  # for hard alignment, section 4.1

    config.loss = ConfigDict()
    # lambda of eq. 14; 1 in the authors' code. Here a drawing covers a ninth of the
    # map; with 1, attention spreads over the whole map and no names are learned.
    config.loss.coverage = 0.0
    # lambda_r of eq. 12 and lambda_e, per caption. The authors' code amounts to 0.5 and
    # 0.13: it divides the reward by the number of words, and neither term by the batch
    # size.
    config.loss.reward = 0.1
    config.loss.entropy = 0.002
    # With 0, hard attention learns no names in 6,000 steps.
    config.loss.soft_steps = 0

    config.optimizer = adam(
        1e-3, schedule="warmup_cosine", warmup=200, decay_steps=6000, clip=5.0
    )

    config.data = ConfigDict()
    config.data.source = "scenes"  # or "files"
    config.data.damaged = "refuse"  # or "leave_out": damaged files
    config.data.groups = ("animal-", "food-", "person-role")  # of OpenMoji
    config.data.size = 72  # pixels per side
    config.data.min_objects = 2  # drawings per scene
    config.data.max_objects = 3
    config.data.references = 4  # captions per image
    config.data.scenes = 4000  # training scenes, if the encoder reads maps
    config.data.vocab_size = 1000  # maximum number of words
    config.data.max_length = 48  # words, including EOS
    config.data.batch_size = 32  # images per batch
    config.data.files = ConfigDict(
        {
            split: {"captions": "", "images": ""}
            for split in ("train", "validation", "test")
        }
    )

    config.evaluation = ConfigDict()
    config.evaluation.images = 500
    config.evaluation.batch_size = 100
    config.evaluation.beam = 3
    config.evaluation.alpha = 0.0
    config.evaluation.checkpoint = "last"
    config.evaluation.average = 1

    config.seed = 0
    config.update(steps(6000))
    config.log_every = 100
    config.checkpoints = ConfigDict({"keep": 1})
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1})
    config.parallel = "jit"  # or "pmap"
    config.non_finite = "stop"  # or "skip": leave out updates that are not finite
    return apply(config, VARIANTS, variant)
