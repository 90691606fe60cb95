"""Vocabularies: training, round trips, the n best segmentations and their draws."""

import json
import os
from collections import Counter

import numpy as np
import pytest

from base import asset_files
from base.errors import UserError
from tasks.common.vocabulary import (
    EOS,
    UNK,
    Segmentations,
    train_vocabulary,
)
from tasks.translation.corpora.generated import english_number, german_number

TEXTS = [
    words(7919 * n % 1_000_000)
    for n in range(499)
    for words in (english_number, german_number)
]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    return train_vocabulary(TEXTS, 127, path)


def test_special_ids_and_round_trip(vocabulary):
    assert vocabulary.size == 127
    for text in TEXTS[:31]:
        ids = vocabulary.encode(text)
        assert ids[-1] == EOS and min(ids[:-1]) > UNK and max(ids) < 127
        assert vocabulary.decode(ids) == text
        # Decoding stops at the first EOS and skips BOS and PAD.
        assert vocabulary.decode([1, *ids, 0, 0, *ids]) == text
        assert "".join(vocabulary.pieces(ids)[:-1]).replace("▁", " ").strip() == text
        assert vocabulary.pieces([*ids, 0])[-1] == "</s>"


def test_unseen_characters_are_unknown(vocabulary):
    assert UNK in vocabulary.encode("漢")


def test_an_existing_vocabulary_is_read_unless_its_inputs_differ(tmp_path):
    path = tmp_path / "v.model"
    train_vocabulary(TEXTS, 101, path)
    os.utime(path, (1, 1))
    train_vocabulary(TEXTS, 101, path)
    assert path.stat().st_mtime == 1
    train_vocabulary(TEXTS[2:], 101, path)
    assert path.stat().st_mtime > 1
    os.utime(path, (1, 1))
    assert train_vocabulary(TEXTS[2:], 103, path).size == 103
    assert json.loads((tmp_path / "v.model.json").read_text())["size"] == 103
    path.write_bytes(b"broken")
    assert train_vocabulary(TEXTS[2:], 103, path).size == 103


def test_the_texts_of_the_vocabulary_of_a_trained_run_may_not_change(tmp_path):
    path = tmp_path / "assets" / "v.model"
    train_vocabulary(TEXTS, 101, path)
    asset_files.seal(path.parent)
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    content = path.read_bytes()
    with pytest.raises(UserError, match="^the data are not those that .*v.model was"):
        train_vocabulary(TEXTS[2:], 101, path)
    assert path.read_bytes() == content
    path.write_bytes(b"broken")
    train_vocabulary(TEXTS, 101, path)
    assert path.read_bytes() == content
    for record in ("{", "[]", '{"texts": null}'):
        (tmp_path / "assets" / "v.model.json").write_text(record)
        train_vocabulary(TEXTS, 101, path)
        asset_files.verify(path.parent)


def test_training_twice_gives_the_same_vocabulary(tmp_path):
    for name in "ab":
        train_vocabulary(TEXTS, 101, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_few_texts_yield_a_small_vocabulary_and_none_are_refused(tmp_path):
    assert train_vocabulary(["a b", "ab"], 5003, tmp_path / "a").size < 20
    with pytest.raises(UserError, match="101 pieces cannot be trained on 0 sentences"):
        train_vocabulary([], 101, tmp_path / "c")


def test_the_first_of_the_n_best_is_the_best_and_all_decode_to_the_text(vocabulary):
    texts = TEXTS[:17]
    segmentations = vocabulary.encode_all(texts, nbest=5, alpha=0.2)
    assert len(segmentations) == 17
    assert segmentations.first[-1] > 17
    for n, text in enumerate(texts):
        first, end = segmentations.first[n : n + 2]
        n_best = [segmentations.ids(k) for k in range(first, end)]
        assert n_best[0].tolist() == vocabulary.encode(text)
        assert len({tuple(ids) for ids in n_best}) == len(n_best) <= 5
        assert {vocabulary.decode(ids.tolist()) for ids in n_best} == {text}
        assert segmentations.best_lengths()[n] == len(n_best[0])
    single = vocabulary.encode_all(texts)
    assert single.lengths.tolist() == segmentations.best_lengths().tolist()


def test_n_best_are_drawn_in_proportion_to_their_probability_to_alpha(vocabulary):
    """Kudo (2018), section 3.3, computed from the model's scores of the pieces."""
    alpha, text = 0.3, TEXTS[2]
    segmentations = vocabulary.encode_all([text, text], nbest=4, alpha=alpha)
    assert segmentations.first[1] == 4
    score = vocabulary._model.get_score
    log_p = [
        sum(score(int(i)) for i in segmentations.ids(k)[:-1])
        for k in range(segmentations.first[1])
    ]
    expected = np.exp(alpha * np.array(log_p))
    expected /= expected.sum()
    rng = np.random.default_rng(0)
    drawn = Counter(segmentations.draw(np.zeros(20_000, int), rng).tolist())
    for k, p in enumerate(expected):
        # Five standard deviations of a share of 20,000 draws.
        assert abs(drawn[k] / 20_000 - p) < 5 * np.sqrt(p * (1 - p) / 20_000)
    assert segmentations.mean_lengths()[1] == pytest.approx(
        expected @ segmentations.lengths[: segmentations.first[1]]
    )


def test_draws_depend_on_the_generator_alone_and_are_of_their_sentence():
    listed = [[[n, EOS]] * (1 + n % 3) for n in range(4, 41)]
    weights = [np.arange(len(candidates)) + 0.5 for candidates in listed]
    segmentations = Segmentations(listed, weights)
    sentences = np.arange(len(segmentations)).repeat(11)
    first, second = (
        segmentations.draw(sentences, np.random.default_rng(5)) for _ in range(2)
    )
    assert (first == second).all()
    assert [segmentations.ids(k)[0] - 4 for k in first] == sentences.tolist()


def test_an_empty_sentence_is_encoded_as_eos(vocabulary):
    segmentations = vocabulary.encode_all(["", TEXTS[0]], nbest=3, alpha=0.1)
    assert segmentations.ids(0).tolist() == vocabulary.encode("") == [EOS]
    assert segmentations.first[1] == 1
