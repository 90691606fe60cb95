"""Fields shared by the translation configs."""

from ml_collections import ConfigDict

from configs._optimizer import adam
from tasks.translation.task import Translation

# Seconds of training on generated number words, for any model.
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
# Changed fields of recurrent models.
RECURRENT = {
    "data.pack": False,  # recurrent models take one sentence per row
    "data.max_length": 128,
    "data.max_shapes": 6,
    "optimizer.clip": 1.0,
}
# Sizes of the smoke run, for any recurrent model.
SMALL = {
    "model.embedding": 16,
    "model.hidden": 24,
    "model.dropout": 0.1,
}
# The comparison of scores and alignments: sentences of at most 12 words.
SHORT = {
    "data.max_words": 12,
    "data.vocab_size": 2000,
    "data.max_length": 64,
}
# Sizes and training in that comparison, for any recurrent model.
NARROW = {
    "model.embedding": 128,
    "model.hidden": 128,
    "data.max_shapes": 5,
    "optimizer.learning_rate": 0.01,  # the best on validation of 0.003, 0.006, 0.01
    # Until every model with attention is better than a copy of the source.
    "optimizer.decay_steps": 2400,
    "train_steps": 2400,
    "eval_every": 1200,
}
# The baseline of Britz et al. (2017) at these sizes, but for the attention.
BRITZ = (
    SHORT
    | NARROW
    | {
        "model.cell": "gru",
        "model.layers": 1,  # 2 in the paper
        "evaluation.beam": 10,
        "optimizer.decay_steps": 1200,
        "train_steps": 1200,
        "eval_every": 600,
    }
)
# Reversal of sixteen random letters.
REVERSAL = {
    "data.corpus": "reversal",
    "data.min_words": 16,
    "data.max_words": 16,
    "data.vocab_size": 45,  # each letter with and without a space before it
    "data.max_length": 17,  # sixteen letters and EOS
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
    """Returns the default config, with an empty group `model`."""
    config = ConfigDict()
    config.task = Translation
    config.architecture = architecture
    config.model = ConfigDict()

    config.optimizer = adam(
        0.003,  # peak; a factor of eq. 3 for "noam"
        b2=0.98,  # Vaswani et al., section 5.3, like `eps`
        eps=1e-9,
        schedule="warmup_cosine",  # or "noam", Vaswani et al., eq. 3
        warmup=300,
        decay_steps=3500,  # where "warmup_cosine" reaches 0
    )
    config.optimizer.accumulate = 1  # micro-batches per step

    config.data = ConfigDict()
    # Or "libreoffice", "numbers", "reversal", "files", "tfds:...".
    config.data.corpus = "homeassistant"
    config.data.extra_corpora = ()  # more training corpora
    config.data.files = ConfigDict({"train": "", "validation": "", "test": ""})
    config.data.split_seed = 0  # chooses the held-out components
    config.data.source_language = "en"
    config.data.target_language = "de"
    config.data.min_words = 3  # of the source, in evaluation
    config.data.max_words = 40
    config.data.train_min_words = 1  # user-interface labels teach vocabulary
    # Fraction of the pairs of homeassistant and libreoffice; teaches copying of names.
    config.data.made_up_names = 0.4
    config.data.vocab_size = 4000
    config.data.segmentations = 1  # to sample from; 1 for no subword regularisation
    config.data.sampling_alpha = 0.2  # Kudo (2018), section 3.3; 0 is uniform
    config.data.max_length = 256  # subwords; longer training pairs are dropped
    config.data.tokens = 1024  # per batch: rows x longer side
    config.data.pack = True  # several sentences per row: little padding
    config.data.max_shapes = 3  # batch shapes; each costs a compilation
    config.data.batch_size_multiple = 8  # a multiple of devices x accumulate

    config.loss = ConfigDict()
    config.loss.smoothing = 0.1  # Vaswani et al., section 5.4
    config.loss.reward = 0.1  # weight of REINFORCE; with 1.0, short runs learn less
    config.loss.entropy = 0.0  # weight of the entropy of hard alignments

    config.evaluation = ConfigDict()
    config.evaluation.beam = 4  # Vaswani et al., section 6.1
    config.evaluation.alpha = 1.0  # 0.6 in the paper, for longer sentences
    config.evaluation.max_extra_length = 50  # section 6.1; subwords beyond the source
    config.evaluation.batch_size = 64  # sentences per batch
    config.evaluation.checkpoint = "average"  # or "best", "last"
    config.evaluation.average = 5
    config.evaluation.figures = 2  # number of sentences

    config.seed = 0
    config.train_steps = 3500  # at most optimizer.decay_steps
    config.eval_every = 700
    config.save_every = 100  # the last five are averaged
    config.log_every = 50
    config.checkpoints = ConfigDict({"keep": 5})
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1})
    config.parallel = "jit"  # or "pmap"
    config.non_finite = "stop"  # or "skip": leave out updates that are not finite
    return config
