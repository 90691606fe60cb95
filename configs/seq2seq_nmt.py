"""English to German through one fixed vector: no attention.

    python train.py --config=configs/seq2seq_nmt.py --workdir=runs/seq2seq_nmt

The default is the LSTM of Sutskever et al. (2014), sized for a CPU: 19.3 minutes on one
core, after which `eval.py` finds 7.4 BLEU on the test split.

Variants: `paper` is theirs at their size (30.6 BLEU there, WMT14 English to French) and
with their SGD; `cho` is the gated encoder-decoder of Cho et al. (2014), and `cho_paper`
that at their size and with their Adadelta. Both papers' sizes want a corpus of millions
of pairs and an accelerator. What differs from Sutskever et al.: one vocabulary of
subwords in place of 160,000 and 80,000 words (304M parameters instead of 384M); batches
by tokens, in place of 128 sentences; the loss of a sentence, which is its mean over
tokens times 30, in place of the sum; the mean of the last checkpoints; and an epoch is
a number of steps, right for WMT14 alone. From Cho et al., besides, the initialisation,
and whole sentences in place of the phrases of a translation system. `short` is the
setting of the README's comparison of alignments and scores, `reversal` the toy of
writing sixteen letters backwards; `smoke` trains for seconds on generated number words.
"""

from ml_collections import ConfigDict

from configs._optimizer import adadelta, sgd
from configs._translation import (
    NARROW,
    RECURRENT,
    REVERSAL,
    SHORT,
    SMALL,
    SMOKE,
    translation_config,
)
from configs._variants import apply, update
from models.seq2seq import Seq2Seq

_CHO = {
    "model.cell": "gru",
    "model.layers": 1,
    "model.reverse_source": False,
    "model.summary": "tanh",
    "model.feed": ("every_step", "feed_forward"),
    "model.maxout": 128,
}
_HALF_EPOCH = 47_000  # steps: 6M pairs, 128 a batch
# What each variant changes.
VARIANTS = {
    "": {},
    "paper": {  # section 3.4
        "model.embedding": 1000,
        "model.hidden": 1000,
        "model.layers": 4,
        "model.dropout": 0.0,
        "model.init_scheme": "paper",
        "model.share_embeddings": False,
        "data.vocab_size": 80_000,
        "data.made_up_names": 0.0,
        "data.tokens": 4096,  # about the 128 sentences of the paper
        # 7.5 epochs, halving the rate every half epoch after 5. The gradient is of the
        # mean over sentences of about 30 words (348M French words in 12M sentences).
        "optimizer": sgd(
            0.7,
            schedule="step_decay",
            decay_begin=10 * _HALF_EPOCH,
            decay_every=_HALF_EPOCH,
            decay_factor=0.5,
            clip=5.0,
            scale=30.0,
        ),
        "optimizer.accumulate": 1,
        "loss.smoothing": 0.0,
        "train_steps": 15 * _HALF_EPOCH,
        "eval_every": 5000,
        "save_every": 1000,
    },
    "cho": _CHO,
    "cho_paper": _CHO
    | {  # section 4.1
        "model.embedding": 100,
        "model.hidden": 1000,
        "model.maxout": 500,
        "model.dropout": 0.0,
        "model.share_embeddings": False,
        "data.vocab_size": 15_000,
        "data.made_up_names": 0.0,
        "data.tokens": 2048,  # about 64 sentences; the paper has as many phrases
        # The gradient is of the mean over sentences of about 30 words.
        "optimizer": adadelta(1.0, rho=0.95, eps=1e-6, scale=30.0),
        "optimizer.accumulate": 1,
        "loss.smoothing": 0.0,
        "train_steps": 100_000,
        "eval_every": 5000,
        "save_every": 1000,
    },
    "short": SHORT | NARROW | {"model.layers": 1},
    "reversal": REVERSAL | {"model.layers": 1, "model.reverse_source": False},
    "smoke": SMOKE | SMALL,
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    config = update(translation_config(Seq2Seq), RECURRENT)
    config.model.embedding = 192
    config.model.hidden = 256
    config.model.cell = "lstm"  # or "gru"
    config.model.layers = 2  # Sutskever et al.: 4
    config.model.reverse_source = True  # their section 3.3
    config.model.summary = "state"  # "tanh" is Cho et al.'s
    config.model.feed = ("initial_state",)  # see models.seq2seq.FEEDS
    config.model.maxout = 0  # l of Cho et al.'s readout; 0 for a linear one
    config.model.dropout = 0.2
    config.model.init_scheme = "standard"  # "paper" is U(-0.08, 0.08)
    config.model.share_embeddings = True
    return apply(config, VARIANTS, variant)
