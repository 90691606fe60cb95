"""LSTMN (Cheng et al. 2016) and other models on text, sentences and pairs.

The paper's numbers are perplexities on the Penn Treebank, and accuracies on the binary
Stanford Sentiment Treebank and on SNLI; those of its baselines, and of the memory
network (Sukhbaatar et al. 2015), are quoted from memory.
"""

import dataclasses

from results.schema import Run, Table, claims, fields, runs

_AGREEMENT = runs("""
language lstmn_language | LSTMN, 1 layer | –
language_lstm lstmn_language:lstm | LSTM, 1 layer | –
language_transformer lstmn_language:transformer | Transformer | – | 3
language_deep lstmn_language:deep | LSTMN, 3 layers | – | 3
""")


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


TABLES = {
    "language_agreement": Table(
        rate="one for all rows, not searched",
        metrics=_metrics(8, 32),
        digits=2,
        lower=True,
        runs=_AGREEMENT,
        claims=claims("""
        language > language_lstm
            | an LSTMN has a lower perplexity than an LSTM on agreement
            | Cheng et al. 2016, section 5.1
        """),
    ),
    "language_distance": Table(
        rate="one for all rows, not searched",
        metrics=fields("""
        % correct, 17 to 32 words: accuracy_32 | % correct, 33 to 64 words: accuracy_64
        % correct, 17 to 32 words, size 8: accuracy_32_size_8
        % correct, 33 to 64 words, size 8: accuracy_64_size_8
        """),
        digits=2,
        runs=tuple(map(_distant, _AGREEMENT)),
        claims=claims("""
        language_distant > language_lstm_distant
            | an LSTMN is more accurate than an LSTM at long distances
            | Cheng et al. 2016, section 5.1
        """),
    ),
    "language_brackets": Table(
        rate="one for all rows, not searched",
        metrics=_metrics(40, 32),
        digits=2,
        lower=True,
        runs=runs("""
        language_brackets lstmn_language:brackets | LSTMN, 1 layer | –
        language_brackets_lstm lstmn_language:brackets_lstm | LSTM, 1 layer | –
        language_brackets_transformer lstmn_language:brackets_transformer
            | Transformer | – | 3
        """),
        claims=claims("""
        language_brackets > language_brackets_lstm
            | an LSTMN has a lower perplexity than an LSTM on nested brackets
            | Cheng et al. 2016, section 5.1
        """),
    ),
    "language_text": Table(
        rate="the better of two on validation",
        curves=True,
        metrics=fields("""
        perplexity by token: perplexity | perplexity by word: word_perplexity
        % unknown: unknown
        """),
        lower=True,
        runs=runs("""
        text lstmn_text | LSTMN, 1 layer, words | 108 (Penn Treebank, from memory)
        text_lstm lstmn_text:lstm
            | LSTM, 1 layer, words | 115 (Penn Treebank, from memory)
        text_transformer lstmn_text:transformer | Transformer, words | – | 3
        text_deep lstmn_text:deep | LSTMN, 3 layers, words | 102 (Penn Treebank)
        text_memory_network lstmn_text:memory_network
            | memory network, 6 hops, words | 111 (Penn Treebank, from memory)
        text_pieces lstmn_text:pieces | LSTMN, 1 layer, subwords | – | 3
        text_pieces_lstm lstmn_text:pieces_lstm | LSTM, 1 layer, subwords | – | 3
        text_pieces_transformer lstmn_text:pieces_transformer
            | Transformer, subwords | – | 3
        """),
        claims=claims("""
        text > text_lstm
            | an LSTMN has a lower perplexity than an LSTM on real text
            | Cheng et al. 2016, section 5.1
        text_deep > text
            | three layers of LSTMN have a lower perplexity than one
            | Cheng et al. 2016, section 5.1
        text_memory_network > text_lstm
            | a memory network has a lower perplexity than an LSTM
            | Sukhbaatar et al. 2015, section 5
        """),
    ),
    "sentences_reviews": Table(
        rate="one for all rows, not searched",
        metrics=fields("% correct: accuracy | TF-IDF, logistic regression: tfidf"),
        runs=runs("""
        reviews lstmn_sentences | LSTMN | 86.3 % (treebank)
        reviews_lstm lstmn_sentences:lstm | LSTM | –
        reviews_mean lstmn_sentences:mean | mean of embeddings | – | 3
        """),
        claims=claims("""
        reviews > reviews_lstm
            | an LSTMN classifies reviews better than an LSTM
            | Cheng et al. 2016, section 5.2
        """),
    ),
    "sentences_entailment": Table(
        rate="one for all rows, not searched",
        metrics=fields("""
        % correct: accuracy | entailment: accuracy_entailment
        contradiction: accuracy_contradiction | neutral: accuracy_neutral
        TF-IDF, logistic regression: tfidf
        """),
        runs=runs("""
        pairs_entailment lstmn_sentences:entailment | LSTMN, deep fusion | 86.3 % (SNLI)
        pairs_entailment_shallow lstmn_sentences:entailment_shallow
            | LSTMN, shallow fusion | –
        pairs_entailment_none lstmn_sentences:entailment_none | LSTMN, no fusion | – | 3
        pairs_entailment_lstm lstmn_sentences:entailment_lstm | LSTM, no fusion | – | 3
        pairs_entailment_mean lstmn_sentences:entailment_mean
            | mean of embeddings | – | 3
        """),
        claims=claims("""
        pairs_entailment > pairs_entailment_shallow
            | deep fusion is better than shallow fusion | Cheng et al. 2016, section 5.3
        """),
    ),
}
