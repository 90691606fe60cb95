"""Metrics of texts against references: BLEU, chrF, word accuracy, perplexity.

BLEU (Papineni et al., 2002) and chrF (Popovic, 2015) are computed by sacreBLEU (Post,
2018) on the detokenised corpus.

Axes: N hypotheses.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

LENGTHS = (5, 10, 20, 40)  # maximum lengths of the groups, in source words
_MAX_NATS = 700.0  # exp of more than 709 overflows a float64


class CorpusScores(NamedTuple):
    """Scores of a corpus by sacreBLEU.

    Attributes:
        scores: scores in per cent, by name.
        signatures: sacreBLEU's signature of each score, which names its settings.
    """

    scores: dict[str, float]
    signatures: dict[str, str]


class Translations(NamedTuple):
    """Sources, references and hypotheses of a split, N texts of each kind."""

    sources: Sequence[str]
    references: Sequence[str]
    hypotheses: Sequence[str]


def corpus_scores(
    metrics: "Mapping[str, Metric]",
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
) -> CorpusScores:
    """Corpus scores of several sacreBLEU metrics.

    Args:
        metrics: sacreBLEU metrics by name.
        hypotheses: N texts.
        references: one or more references of each hypothesis; their number may differ.

    Returns:
        Scores in per cent and their signatures, by name.
    """
    count = max(map(len, references))
    streams: list[list[Any]] = [
        [texts[i] if i < len(texts) else None for texts in references]
        for i in range(count)
    ]
    scores = {
        name: metric.corpus_score(hypotheses, streams).score
        for name, metric in metrics.items()
    }
    # A signature exists only after a score was computed.
    signatures = {name: str(m.get_signature()) for name, m in metrics.items()}
    return CorpusScores(scores, signatures)


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, language: str = ""
) -> CorpusScores:
    """BLEU-4 and chrF of translations, as `bleu` and `chrf`.

    Args:
        hypotheses: N texts.
        references: N texts.
        language: code of the target language, which selects BLEU's tokenizer; "" for
            the default, 13a.

    Returns:
        Scores in per cent and their signatures, by name.
    """
    from sacrebleu.metrics import BLEU, CHRF

    metrics = {"bleu": BLEU(trg_lang=language), "chrf": CHRF()}
    return corpus_scores(metrics, hypotheses, [(text,) for text in references])


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    language: str = "",
) -> dict[str, dict[str, float]]:
    """BLEU-4 of translations by source length.

    Args:
        sources: N texts.
        hypotheses: N texts.
        references: N texts.
        language: see `translation_scores`.

    Returns:
        The number of `sentences` and `bleu` of each group of `length_groups`.
    """
    from sacrebleu.metrics import BLEU

    bleu = BLEU(trg_lang=language)
    return {
        name: {
            "sentences": len(group),
            "bleu": bleu.corpus_score(
                [hypotheses[i] for i in group], [[references[i] for i in group]]
            ).score,
        }
        for name, group in length_groups(sources).items()
    }


def length_groups(texts: Sequence[str]) -> dict[str, list[int]]:
    """Indices of texts, grouped by number of words.

    Args:
        texts: N texts.

    Returns:
        The non-empty groups among "1-5", "6-10", "11-20", "21-40" and "over 40", in
        this order. A text without words is in no group.
    """
    ends = [0, *LENGTHS, math.inf]
    groups = {}
    for low, high in itertools.pairwise(ends):
        group = [i for i, text in enumerate(texts) if low < len(text.split()) <= high]
        if group:
            name = f"{low + 1}-{high}" if high < math.inf else f"over {low}"
            groups[name] = group
    return groups


def word_accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Word accuracy: percentage of reference words matched at the same position.

    Args:
        hypotheses: N texts.
        references: N texts with at least one word in total.

    Returns:
        A percentage in [0, 100].
    """
    correct = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words = reference.split()
        correct += sum(map(str.__eq__, words, hypothesis.split()))
        total += len(words)
    return 100 * correct / total


def perplexity(nats: float, tokens: int) -> float:
    """Perplexity: exp of the mean negative log-likelihood per token.

    Args:
        nats: negative log-likelihood, summed over all tokens.
        tokens: number of tokens.

    Returns:
        A finite number, at most exp(700).
    """
    return math.exp(min(nats / tokens, _MAX_NATS))
