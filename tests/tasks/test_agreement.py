"""Generated agreement and brackets, and language models of them."""

import math

import jax
import numpy as np
import pytest

from configs import lstmn_language
from tasks.common.vocabulary import EOS, PAD, UNK
from tasks.language import agreement_data as agreement
from tasks.language.agreement import Agreement
from tasks.language.agreement_data import by_distance, group
from training.task import Stacked

VERBS = {"speak": "girl king doctor uncle", "run": "dog horse cat goat"}
VERBS |= {"grow": "tree rose fern vine", "fall": "stone door cup hat"}


def sentences(language, size, count=300):
    rng = np.random.default_rng(0)
    return [agreement.draw(language, rng, size) for _ in range(count)]


def verb_of(noun):
    """The verb of a noun, by an independent rule."""
    singular = noun.removesuffix("s")
    (verb,) = (v for v, nouns in VERBS.items() if singular in nouns.split())
    return verb if noun != singular else f"{verb}s"


def test_a_verb_agrees_with_its_subject_across_attractors():
    distances = set()
    for sentence in sentences("agreement", 3):
        words, controllers = sentence.words, sentence.controllers
        subjects = []
        for i, (word, controller) in enumerate(zip(words, controllers, strict=True)):
            if word == "the" and (i == 0 or words[i - 1] == "that"):
                subjects.append(i + 1)
            if controller >= 0:
                assert controller == subjects.pop()
                assert word == verb_of(words[controller])
                distances.add(i - controller)
        assert not subjects
    assert {1, 4, 7, 10} <= distances and max(distances) > 20


def test_a_closing_bracket_has_the_type_of_the_last_open_one():
    pairs = dict("() [] {} <> /\\ «» bd pq".split())
    for sentence in sentences("brackets", 7):
        words, controllers = sentence.words, sentence.controllers
        stack = []
        for i, (word, controller) in enumerate(zip(words, controllers, strict=True)):
            if word in pairs:
                assert controller == -1
                stack.append(i)
            else:
                assert controller == stack.pop()
                assert pairs[words[controller]] == word
        assert not stack and 2 <= len(words) <= 14


def test_the_probability_of_a_sentence_is_its_frequency():
    """One pair of brackets, or two side by side or nested: exact sums."""
    drawn = sentences("brackets", 2, 4000)
    single = [x.nats for x in drawn if len(x.words) == 2]
    np.testing.assert_allclose(single, math.log(2 * 8))
    assert abs(len(single) / len(drawn) - 1 / 2) < 0.04
    double = [x.nats for x in drawn if len(x.words) == 4]
    # Two pairs, of 8 types each, side by side or nested.
    np.testing.assert_allclose(double, math.log(2 * 8 * 8 * 2))


@pytest.mark.parametrize("language", agreement.LANGUAGES)
def test_sentences_fit_and_decode_to_their_words(language):
    words = agreement.LANGUAGES[language]
    drawn = sentences(language, 2, 50)
    width = agreement.max_length(language, 2)
    batch = agreement.encode(language, drawn, width)
    for sentence, row in zip(drawn, batch["tokens"], strict=True):
        assert words.decode(row) == " ".join(sentence.words)
        assert row[len(sentence.words)] == EOS and UNK not in row
        assert (row[len(sentence.words) + 1 :] == PAD).all()
    dependent = batch["controllers"] >= 0
    assert set(batch["tokens"][dependent]) <= set(words.dependent)


def test_accuracies_by_distance_are_those_of_a_loop():
    distance = np.array([1, 2, 3, 4, 5, 8, 9, 16, 17])
    np.testing.assert_array_equal(group(distance), [2, 2, 4, 4, 8, 8, 16, 16, 32])
    correct = np.array([True, False, True, True, False, False, True, True, False])
    assert by_distance(correct, distance) == {
        "accuracy": pytest.approx(500 / 9),
        "accuracy_2": 50,
        "accuracy_4": 100,
        "accuracy_8": 0,
        "accuracy_16": 100,
        "accuracy_32": 0,
    }


def test_perfect_answers_and_attention_score_100():
    config = lstmn_language.get_config("smoke")
    config.evaluation.sizes = ()
    task = Agreement(config)
    batch, _ = agreement.held_out("agreement", "test", 1, 6)

    rows = batch["controllers"]
    perfect = np.zeros(6), batch["tokens"], [rows * 0, rows + 1]
    scores = task._score("test", 1, Stacked(perfect))
    assert scores["accuracy"] == scores["controller"] == 100
    assert scores["perplexity"] == 1 < scores["optimum"]


@pytest.mark.parametrize("variant", ["", "lstm", "transformer", "deep"])
def test_the_models_have_as_many_parameters(variant):
    task = Agreement(lstmn_language.get_config(variant))
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    count = sum(math.prod(x.shape) for x in jax.tree.leaves(state.params))
    assert abs(count - 49_500) < 1500, count
