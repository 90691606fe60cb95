"""Listen, Attend and Spell (Chan et al. 2016) on strings of spoken digits.

    python train.py --config=configs/las_digits.py --workdir=runs/las_digits

Two to seven digits, spelled out. The splits have different voices. Three runs of 20
minutes on one core had 13.1 ± 2.6 % wrong digits on the test voice, the spread over
seeds, not over voices: `--config.data.test_voice=1` holds out another one. The paper
reports a word error rate of 14.1 % on voice search. See docs/results/speech.md.

Variants:

*   `content`: the paper's score, which does not depend on the previous weights.
*   `smoke`: a few steps with telephone tones.
"""

from ml_collections import ConfigDict

from configs._optimizer import adam
from configs._variants import apply
from models.listener import ListenAttendSpell
from tasks.speech.task import Listening

VARIANTS = {
    "": {},
    "content": {"model.score": "multiplicative"},
    "smoke": {
        "data.source": "tones",
        "data.max_words": 3,
        "data.bands": 7,
        "data.resampling": 0.1,
        "data.equalizer": 3.0,
        "data.time_masks": 1,
        "data.frequency_masks": 1,
        "data.frequency_mask": 2,
        "data.batch_size": 8,
        "model.embedding": 5,
        "model.hidden": 11,
        "model.listener": 7,
        "model.listener_layers": 2,
        "model.halvings": 1,
        "model.score_hidden": 13,
        "evaluation.utterances": 6,
        "evaluation.words": (4,),
        "evaluation.batch_size": 4,
        "evaluation.beam": 2,
        "train_steps": 6,
        "eval_every": 3,
        "save_every": 2,
        "log_every": 2,
    },
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; "" is the default."""
    config = ConfigDict()
    config.task = Listening
    config.architecture = ListenAttendSpell

    config.model = ConfigDict()
    config.model.cell = "lstm"  # the paper's
    config.model.embedding = 32
    config.model.hidden = 128  # of the speller; 512 in the paper
    config.model.dropout = 0.2  # none in the paper, which has 2,000 hours
    config.model.init_scheme = "standard"  # or "paper"
    config.model.listener = 64  # per direction; 256 in the paper
    config.model.listener_layers = 3  # 4 in the paper
    config.model.halvings = 2  # 3 in the paper, whose frames are 10 ms apart, not 25
    config.model.layers = 1  # of the speller; 2 in the paper
    config.model.sampling = 0.1  # the paper's
    config.model.score = "location_aware"  # "multiplicative" in the paper
    config.model.alignment = "global"
    config.model.score_hidden = 64
    config.model.max_length = 256  # for the location score
    config.model.window = 10  # half-width, for local alignments
    config.model.temperature = 1.0  # of the Gumbel alignment
    config.model.filters = 10  # Chorowski et al. (2015)
    config.model.filter_width = 7  # positions of 100 ms

    config.loss = ConfigDict({"smoothing": 0.1})

    config.optimizer = adam(
        0.002,
        schedule="warmup_cosine",
        warmup=100,
        decay_steps=3000,
        clip=1.0,
    )

    config.data = ConfigDict()
    config.data.source = "digits"  # or "tones", "espeak", "files"
    config.data.damaged = "refuse"  # or "leave_out": damaged files
    config.data.files = ConfigDict({"train": "", "validation": "", "test": ""})
    config.data.test_voice = 0  # of the four that can be held out, 0 to 3
    config.data.min_words = 2
    config.data.max_words = 7
    config.data.bands = 40  # the paper's
    config.data.cepstra = 13  # in the package; up to 128 for espeak and files
    config.data.rate = 8000  # Hz; that of the digits
    config.data.normalisation = "mean"  # of each band, or "mean_variance"
    config.data.pause = 0.3  # seconds
    config.data.min_snr = 10.0  # dB, of the loudest frame to the noise
    config.data.max_snr = 40.0
    config.data.one_voice = False  # True: one voice speaks a whole training string
    # Augmentation in training; 0 for none.
    config.data.warp = 0.1  # maximum change of the mel axis (vocal tract length)
    config.data.speed = 0.2  # maximum change
    config.data.resampling = 0.0  # maximum change of speed and frequencies together
    config.data.equalizer = 0.0  # dB, standard deviation of a smooth filter
    config.data.gain = 6.0  # dB, range of the loudness of a digit
    config.data.time_masks = 0  # SpecAugment (Park et al. 2019)
    config.data.time_mask = 0.1  # seconds
    config.data.frequency_masks = 0
    config.data.frequency_mask = 6  # bands
    config.data.batch_size = 32

    config.evaluation = ConfigDict()
    config.evaluation.utterances = 300
    config.evaluation.words = (10, 15)  # longer than in training
    config.evaluation.batch_size = 50
    config.evaluation.beam = 8  # 32 in the paper
    config.evaluation.alpha = 1.0  # with offset = 0, divides by the length (the paper)
    config.evaluation.offset = 0.0
    config.evaluation.language_model = ""  # a run of lstmn_text:digits, or none
    config.evaluation.language_model_weight = 0.008  # lambda of the paper
    config.evaluation.checkpoint = "best"
    config.evaluation.average = 1

    config.seed = 0
    config.train_steps = 3000
    config.eval_every = 500
    config.save_every = 500
    config.log_every = 50
    config.checkpoints = ConfigDict({"keep": 1})
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1})
    config.parallel = "jit"  # or "pmap"
    config.non_finite = "stop"  # or "skip": leave out updates that are not finite
    return apply(config, VARIANTS, variant)
