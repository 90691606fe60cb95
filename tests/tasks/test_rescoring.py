"""Rescoring of a beam with a character language model."""

import functools

import jax
import numpy as np
import pytest
from smoke import run

from base.errors import UserError
from configs.lstmn_text import get_config as text_config
from generation.search import Hypothesis
from tasks.common.vocabulary import EOS
from tasks.speech.rescoring import (
    CharacterLanguageModel,
    Rescoring,
    TranscriptOptions,
    configured,
)
from training import loop, trained

CHARACTERS = " efghinorstuvwxz"


class Lengths:
    """A language model in which each character has the probability 1 / e."""

    def log_probs(self, texts):
        return -np.array([len(x) for x in texts], float)


def decode(ids):
    return "abc"[: len(ids) - 1]


@pytest.mark.parametrize(("weight", "winner"), [(0.0, 3), (0.09, 3), (0.11, 1)])
def test_the_language_model_changes_the_winner_if_its_weight_is_large(weight, winner):
    # Per token, log p is higher for the long text: -0.5, and -0.7 for the short one.
    long, short = Hypothesis([5, 6, 7, EOS], -0.5), Hypothesis([5, EOS], -0.7)
    (ranked,) = Rescoring(Lengths(), weight).rank([[long, short]], decode)
    assert len(ranked[0].ids) - 1 == winner
    assert [x.score for x in ranked] == sorted((x.score for x in ranked), reverse=True)
    scores = {len(x.ids) - 1: x.score for x in ranked}
    assert scores == pytest.approx({3: -0.5 - 3 * weight, 1: -0.7 - weight})


def test_each_input_keeps_its_hypotheses():
    groups = [[Hypothesis([5, EOS], -1.0)], [], [Hypothesis([5, 6, EOS], -2.0)] * 2]
    ranked = Rescoring(Lengths(), 1.0).rank(groups, decode)
    assert [[x.score for x in group] for group in ranked] == [[-2.0], [], [-4.0, -4.0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with a language model of the characters of digits."""
    config = text_config("digits")
    fields = {"model.embedding": 5, "model.hidden": 7, "data.tokens": 11}
    config.update_from_flattened_dict(fields | {"train_steps": 2})
    workdir = tmp_path_factory.mktemp("runs") / "characters"
    assert loop.train(config, workdir) == 0
    return workdir


@pytest.fixture(scope="module")
def model(folder):
    return CharacterLanguageModel(str(folder), CHARACTERS, batch_size=3)


def test_log_probabilities_are_those_of_reading_character_by_character(folder, model):
    loaded = trained.load(folder)
    variables, model_of = {"params": loaded.state.params}, loaded.task.model
    read = jax.jit(functools.partial(model_of.apply, train=False))
    # Of different padded widths; filler rows; a text twice; spaces that do not count.
    texts = ["one", "", "two six", "seven " * 5, "one", "one ", "zero"]
    actual = model.log_probs(texts)
    for text, value in zip(texts, actual, strict=True):
        carry, previous, expected = model_of.start(1), EOS, 0.0
        for token in loaded.task.texts.vocabulary.encode(text):
            logits, carry = read(variables, np.array([[previous]]), carry)
            logits = np.asarray(logits[0, 0], np.float64)
            expected += logits[token] - np.log(np.exp(logits).sum())
            previous = token
        assert value == pytest.approx(expected, rel=1e-5)
    assert actual[0] == actual[4] == actual[5]


def test_a_folder_that_is_no_language_model_of_characters_is_one_line(folder, tmp_path):
    def refused(path, characters=CHARACTERS):
        with pytest.raises(UserError) as error:
            CharacterLanguageModel(str(path), characters, batch_size=3)
        line = str(error.value)
        assert line.startswith(f"config.evaluation.language_model is '{path}': ")
        assert "\n" not in line
        return line

    accepted = "must be the folder of a run of TextModeling with config.data.pieces=ch"
    assert accepted in refused("nowhere")
    assert f"{tmp_path} has no run" in refused(tmp_path)
    assert "not of Listening" in refused(run("las_digits"))
    assert "not word" in refused(run("lstmn_text"))
    line = refused(folder, "one, ñ")
    assert line.endswith(": lacks the characters ',', 'ñ' of the transcripts")


def test_a_recogniser_ranks_its_beam_with_the_language_model(folder):
    workdir, beam = run("las_digits"), ["evaluation.beam=3"]
    plain = trained.load(workdir, overrides=beam)
    examples = plain.task.data.held_out("test")
    given = beam + [f"evaluation.language_model={folder}"]
    for weight in (0.0, 100.0):
        fields = [*given, f"evaluation.language_model_weight={weight}"]
        changed = trained.load(workdir, overrides=fields)
        before, after = (x.evaluate("test") for x in (plain, changed))
        texts = [[a.text for a in x.answers["test"]] for x in (before, after)]
        assert (texts[0] == texts[1]) == (weight == 0)
        settings = {"language_model_weight": weight}
        if weight == 0:
            assert after.scores == before.scores | settings
        assert after.scores.items() >= settings.items()
    # The best of the whole beam, although one hypothesis is returned.
    log_probs = changed.task.rescoring.language_model.log_probs
    options = TranscriptOptions(n_best=3)
    beam_of = plain.task.answers(plain.state, examples, options)
    for best, b in zip(beam_of, after.answers["test"], strict=True):
        every = [best, *best.others]
        scores = [x.score + 100 * log_probs([x.text])[0] for x in every]
        assert b.text == every[int(np.argmax(scores))].text
        assert b.score == pytest.approx(max(scores), rel=1e-5)


def test_the_flags_of_predict_choose_the_language_model(folder):
    task = trained.load(run("las_digits")).task
    evaluation = task.config.evaluation

    def chosen(**flags):
        options = TranscriptOptions(**flags)
        return options.rescoring(task.rescoring, evaluation, CHARACTERS)

    assert task.rescoring is None is configured(evaluation, CHARACTERS) is chosen()
    assert chosen(language_model=str(folder)).weight == 0.008
    both = chosen(language_model=str(folder), language_model_weight=0.5)
    assert both.weight == 0.5
    with pytest.raises(UserError, match="^language_model_weight is 0.5: must be left"):
        chosen(language_model_weight=0.5)
    with pytest.raises(UserError, match="^language_model is 'nowhere': must be the"):
        chosen(language_model="nowhere")
