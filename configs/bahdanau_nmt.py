"""English to German with RNNsearch (Bahdanau, Cho and Bengio, 2015).

    python train.py --config=configs/bahdanau_nmt.py --workdir=runs/bahdanau_nmt

Takes about 22 minutes on one CPU core and reaches 36.0 BLEU on the test split. The
paper reports 26.8 BLEU on WMT14 English to French, trained on sentences of up to 50
words.

Variants:

*   `paper`: model and optimizer of the paper, for an accelerator and a corpus of
    millions of pairs.
*   `short`: a shorter training, for the comparison of scores and alignments in
    docs/results/translation.md.
*   `reversal`: a toy task, to reverse sixteen letters.
*   `tiny`: `reversal` in a minute; 400 steps, 96 to 100 BLEU on different CPUs.

`paper` differs from the paper:

*   Batches are counted in tokens, about as many as 80 sentences have.
*   The loss is 30 times the mean over tokens instead of the sum over a sentence.
*   There is one vocabulary of subwords.
*   The last checkpoints are averaged.
"""

from configs import _translation as nmt
from configs._variants import config_maker
from models.bahdanau import Bahdanau
from tasks.translation.task import Translation
from training.optimizers import adadelta

# Changed fields by variant.
VARIANTS = {
    "": nmt.RECURRENT
    | {
        "model.embedding": 192,
        "model.hidden": 256,
        "model.maxout": 256,  # l
        "model.score_hidden": 256,  # n'
        "model.dropout": 0.2,
        "model.init_scheme": "standard",  # "paper" is appendix B.1, slow with Adam
        "model.share_embeddings": True,
    },
    "paper": {  # appendices A and B
        "model.embedding": 620,
        "model.hidden": 1000,
        "model.maxout": 500,
        "model.score_hidden": 1000,
        "model.dropout": 0.0,
        "model.init_scheme": "paper",
        "data.vocab_size": 30_000,
        "data.max_words": 50,
        "data.tokens": 4096,  # about 80 sentences, as in the paper
        # Appendix B.2; `scale` is the mean sentence length.
        "optimizer": adadelta(1.0, rho=0.95, eps=1e-6, clip=1.0, scale=30.0),
        "train_steps": 300_000,  # table 2: 288,000 updates
    }
    | nmt.PAPER,
    "short": nmt.SHORT
    | nmt.NARROW
    | {"model.maxout": 128, "model.score_hidden": 128, "model.window": 3},
    "reversal": nmt.REVERSAL,
    "tiny": nmt.TINY,
    "smoke": nmt.SMOKE | nmt.SMALL | {"model.maxout": 16, "model.score_hidden": 16},
}
get_config = config_maker(Translation, Bahdanau, VARIANTS)
