"""LSTMN as a language model of sentences with agreement (Cheng et al. 2016).

    python train.py --config=configs/lstmn_language.py --workdir=runs/lstmn_language

In the generated sentences, a verb agrees with a subject many words before it; the
variants `brackets*` have nested brackets of eight types. The evaluation reports the
accuracy by distance, and how often the maximum weight is on the subject (or the opening
bracket). The LSTMN, the LSTM and the Transformer have about the same number of
parameters. Takes a minute on one core and reaches a perplexity of 4.50 ± 0.01; the
optimum, that of the generator, is 4.46. See docs/results/language.md.

Variants:

*   `lstm`: a plain LSTM.
*   `transformer`: a causal Transformer.
*   `deep`: the LSTMN with the paper's three layers.
*   `brackets`, `brackets_lstm`, `brackets_transformer`: nested brackets.
*   `tiny`: the default in a minute; 600 steps, perplexity 4.94 (floor, the frequency
    of words: 22.8).
"""

from configs._language import lstm, transformer
from configs._variants import SMOKE, config_maker, steps
from models.lstmn import LSTMNLanguageModel
from tasks.language.agreement import Agreement
from training.optimizers import adam

# As many parameters as the LSTMN, 50,000.
_LSTM = lstm(embedding=32, hidden=89, dropout=0.0)
_TRANSFORMER = transformer(d_model=40, d_ff=130, memory=64, dropout=0.0)
_BRACKETS = {"data.language": "brackets", "data.size": 20, "evaluation.sizes": (40,)}
# Changed fields by variant.
VARIANTS = {
    "": steps(3000)
    | {
        "model.embedding": 32,
        "model.hidden": 80,
        "model.memory": 64,  # longer than a training sentence
        "model.score_hidden": 40,
        "optimizer": adam(3e-3, clip=1.0),
        "log_every": 50,
    },
    "lstm": _LSTM,
    "transformer": _TRANSFORMER,
    "deep": {"model.layers": 3, "model.hidden": 33, "model.score_hidden": 33},
    "brackets": _BRACKETS,
    "brackets_lstm": _LSTM | _BRACKETS,
    "brackets_transformer": _TRANSFORMER | _BRACKETS,
    "tiny": steps(600),
    "smoke": SMOKE
    | {
        "model.embedding": 5,
        "model.hidden": 7,
        "model.score_hidden": 3,
        "model.layers": 2,
        "model.memory": 8,
        "data.size": 1,
        "data.batch_size": 4,
        "evaluation.sizes": (2,),
        "evaluation.sentences": 6,
    },
}
get_config = config_maker(Agreement, LSTMNLanguageModel, VARIANTS)
