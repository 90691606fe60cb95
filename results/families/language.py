"""LSTMN (Cheng et al. 2016) and other models on text, sentences and pairs.

The paper's numbers are perplexities on the Penn Treebank, and accuracies on the binary
Stanford Sentiment Treebank and on SNLI; those of its baselines, and of the memory
network (Sukhbaatar et al. 2015), are quoted from memory.
"""

import dataclasses

from results.schema import Claim, Run, Table

_SEEDS = (0, 1, 2)
_PAPER = "Cheng et al. 2016, section 5.1"
_MODELS = {"": "LSTMN, 1 layer", "lstm": "LSTM, 1 layer", "transformer": "Transformer"}
_PENN = {
    "": "108 (Penn Treebank, from memory)",
    "lstm": "115 (Penn Treebank, from memory)",
    "deep": "102 (Penn Treebank)",
    "memory_network": "111 (Penn Treebank, from memory)",
}


def _run(name: str, config: str, variant: str, label: str, paper: str = "–") -> Run:
    """A row of three seeds."""
    return Run(
        name=name + f"_{variant}" * bool(variant),
        config=config + f":{variant}" * bool(variant),
        seeds=_SEEDS,
        label=label,
        paper=paper,
    )


def _claim(text: str, better: str, rival: str) -> Claim:
    """A claim of section 5.1 about two runs."""
    return Claim(text=text, paper=_PAPER, better=better, than=(rival,))


def _agreement(language: str) -> tuple[Run, ...]:
    """The models of about equal size on a generated language."""
    prefix = "" if language == "agreement" else f"{language}_"
    runs = [
        _run("language", "lstmn_language", f"{prefix}{name}".strip("_"), label)
        for name, label in _MODELS.items()
    ]
    if language == "agreement":
        runs.append(_run("language", "lstmn_language", "deep", "LSTMN, 3 layers"))
    return tuple(runs)


def _distant(run: Run) -> Run:
    """The same run on ten times as many sentences, for the table of long distances."""
    return dataclasses.replace(
        run,
        name=f"{run.name}_distant",
        overrides=(*run.overrides, "evaluation.sentences=5000"),
        trained=run.name,
    )


def _metrics(size: int, max_size: int) -> dict[str, str]:
    """Metrics of a generated language, with those at a larger size."""
    groups = [2**k for k in range(1, 10) if 2**k <= max_size]
    return {
        "perplexity": "perplexity",
        "perplexity of the source": "optimum",
        "% correct": "accuracy",
        **{
            f"distance {group // 2 + 1 if group > 2 else 1} to {group}": (
                f"accuracy_{group}"
            )
            for group in groups
        },
        "% on the controller": "controller",
        f"perplexity, size {size}": f"perplexity_size_{size}",
        f"% correct, size {size}": f"accuracy_size_{size}",
    }


_TEXT = (
    *(
        _run("text", "lstmn_text", name, f"{label}, words", _PENN.get(name, "–"))
        for name, label in _MODELS.items()
    ),
    _run("text", "lstmn_text", "deep", "LSTMN, 3 layers, words", _PENN["deep"]),
    _run(
        "text",
        "lstmn_text",
        "memory_network",
        "memory network, 6 hops, words",
        _PENN["memory_network"],
    ),
    *(
        _run("text", "lstmn_text", f"pieces_{name}".strip("_"), f"{label}, subwords")
        for name, label in _MODELS.items()
    ),
)

TABLES = {
    "language_agreement": Table(
        rate="one for all rows, not searched",
        curves=False,
        metrics=_metrics(8, 32),
        digits=2,
        lower=True,
        runs=_agreement("agreement"),
        claims=(
            _claim(
                "an LSTMN has a lower perplexity than an LSTM on agreement",
                "language",
                "language_lstm",
            ),
        ),
    ),
    "language_distance": Table(
        rate="one for all rows, not searched",
        curves=False,
        metrics={
            "% correct, 17 to 32 words": "accuracy_32",
            "% correct, 33 to 64 words": "accuracy_64",
            "% correct, 17 to 32 words, size 8": "accuracy_32_size_8",
            "% correct, 33 to 64 words, size 8": "accuracy_64_size_8",
        },
        digits=2,
        runs=tuple(map(_distant, _agreement("agreement"))),
        claims=(
            _claim(
                "an LSTMN is more accurate than an LSTM at long distances",
                "language_distant",
                "language_lstm_distant",
            ),
        ),
    ),
    "language_brackets": Table(
        rate="one for all rows, not searched",
        curves=False,
        metrics=_metrics(40, 32),
        digits=2,
        lower=True,
        runs=_agreement("brackets"),
        claims=(
            _claim(
                "an LSTMN has a lower perplexity than an LSTM on nested brackets",
                "language_brackets",
                "language_brackets_lstm",
            ),
        ),
    ),
    "language_text": Table(
        rate="one for all rows, not searched",
        metrics={
            "perplexity by token": "perplexity",
            "perplexity by word": "word_perplexity",
            "% unknown": "unknown",
        },
        lower=True,
        runs=_TEXT,
        claims=(
            _claim(
                "an LSTMN has a lower perplexity than an LSTM on real text",
                "text",
                "text_lstm",
            ),
            _claim(
                "three layers of LSTMN have a lower perplexity than one",
                "text_deep",
                "text",
            ),
            Claim(
                text="a memory network has a lower perplexity than an LSTM",
                paper="Sukhbaatar et al. 2015, section 5",
                better="text_memory_network",
                than=("text_lstm",),
                rate="the better of two for the first, not searched for the rival",
            ),
        ),
    ),
    "sentences_reviews": Table(
        rate="one for all rows, not searched",
        curves=False,
        metrics={"% correct": "accuracy", "TF-IDF, logistic regression": "tfidf"},
        runs=(
            _run("reviews", "lstmn_sentences", "", "LSTMN", "86.3 % (treebank)"),
            _run("reviews", "lstmn_sentences", "lstm", "LSTM"),
            _run("reviews", "lstmn_sentences", "mean", "mean of embeddings"),
        ),
        claims=(
            Claim(
                text="an LSTMN classifies reviews better than an LSTM",
                paper="Cheng et al. 2016, section 5.2",
                better="reviews",
                than=("reviews_lstm",),
            ),
        ),
    ),
    "sentences_entailment": Table(
        rate="one for all rows, not searched",
        curves=False,
        metrics={
            "% correct": "accuracy",
            "entailment": "accuracy_entailment",
            "contradiction": "accuracy_contradiction",
            "neutral": "accuracy_neutral",
            "TF-IDF, logistic regression": "tfidf",
        },
        runs=tuple(
            _run("pairs", "lstmn_sentences", f"entailment{variant}", label, paper)
            for variant, label, paper in (
                ("", "LSTMN, deep fusion", "86.3 % (SNLI)"),
                ("_shallow", "LSTMN, shallow fusion", "–"),
                ("_none", "LSTMN, no fusion", "–"),
                ("_lstm", "LSTM, no fusion", "–"),
                ("_mean", "mean of embeddings", "–"),
            )
        ),
        claims=(
            Claim(
                text="deep fusion is better than shallow fusion",
                paper="Cheng et al. 2016, section 5.3",
                better="pairs_entailment",
                than=("pairs_entailment_shallow",),
            ),
        ),
    ),
}
