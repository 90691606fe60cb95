"""Fields shared by the translation configs."""

from training.optimizers import adam

# Fields of every translator.
FIELDS = {
    "optimizer": adam(
        0.003,  # peak; a factor of eq. 3 for "noam"
        b2=0.98,  # Vaswani et al., section 5.3, like `eps`
        eps=1e-9,
        schedule="warmup_cosine",  # or "noam", Vaswani et al., eq. 3
        warmup=300,
        decay_steps=3500,  # where "warmup_cosine" reaches 0
    ),
    "optimizer.accumulate": 1,  # micro-batches per step
    "evaluation.checkpoint": "average",  # or "best", "last"
    "evaluation.average": 5,
    "checkpoints.keep": 5,
    "train_steps": 3500,  # at most optimizer.decay_steps
    "eval_every": 700,
    "save_every": 100,  # the last five are averaged
    "log_every": 50,
}
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
# Fields of every recurrent translator.
RECURRENT = FIELDS | {
    "data.pack": False,  # recurrent models take one sentence per row
    "data.max_length": 128,
    "data.max_shapes": 6,
    "optimizer.clip": 1.0,
}
# Changed fields of the papers, for any recurrent model; they follow the optimizer.
PAPER = {
    "model.share_embeddings": False,
    "data.made_up_names": 0.0,
    "optimizer.accumulate": 1,
    "loss.smoothing": 0.0,
    "eval_every": 5000,
    "save_every": 1000,
}
# Sizes of the smoke run, for any recurrent model.
SMALL = {
    "data.max_shapes": 1,
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
LETTERS = {
    "data.corpus": "reversal",
    "data.min_words": 16,
    "data.max_words": 16,
    "data.vocab_size": 45,  # each letter with and without a space before it
    "data.max_length": 17,  # sixteen letters and EOS
    "data.made_up_names": 0.0,
    "data.max_shapes": 1,
    "evaluation.max_extra_length": 1,
}
# Sizes and training in that task, for any recurrent model.
REVERSAL = LETTERS | {
    "model.embedding": 64,
    "model.hidden": 128,
    "model.dropout": 0.0,
    "optimizer.decay_steps": 1000,
    "train_steps": 1000,
    "eval_every": 250,
}
# Steps of a minute of training in that task, for any model.
MINUTE = {
    "optimizer.decay_steps": 400,
    "train_steps": 400,
    "eval_every": 200,
}
TINY = REVERSAL | MINUTE
