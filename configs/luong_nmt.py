r"""English to German with the models of Luong, Pham and Manning (2015).

    python train.py --config=configs/luong_nmt.py --workdir=runs/luong_nmt

The default has global attention, the general score and input feeding. It takes about
26 minutes on one CPU core and reaches 32.7 BLEU on the test split. The paper, on WMT14
English to German, reports 17.3 BLEU with the general score and global attention, and
19.0 with local-p. Fields select other scores and alignments:

    python train.py --config=configs/luong_nmt.py --workdir=runs/local \
        --config.model.score=dot --config.model.alignment=local_m

For local-p, `--config.optimizer.learning_rate=0.003` is better: its position predictor
saturates at higher rates.

Variants:

*   `paper`: model and SGD of the paper, for an accelerator and a corpus of millions of
    pairs.
*   `short`: a shorter training, for the comparison of scores and alignments in
    docs/results/translation.md.
*   `britz`: the small baseline of configs/sweeps/britz.py (Britz et al., 2017).
*   `reversal`: a toy task, to reverse sixteen letters.
*   `tiny`: `reversal` in a minute; 400 steps, 99.9 BLEU (floor, the nearest training
    pair: 12.2).

`paper` differs from the paper:

*   Batches are counted in tokens, about as many as 128 sentences have.
*   The loss is 25 times the mean over tokens instead of the sum over a sentence.
*   There is one vocabulary of subwords.
*   The last checkpoints are averaged.
*   An epoch is a fixed number of steps, computed for WMT14.
"""

from configs import _translation as nmt
from configs._variants import config_maker
from models.luong import Luong
from tasks.translation.task import Translation
from training.optimizers import sgd

_EPOCH = 35_000  # steps: 4.5M pairs, batch size 128
# Changed fields by variant.
VARIANTS = {
    "": nmt.RECURRENT
    | {
        "model.embedding": 192,
        "model.hidden": 256,
        "model.layers": 2,  # 4 in the paper
        "model.reverse_source": False,  # True in the paper
        # For additive and multiplicative scores and the predicted position of local-p.
        "model.score_hidden": 256,
        "model.init_scheme": "standard",  # "paper" is U(-0.1, 0.1)
        "model.share_embeddings": True,
        "optimizer.learning_rate": 0.006,  # the best on validation of 0.003 to 0.01
    },
    "paper": {  # section 4
        "model.embedding": 1000,
        "model.hidden": 1000,
        "model.layers": 4,
        "model.score_hidden": 1000,
        "model.reverse_source": True,
        "model.init_scheme": "paper",
        "data.vocab_size": 50_000,
        "data.max_words": 50,
        "data.tokens": 4096,  # about 128 sentences, as in the paper
        # With dropout: 12 epochs, with the rate halved after 8. `scale` is the mean
        # sentence length, 110M German words in 4.5M sentences.
        "optimizer": sgd(
            1.0,
            schedule="step_decay",
            decay_begin=8 * _EPOCH,
            decay_every=_EPOCH,
            decay_factor=0.5,
            clip=5.0,
            scale=25.0,
        ),
        "train_steps": 12 * _EPOCH,
    }
    | nmt.PAPER,
    "short": nmt.SHORT
    | nmt.NARROW
    | {"model.layers": 1, "model.score_hidden": 128, "model.window": 3},
    "britz": nmt.BRITZ
    | {
        "model.decoder_layers": 1,  # 2 in the paper
        "model.bidirectional": True,
        # The paper's is multiplicative, which is no better than a copy of the source
        # after so few steps.
        "model.score": "additive",
        "model.score_hidden": 128,  # 512 in the paper, like the other widths
    },
    "reversal": nmt.REVERSAL | {"model.layers": 1},
    "tiny": nmt.TINY | {"model.layers": 1},
    "smoke": nmt.SMOKE | nmt.SMALL | {"model.score_hidden": 16},
}
get_config = config_maker(Translation, Luong, VARIANTS)
