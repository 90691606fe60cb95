"""The task of speech recognition, and its figure."""

import warnings

import jax
import numpy as np
import pytest
import recordings
from details import weights_of
from translators import quick_jit

from base.errors import UserError
from configs.las_digits import get_config
from figures import canvas
from generation.search import Hypothesis
from tasks.speech.task import Details, Listening, _prediction
from tasks.speech.utterances import Characters, HeldOut
from training import configuration
from training.task import Prediction, Task, create


def config(**fields):
    result = get_config("smoke")
    result.update_from_flattened_dict(fields)
    return result


def test_the_characters_of_a_run_are_those_of_its_training_transcripts(tmp_path):
    settings = config()
    recordings.write(tmp_path / "a.wav", 1)
    (tmp_path / "list.tsv").write_text("a.wav\tñandú 7\n")
    settings.data.source = "files"
    for split in settings.data.files:
        settings.data.files[split] = str(tmp_path / "list.tsv")
    configuration.check(settings, Task)
    trained = create(settings, tmp_path, training=True)
    (tmp_path / "list.tsv").unlink()  # a prediction does not read it
    loaded = create(settings, tmp_path, training=False)
    assert loaded.data.characters.characters == " 7adnñú"
    assert loaded.model == trained.model
    (tmp_path / "assets" / "characters.txt").unlink()
    with pytest.raises(UserError, match=r"assets is damaged \(characters.txt is mis"):
        create(settings, tmp_path, training=False)


def test_the_loss_ignores_padding_and_counts_characters(task, state):
    batch = task.train_data()[0]
    wider = dict(batch, target=np.pad(batch["target"], ((0, 0), (0, 3))))
    settings = config(**{"model.dropout": 0.0, "model.sampling": 0.0})
    loss_of = quick_jit(Listening(settings, task.data).loss)
    (loss, (count, metrics)), (wider_loss, _) = (
        loss_of(state.params, x, jax.random.key(0)) for x in (batch, wider)
    )
    assert count == (batch["target"] > 0).sum() == metrics["tokens"][0]
    np.testing.assert_allclose(loss, wider_loss, rtol=1e-5)
    seconds, size = metrics["audio_seconds"]
    assert seconds / size == pytest.approx(batch["lengths"].mean() * 0.025)


@pytest.mark.parametrize("positions", [1, 13])
def test_the_figure_of_an_empty_transcript_says_so(positions, monkeypatch, tmp_path):
    saved, save = [], canvas.save
    monkeypatch.setattr(canvas, "save", lambda f, p: saved.append(f) or save(f, p))
    details = Details(np.zeros((50, 7)), np.zeros((0, positions)), 4, "")
    answer = Prediction("", 0.0, details=details)
    prediction = Listening.show(None, HeldOut(np.zeros((50, 7)), ""), answer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Listening.draw(None, prediction, "Line 3", tmp_path / "a.png")
    (figure,) = saved
    assert "Line 3: (empty)" in {x.get_text() for x in figure.texts}
    _, lower, *_ = figure.axes
    assert [x.get_text() for x in lower.texts] == ["no characters"]
    assert not len(lower.get_yticks()) and lower.get_ylim() == (0.5, -0.5)


def test_a_transcript_has_the_weights_of_its_characters_and_their_scores(task, state):
    rng, bands = np.random.default_rng(0), task.config.data.bands
    examples = [HeldOut(rng.normal(size=(n, bands)), "") for n in (50, 90)]
    answers = task.answers(state, examples, attention=True)
    assert not any(each.attention for each in task.answers(state, examples))
    for answer in answers:
        (cross,) = answer.attention
        assert len(cross.queries) > 1
        np.testing.assert_allclose(cross.weights[0], answer.details.weights, atol=1e-5)
        np.testing.assert_allclose(weights_of(cross.details), cross.weights, atol=1e-5)


def test_a_transcript_of_letters_and_marks_is_composed_and_drawn(tmp_path):
    characters = Characters("nru\u0308")  # "u" and the mark, but not both as one
    ids = characters.encode("nu\u0308r")
    hypothesis = Hypothesis(ids, -1.0, np.full((len(ids), 13), 1 / 13))
    example = HeldOut(np.zeros((50, 7)), "")
    prediction = _prediction(example, hypothesis, characters, 4)
    assert prediction.text == "n\u00fcr"
    assert Listening.draw(None, prediction, "Line 1", tmp_path / "a.png").exists()
