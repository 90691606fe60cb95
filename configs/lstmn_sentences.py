"""LSTMN as a classifier of sentences and pairs (Cheng et al. 2016, sections 5.2, 5.3).

    python train.py --config=configs/lstmn_sentences.py --workdir=runs/lstmn_sentences

The default classifies snippets of film reviews as positive or negative; the variants
`entailment*` have generated pairs with exact labels. For your own sentences or pairs,
set `--config.data.source=files` and `--config.data.files.train=FILE`, with lines
"LABEL<tab>TEXT", "LABEL<tab>TEXT<tab>TEXT", or JSON lines in SNLI's format.

Trains in half a minute on one core and reaches 77.8 ± 0.7 % on reviews; `entailment`
takes a minute and reaches 94.5 ± 1.1 %. The paper, with pre-trained word vectors,
reports 86.3 % on the binary Stanford Sentiment Treebank with one layer, and 86.3 % on
SNLI with deep fusion. See docs/results/language.md.

Variants:

*   `lstm`: a plain LSTM.
*   `mean`: the mean of embeddings.
*   `entailment`: pairs, with deep fusion.
*   `entailment_shallow`, `entailment_none`: shallow fusion, and none.
*   `entailment_lstm`: an LSTM without fusion.
*   `entailment_mean`: the mean of embeddings.
*   `tiny`: `entailment` in a minute; 1,500 steps, 87.2 % (floor, by quantifiers and
    negations alone: 74.9 %).
*   `smoke`: a few steps of `entailment`.
"""

from configs._variants import SMOKE, config_maker, steps
from models.sentences import SentenceClassifier
from tasks.sentences.task import SentenceClassification
from training.optimizers import adam

_LSTM = {"model.encoder": "lstm"}
_MEAN = {"model.encoder": "mean"}
_ENTAILMENT = steps(6000) | {
    "data.source": "entailment",
    "data.vocab_size": 50,  # all words
    "data.max_length": 8,
    "data.examples": 20_000,
    "data.batch_size": 64,
    "model.embedding": 32,
    "model.fusion": "deep",
    "model.dropout": 0.0,
    "optimizer.learning_rate": 2e-3,
}
_NO_FUSION = _ENTAILMENT | {"model.fusion": "none"}
# Changed fields by variant.
VARIANTS = {
    "": steps(1500)  # 6 epochs
    | {
        "model.embedding": 64,  # 300 in the paper
        "model.hidden": 64,  # 300 in the paper
        "model.score_hidden": 64,
        "model.classifier": 64,
        # The paper's learning rates: 1e-3 for SNLI, 2e-3 for sentiment.
        "optimizer": adam(1e-3, clip=5.0),
        "log_every": 50,
    },
    "lstm": _LSTM,
    "mean": _MEAN,
    "entailment": _ENTAILMENT,
    "entailment_shallow": _ENTAILMENT | {"model.fusion": "shallow"},
    "entailment_none": _NO_FUSION,
    "entailment_lstm": _NO_FUSION | _LSTM,
    "entailment_mean": _NO_FUSION | _MEAN,
    "tiny": _ENTAILMENT | steps(1500),
    "smoke": _ENTAILMENT
    | SMOKE
    | {
        "model.embedding": 5,
        "model.hidden": 7,
        "model.score_hidden": 3,
        "model.classifier": 5,
        "data.examples": 30,
        "data.batch_size": 4,
    },
}
get_config = config_maker(SentenceClassification, SentenceClassifier, VARIANTS)
