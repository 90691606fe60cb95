"""What the translation configs share: data, optimizer, loss, evaluation, schedule."""

from ml_collections import ConfigDict

from configs._optimizer import adam
from tasks.translation import Translation

# A run of seconds on generated number words, for any model.
SMOKE = {
    "data.corpus": "numbers",
    "data.min_words": 1,
    "data.vocab_size": 120,
    "data.max_length": 64,
    "data.tokens": 256,
    "data.max_shapes": 2,
    "optimizer.warmup": 20,
    "optimizer.decay_steps": 30,
    "evaluation.max_extra_length": 30,
    "evaluation.figures": 1,
    "train_steps": 30,
    "eval_every": 15,
    "save_every": 10,
    "log_every": 10,
}
# What recurrent models change of `translation_config`.
RECURRENT = {
    "data.pack": False,  # a state belongs to one sentence
    "data.max_length": 128,
    "data.max_shapes": 6,
    "optimizer.clip": 1.0,
}
# Small enough for the smoke run, of any recurrent model.
SMALL = {
    "model.embedding": 16,
    "model.hidden": 24,
    "model.dropout": 0.1,
}
# The setting of the comparison of alignments and scores: at most 12 words, of which a
# scored pair has at least 3.
SHORT = {
    "data.max_words": 12,
    "data.vocab_size": 2000,
    "data.max_length": 64,
    "optimizer.decay_steps": 1200,
    "train_steps": 1200,
    "eval_every": 600,
}
# Its small widths, of any recurrent model.
NARROW = {
    "model.embedding": 128,
    "model.hidden": 128,
    "data.max_shapes": 5,
}
# Sixteen random letters, to be written backwards.
REVERSAL = {
    "data.corpus": "reversal",
    "data.min_words": 16,
    "data.max_words": 16,
    "data.vocab_size": 45,  # each letter, and each with the space before it
    "data.max_length": 17,  # and the end
    "data.made_up_names": 0.0,
    "data.max_shapes": 1,
    "evaluation.max_extra_length": 1,
    "model.embedding": 64,
    "model.hidden": 128,
    "model.dropout": 0.0,
    "optimizer.decay_steps": 1000,
    "train_steps": 1000,
    "eval_every": 250,
}


def translation_config(architecture: type) -> ConfigDict:
    """Returns a config that lacks nothing but `model`."""
    config = ConfigDict()
    config.task = Translation
    config.architecture = architecture
    config.model = ConfigDict()

    config.optimizer = adam(
        0.003,  # the highest; for noam, a factor of eq. 3
        b2=0.98,  # Vaswani et al., section 5.3, like eps
        eps=1e-9,
        schedule="warmup_cosine",  # "noam" is Vaswani et al., eq. 3
        warmup=300,
        decay_steps=3500,  # of warmup_cosine: where it reaches 0
    )
    config.optimizer.accumulate = 1  # micro-batches a step

    config.data = ConfigDict()
    # Or "libreoffice", "numbers", "reversal", "files", "tfds:...".
    config.data.corpus = "homeassistant"
    config.data.extra_corpora = ()  # corpora that add to training
    config.data.files = ConfigDict({"train": "", "validation": "", "test": ""})
    config.data.split_seed = 0  # of the components that are held out
    config.data.source_language = "en"
    config.data.target_language = "de"
    config.data.min_words = 3  # English words of a scored pair
    config.data.max_words = 40
    config.data.train_min_words = 1  # labels of one or two words teach vocabulary
    config.data.made_up_names = 0.4  # teaches to copy the names of what is new
    config.data.vocab_size = 4000
    config.data.segmentations = 1  # best ones to draw from; 1: no regularisation
    config.data.sampling_alpha = 0.2  # Kudo (2018), section 3.3: smaller is more even
    config.data.max_length = 256  # pieces; longer training pairs are left out
    config.data.tokens = 1024  # rows x longer side, a batch
    config.data.pack = True  # several sentences a row: three shapes, little padding
    config.data.max_shapes = 3  # each costs a compilation
    config.data.batch_size_multiple = 8  # the devices times accumulate must divide it

    config.loss = ConfigDict()
    config.loss.smoothing = 0.1  # Vaswani et al., section 5.4
    config.loss.reward = 0.1  # weight of REINFORCE; 1.0 learns slower in few steps
    config.loss.entropy = 0.0  # of hard alignments: weight of their entropy

    config.evaluation = ConfigDict()
    config.evaluation.beam = 4  # Vaswani et al., section 6.1, like extra
    config.evaluation.alpha = 1.0  # their 0.6 suits longer sentences
    config.evaluation.max_extra_length = (
        50  # pieces that a translation may be longer by
    )
    config.evaluation.batch_size = 64  # sentences decoded at a time
    config.evaluation.checkpoint = "average"  # or "best", "last"
    config.evaluation.average = 5
    config.evaluation.figures = 2  # sentences

    config.seed = 0
    config.train_steps = 3500  # more of them need more optimizer.decay_steps
    config.eval_every = 700
    config.save_every = 100  # seconds of work; the last five are averaged
    config.log_every = 50
    config.checkpoints = ConfigDict({"keep": 5})
    config.mesh = ConfigDict({"data": -1, "fsdp": 1})
    config.parallel = "jit"  # or "pmap"
    return config
