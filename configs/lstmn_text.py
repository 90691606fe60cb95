"""LSTMN as a language model of real text (Cheng et al. 2016, section 5.1).

    python train.py --config=configs/lstmn_text.py --workdir=runs/lstmn_text

The text is the State of the Union speeches, or your own text with
`--config.data.source=files` and `--config.data.files.train=FILE`. The state is carried
from batch to batch. Takes four to eight minutes on one core and reaches a perplexity of
116.4 ± 0.6 (LSTM: 106.9). The paper has one layer of width 300 and embeddings of width
150, and reports 108 on the Penn Treebank (LSTM: 115). Sukhbaatar et al. (2015) train
the memory network with SGD, without dropout, and report 111. See
docs/results/language.md.

Variants:

*   `lstm`: a plain LSTM of about the same size.
*   `transformer`: a causal Transformer of about the same size.
*   `memory_network`: an end-to-end memory network of about the same size.
*   `deep`: the LSTMN with the paper's three layers.
*   `pieces`, `pieces_lstm`, `pieces_transformer`: a vocabulary of subwords.
*   `digits`: an LSTM over the characters of spelled-out digits, to rescore beams in
    configs/las_digits.py.
*   `tiny`: characters of spelled-out digits in a minute; 300 steps, perplexity 1.80
    (floor, the frequency of characters: 12.8).
*   `smoke`, `smoke_memory_network`: a few steps.
"""

from configs._language import lstm, memory_network, transformer
from configs._variants import SMOKE, config_maker, steps
from models.lstmn import LSTMNLanguageModel
from tasks.language.text_modeling import TextModeling
from training.optimizers import adam

_LOWER_RATE = {"optimizer.learning_rate": 2e-3}  # not searched
_LSTM = lstm(embedding=64, hidden=131, dropout=0.2)
_TRANSFORMER = transformer(d_model=92, d_ff=180, memory=32, dropout=0.1) | _LOWER_RATE
# The hops and the memory are those of Sukhbaatar et al. (2015), section 5.
_MEMORY_NETWORK = memory_network(width=70, hops=6, memory=100, dropout=0.2)
_PIECES = {"data.pieces": "unigram", "data.vocab_size": 2000} | _LOWER_RATE
_SMOKE = SMOKE | {
    "data.source": "generated",
    "data.vocab_size": 100,
    "data.tokens": 5,
    "data.batch_size": 4,
}
# Changed fields by variant.
VARIANTS = {
    "": steps(2000)
    | {
        "model.embedding": 64,  # 150 in the paper
        "model.hidden": 128,  # 300 in the paper
        "model.memory": 32,  # words; the paper's tape holds all of them
        "model.score_hidden": 64,
        "model.dropout": 0.2,
        # The better of 2e-3 and 5e-3 on validation; the paper: SGD, 0.65 with decay.
        "optimizer": adam(5e-3, clip=5.0),
        "log_every": 50,
    },
    "lstm": _LSTM,
    "transformer": _TRANSFORMER,
    "memory_network": _MEMORY_NETWORK,
    "deep": {"model.layers": 3, "model.hidden": 92, "model.score_hidden": 46},
    "pieces": _PIECES,
    "pieces_lstm": _LSTM | _PIECES,
    "pieces_transformer": _TRANSFORMER | _PIECES,
    "digits": lstm(embedding=16, hidden=64, dropout=0.0)
    | {
        "data.source": "digits",
        "data.pieces": "char",
        "data.vocab_size": 100,
        "optimizer.learning_rate": 2e-3,
        "train_steps": 500,
        "eval_every": 100,
        "save_every": 100,
    },
    "tiny": {
        "data.source": "digits",
        "data.pieces": "char",
        "data.vocab_size": 100,
        "model.embedding": 16,
        "model.hidden": 64,
    }
    | steps(300),
    "smoke": {
        "model.layers": 2,
        "model.embedding": 5,
        "model.hidden": 7,
        "model.score_hidden": 3,
        "model.memory": 6,
        **_SMOKE,
    },
    "smoke_memory_network": {
        **memory_network(width=7, hops=2, memory=6, dropout=0.2),
        **_SMOKE,
    },
}
get_config = config_maker(TextModeling, LSTMNLanguageModel, VARIANTS)
