"""English to German with the models of Luong, Pham and Manning (2015).

    python train.py --config=configs/luong_nmt.py --workdir=runs/luong_nmt

The default is global attention with the general score and input feeding, sized for a
CPU: 21.4 minutes on one core, after which `eval.py` finds 29.5 BLEU on the test split.
By field, any score and any alignment, as in

    python train.py --config=configs/luong_nmt.py --workdir=runs/local \
        --config.model.score=dot --config.model.alignment=local_p

Variants: `paper` is the paper's model (17.3 BLEU there with the general score and
global, 19.0 with local-p alignment, WMT14 English to German) with the paper's SGD, for
a corpus of millions of pairs and an accelerator. What differs from the paper: batches
by tokens, in place of 128 sentences; the loss of a sentence, which is its mean over
tokens times 25, in place of the sum; one vocabulary of subwords; the mean of the last
checkpoints; and an epoch is a number of steps, right for WMT14 alone. `short` is the
setting of the README's comparison of alignments and scores, `reversal` the toy of
writing sixteen letters backwards; `smoke` trains for seconds on generated number words.
"""

from ml_collections import ConfigDict

from configs._optimizer import sgd
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
from models.luong import Luong

_EPOCH = 35_000  # steps: 4.5M pairs, 128 a batch
# What each variant changes.
VARIANTS = {
    "": {},
    "paper": {  # section 4
        "model.embedding": 1000,
        "model.hidden": 1000,
        "model.layers": 4,
        "model.score_hidden": 1000,
        "model.reverse_source": True,
        "model.init_scheme": "paper",
        "model.share_embeddings": False,
        "data.vocab_size": 50_000,
        "data.made_up_names": 0.0,
        "data.max_words": 50,
        "data.tokens": 4096,  # about the 128 sentences of the paper
        # With dropout 12 epochs, halving the rate after 8. The gradient is of the mean
        # over sentences of about 25 words (110M German words in 4.5M sentences).
        "optimizer": sgd(
            1.0,
            schedule="step_decay",
            decay_begin=8 * _EPOCH,
            decay_every=_EPOCH,
            decay_factor=0.5,
            clip=5.0,
            scale=25.0,
        ),
        "optimizer.accumulate": 1,
        "loss.smoothing": 0.0,
        "train_steps": 12 * _EPOCH,
        "eval_every": 5000,
        "save_every": 1000,
    },
    "short": SHORT
    | NARROW
    | {"model.layers": 1, "model.score_hidden": 128, "model.window": 3},
    "reversal": REVERSAL | {"model.layers": 1},
    "smoke": SMOKE | SMALL | {"model.score_hidden": 16},
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    config = update(translation_config(Luong), RECURRENT)
    config.model.embedding = 192
    config.model.hidden = 256
    config.model.cell = "lstm"  # or "gru"
    config.model.layers = 2  # the paper: 4
    config.model.bidirectional = False
    config.model.reverse_source = False  # the paper reverses it
    config.model.input_feeding = True  # section 3.3
    config.model.score = "general"  # any key of attention.scores
    config.model.alignment = "global"  # any key of attention.alignments
    config.model.score_hidden = 256  # of "concat" and of local-p's position
    config.model.max_length = 128  # of the location score
    config.model.window = 10  # D of the local alignments; section 4
    config.model.temperature = 1.0  # of the Gumbel alignment
    config.model.dropout = 0.2  # section 4
    config.model.init_scheme = "standard"  # "paper" is U(-0.1, 0.1)
    config.model.share_embeddings = True
    return apply(config, VARIANTS, variant)
