"""Image generation with self-attention: SAGAN (Zhang et al., 2019).

    python train.py --config=configs/sagan.py --workdir=runs/sagan

The images are OpenMoji drawings of 32 x 32 pixels, with their groups as classes. Takes
about 21 minutes on one CPU core and reaches a Frechet distance of 829.86, the mean of
five seeds (real images: 69.26). The paper's results, on ImageNet at 128 pixels, are not
comparable.

Variants:

*   `no_attention`: without attention.
*   `dcgan`: networks and loss of Radford et al. (2016), without attention.
*   `large`: 64 pixels.
*   `corners`, `corners_no_attention`: a toy task with long-range dependencies: two
    corners of an image must have the same colour. Without attention, the corners depend
    on different noise in the generator, and the discriminator's convolutions see at
    most the edges of both.
*   `imagenet128`: the model of the paper, for an accelerator and a folder of ImageNet.

There is no variant `tiny`: in a minute, the corners of an image do not agree yet. The
first 4,000 steps of `corners` (`--config.train_steps=4000`), two to three minutes on
one core, reach a quality of 35 on the validation split (mean of five seeds, 8 to 55;
floor, independent corners: 10).
"""

from configs._variants import SMOKE, config_maker, steps
from models import dcgan
from models.sagan import Discriminator, Generator
from tasks.images.task import Adversarial
from training.optimizers import adam


def _attending(*sizes: int) -> dict[str, tuple[int, ...]]:
    """Returns the fields for attention in both networks, at maps of these sizes."""
    return dict.fromkeys(("attention.generator", "attention.discriminator"), sizes)


_CORNERS = {
    "data.source": "corners",
    "model.size": 16,
    "model.initial_size": 8,
    "model.spatial_noise": True,
    "model.key_reduction": 8,
    "latent_size": 256,  # 4 per position
    # At the paper's rates the discriminator wins before the images have colours.
    "generator.learning_rate": 1e-3,
    "discriminator.learning_rate": 1e-3,
} | steps(10_000)
# Changed fields by variant.
VARIANTS = {
    "": steps(6_000)
    | {
        "discriminator_architecture": Discriminator,
        "model.size": 32,  # pixels per side
        "model.channels": 16,  # channels of the full-size maps; 64 in `imagenet128`
        "model.channel_multiplier": 8,  # maximum factor of `channels` in smaller maps
        "model.key_reduction": 2,  # 8 in the paper, for more channels
        "model.value_reduction": 2,  # the authors' code; 8 in the paper
        "model.pool": True,  # the authors' code
        # Section 4.2: two learning rates, no momentum.
        "generator": adam(1e-4, b1=0.0, b2=0.9, decay_steps=10_000),
        "discriminator": adam(4e-4, b1=0.0, b2=0.9, decay_steps=10_000),
    },
    "no_attention": _attending(),
    "dcgan": _attending()
    | {
        "architecture": dcgan.Generator,
        "discriminator_architecture": dcgan.Discriminator,
        "model.channels": 32,
        "model.spectral": False,
        "loss": "log",
        "generator.learning_rate": 2e-4,  # the paper's, like the next five
        "generator.b1": 0.5,
        "generator.b2": 0.999,
        "discriminator.learning_rate": 2e-4,
        "discriminator.b1": 0.5,
        "discriminator.b2": 0.999,
    },
    "large": {"model.size": 64} | _attending(32),
    "corners": _CORNERS
    | {"attention.generator": (16,), "attention.discriminator": (8,)},
    "corners_no_attention": _CORNERS | _attending(),
    "imagenet128": {
        "model.size": 128,
        "model.channels": 64,
        "model.channel_multiplier": 16,
        "model.key_reduction": 8,
        "data.source": "folder",
        "data.batch_size": 256,
        "evaluation.images": 50_000,
        "evaluation.size": 224,
        "average_decay": 0.9999,
    }
    | _attending(32)
    | steps(1_000_000),
    "smoke": SMOKE
    | {
        "model.size": 16,
        "model.channels": 4,
        "attention.generator": (8,),
        "attention.discriminator": (4,),
        "data.source": "corners",
        "data.batch_size": 8,
        "latent_size": 7,
        "evaluation.images": 16,
    },
}
get_config = config_maker(Adversarial, Generator, VARIANTS)
