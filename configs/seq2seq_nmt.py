"""English to German with an encoder-decoder without attention.

    python train.py --config=configs/seq2seq_nmt.py --workdir=runs/seq2seq_nmt

A small version of the LSTM of Sutskever et al. (2014). Takes about 23 minutes on one
CPU core and reaches 8.7 BLEU on the test split. The paper reports 30.6 BLEU on WMT14
English to French.

Variants:

*   `paper`: model and SGD of Sutskever et al., for an accelerator and a corpus of
    millions of pairs.
*   `cho`: a small version of the gated encoder-decoder of Cho et al. (2014).
*   `cho_paper`: model and Adadelta of Cho et al., for an accelerator and a corpus of
    millions of pairs.
*   `short`: a shorter training, for the comparison of scores and alignments in
    docs/results/translation.md.
*   `britz`: the rows without attention in docs/results/exploration.md.
*   `reversal`: a toy task, to reverse sixteen letters.
*   `tiny`: five letters in a minute; 1,000 steps, 100 BLEU (floor, the nearest training
    pair: 32.3). With sixteen letters, 400 steps reach 4.1 BLEU (floor: 12.2).

`paper` differs from Sutskever et al.:

*   There is one vocabulary of subwords instead of 160,000 and 80,000 words (304M
    parameters instead of 384M).
*   Batches are counted in tokens, about as many as 128 sentences have.
*   The loss is 30 times the mean over tokens instead of the sum over a sentence.
*   The last checkpoints are averaged.
*   An epoch is a fixed number of steps, computed for WMT14.

`cho_paper` also differs from Cho et al. in the initialisation, and is trained on
sentences instead of the phrases of a translation system.
"""

from configs import _translation as nmt
from configs._variants import config_maker
from models.seq2seq import Seq2Seq
from tasks.translation.task import Translation
from training.optimizers import adadelta, sgd

_RATE = {"optimizer.learning_rate": 0.003}  # of variants that have not been searched
_CHO = {
    "model.cell": "gru",
    "model.layers": 1,
    "model.reverse_source": False,
    "model.summary": "tanh",
    "model.first_state": "layer",
    "model.fed_steps": "all",
    "model.maxout": 128,
}
_HALF_EPOCH = 47_000  # steps: 6M pairs, batch size 128
# Changed fields by variant.
VARIANTS = {
    "": nmt.RECURRENT
    | {
        "model.embedding": 192,
        "model.hidden": 256,
        "model.layers": 2,  # 4 in Sutskever et al.
        "model.dropout": 0.2,
        "model.init_scheme": "standard",  # "paper" is U(-0.08, 0.08)
        "model.share_embeddings": True,
        "optimizer.learning_rate": 0.006,  # better on validation than 0.003
    },
    "paper": {  # section 3.4
        "model.embedding": 1000,
        "model.hidden": 1000,
        "model.layers": 4,
        "model.dropout": 0.0,
        "model.init_scheme": "paper",
        "data.vocab_size": 80_000,
        "data.tokens": 4096,  # about 128 sentences, as in the paper
        # 7.5 epochs, with the rate halved every half epoch after 5. `scale` is the mean
        # sentence length, 348M French words in 12M sentences.
        "optimizer": sgd(
            0.7,
            schedule="step_decay",
            decay_begin=10 * _HALF_EPOCH,
            decay_every=_HALF_EPOCH,
            decay_factor=0.5,
            clip=5.0,
            scale=30.0,
        ),
        "train_steps": 15 * _HALF_EPOCH,
    }
    | nmt.PAPER,
    "cho": _CHO | _RATE,
    "cho_paper": _CHO
    | {  # section 4.1
        "model.embedding": 100,
        "model.hidden": 1000,
        "model.maxout": 500,
        "model.dropout": 0.0,
        "data.vocab_size": 15_000,
        "data.tokens": 2048,  # about 64 sentences; the paper has 64 phrases
        # `scale` is the mean sentence length.
        "optimizer": adadelta(1.0, rho=0.95, eps=1e-6, scale=30.0),
        "train_steps": 100_000,
    }
    | nmt.PAPER,
    "short": nmt.SHORT | nmt.NARROW | {"model.layers": 1},
    "britz": nmt.BRITZ | {"model.reverse_source": False},
    "reversal": nmt.REVERSAL
    | _RATE
    | {"model.layers": 1, "model.reverse_source": False},
    "tiny": nmt.TINY
    | _RATE
    | {
        "model.layers": 1,
        "model.reverse_source": False,
        # A vector does not hold sixteen letters after so few steps.
        "data.min_words": 5,
        "data.max_words": 5,
        "data.max_length": 6,
        "optimizer.decay_steps": 1000,
        "train_steps": 1000,
        "eval_every": 500,
    },
    "smoke": nmt.SMOKE | nmt.SMALL | _RATE,
}
get_config = config_maker(Translation, Seq2Seq, VARIANTS)
