"""Metrics of texts: sacreBLEU, length groups, word accuracy and perplexity."""

import importlib.util
import math

import numpy as np
import pytest
import sacrebleu

from base.errors import UserError
from tasks.common import text_metrics
from tasks.common.text_metrics import (
    bleu_by_length,
    bleu_interval,
    detailed_scores,
    length_groups,
    perplexity,
    require_tokenizer,
    translation_scores,
    word_accuracy,
)

REFERENCES = ["the cat sat on the mat .", "a dog, and a fox", "seven swans a-swimming"]
HYPOTHESES = ["the cat sat on a mat .", "a dog and a fox", "seven swans"]


def test_scores_equal_corpus_scores_of_sacrebleu():
    scores, signatures = translation_scores(HYPOTHESES, REFERENCES)
    assert scores == {
        "bleu": sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score,
        "chrf": sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score,
    }
    assert signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|")
    assert signatures["chrf"].startswith("nrefs:1|")
    assert translation_scores(REFERENCES, REFERENCES).scores["bleu"] > 99.9


def test_the_language_selects_the_tokenizer():
    references, hypotheses = ["一二三四五六", "七八九"], ["一二三四五", "七八九"]
    scores, signatures = translation_scores(hypotheses, references, language="zh")
    assert "|tok:zh|" in signatures["bleu"]
    words = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert scores["bleu"] > words
    for language in ("zh-Hans", "zh_TW", "cmn"):
        assert (
            translation_scores(hypotheses, references, language=language)[0] == scores
        )
    _, signatures = translation_scores(["เปิดไฟ"], ["เปิดไฟ"], language="th")
    assert "|tok:char|" in signatures["bleu"]
    _, signatures = translation_scores(hypotheses, references, language="cn")
    assert "|tok:char|" in signatures["bleu"]
    assert require_tokenizer("de") == require_tokenizer("") == "13a"


@pytest.mark.parametrize(("language", "package"), [("ja", "MeCab"), ("ko", "mecab_ko")])
def test_a_missing_tokenizer_is_reported_with_its_command(
    monkeypatch, language, package
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    command = f"pip install 'sacrebleu.{language}.'` installs them$"
    with pytest.raises(UserError, match=f"-mecab needs {package} and .*{command}"):
        require_tokenizer(language)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert require_tokenizer(f"{language}-X") == f"{language}-mecab"


def test_bleu_by_length_equals_the_bleu_of_each_group():
    sources = ["one " * n for n in (6, 3, 41)]
    groups = bleu_by_length(sources, HYPOTHESES, REFERENCES)
    assert list(groups) == ["1-5", "6-10", "over 40"]
    for name, i in {"1-5": 1, "6-10": 0, "over 40": 2}.items():
        scores, _ = translation_scores(HYPOTHESES[i : i + 1], REFERENCES[i : i + 1])
        assert groups[name] == {"sentences": 1, "bleu": scores["bleu"]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"smooth_method": "floor", "smooth_value": 0.3, "max_ngram_order": 3},
        {"smooth_method": "none", "effective_order": True},
    ],
)
def test_the_interval_holds_95_percent_of_resampled_corpora(monkeypatch, options):
    monkeypatch.setattr(text_metrics, "_SAMPLES", 101)
    bleu = sacrebleu.metrics.BLEU(**options)
    references = ["a b c", "d e", "f g h i", "j k", "a c", "f h j l m", "d f j"]
    hypotheses = ["a b", "d f", "f g h b", "j", "a c", "h f j l m", "d f j"]
    rng, scores = np.random.default_rng(0), []
    for _ in range(101):
        counts = rng.multinomial(7, [1 / 7] * 7)
        sample = [i for i in range(7) for _ in range(counts[i])]
        texts = [hypotheses[i] for i in sample], [[references[i] for i in sample]]
        scores.append(bleu.corpus_score(*texts).score)
    actual = text_metrics._interval(bleu, hypotheses, references)
    low, high = np.percentile(scores, [2.5, 97.5])
    assert actual == pytest.approx({"bleu_low": low, "bleu_high": high})
    with pytest.raises(ValueError, match="shorter"):
        text_metrics._interval(bleu, hypotheses, references[1:])


def test_new_sentences_are_those_without_a_near_duplicate():
    references, hypotheses = REFERENCES[:1] * 13, HYPOTHESES[:1] * 13
    hypotheses[5] = "x"
    texts = ["one two"] * 13, hypotheses, references
    scores = detailed_scores(*texts, near_duplicates=[5, 2])
    assert scores["new_sentences"] == 11 and scores["sentences"] == 13
    without, _ = translation_scores(HYPOTHESES[:1] * 11, REFERENCES[:1] * 11)
    whole, _ = translation_scores(hypotheses, references)
    assert scores["bleu_new"] == without["bleu"] > whole["bleu"]
    assert scores["bleu_low"] < whole["bleu"] < scores["bleu_high"]
    scores = detailed_scores(*texts, near_duplicates=range(13))  # no sentence is new
    assert not {"bleu_new", "new_sentences"} & set(scores)


def test_detailed_scores_are_those_of_the_language():
    sources = ["one two"] * 11 + ["one " * 7] * 2
    references, hypotheses = REFERENCES[:1] * 13, HYPOTHESES[:1] * 12 + ["the mat"]
    texts = sources, hypotheses, references
    scores = detailed_scores(*texts, near_duplicates=range(13), language="th")
    interval = bleu_interval(hypotheses, references, language="th")
    assert scores == {
        "sentences": 13,
        **interval,
        "word_accuracy": word_accuracy(hypotheses, references),
        "by_length": bleu_by_length(sources, hypotheses, references, language="th"),
    }
    assert interval["bleu_low"] != bleu_interval(hypotheses, references)["bleu_low"]


@pytest.mark.parametrize(("unspaced", "tokenizer"), [(2, "13a"), (3, "char")])
def test_characters_are_compared_if_most_references_have_no_spaces(unspaced, tokenizer):
    references = ["七八九十"] * unspaced + ["seven eight"] * (5 - unspaced)
    _, signatures = translation_scores(references, references, language="en")
    assert f"|tok:{tokenizer}|" in signatures["bleu"]


def test_every_length_above_zero_is_in_one_group():
    groups = length_groups(["w " * n for n in range(60)])
    assert groups == {
        "1-5": list(range(1, 6)),
        "6-10": list(range(6, 11)),
        "11-20": list(range(11, 21)),
        "21-40": list(range(21, 41)),
        "over 40": list(range(41, 60)),
    }


def test_texts_without_spaces_have_a_length():
    groups = length_groups(["一二三四五六七八九十" * n for n in (1, 2, 9)])
    assert groups == {"1-5": [0], "6-10": [1], "over 40": [2]}


def test_word_accuracy_compares_words_by_position():
    accuracy = word_accuracy(["a b c", "", "x y"], ["a c c d", "q", "x"])
    assert accuracy == pytest.approx(100 * (2 + 0 + 1) / 6)


def test_perplexity_of_equal_probabilities_is_their_number_and_is_finite():
    assert perplexity(5 * math.log(7), 5) == pytest.approx(7)
    assert perplexity(1e9, 2) == math.exp(700)
