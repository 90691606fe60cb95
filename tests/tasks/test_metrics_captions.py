"""Metrics of captions: several references, objects, cells and pointing."""

import numpy as np
import pytest
from photos import SCENE

from tasks.captioning.captions import CaptionedImage
from tasks.captioning.metrics import (
    caption_scores,
    pointing_share,
    scene_scores,
    split_scores,
    word_boxes,
)

RIGHT = "dog at the top and cat face on the left".split()


def weights(peaks):
    """Maps [T, 3, 3], each flat or with a peak at the given position."""
    maps = np.full((len(peaks), 3, 3), 0.1)
    for word, position in enumerate(peaks):
        if position:
            maps[word][position] = 0.9
    return maps


def test_bleu_uses_all_references():
    references = [("a b c d e", "f g h i j"), ("k l m n o",)]
    scores, signatures = caption_scores(["f g h i j", "k l m n o"], references)
    assert scores["bleu_4"] > 99.9
    assert signatures["bleu_4"].startswith("nrefs:var|")
    assert set(scores) == {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "chrf"}
    worse, _ = caption_scores(["f g h i j", "k l m n o"], references[1:] * 2)
    assert worse["bleu_1"] == pytest.approx(50)


def test_bleu_n_is_the_geometric_mean_of_precisions_up_to_n_words():
    reference = "a b c d e f g h i j k".split()
    caption = ["x" if word == "e" else word for word in reference]
    scores, signatures = caption_scores([" ".join(caption)], [[" ".join(reference)]])
    product = 1.0
    for n in (1, 2, 3, 4):
        grams, expected = (
            [words[i : i + n] for i in range(len(words) - n + 1)]
            for words in (caption, reference)
        )
        product *= sum(gram in expected for gram in grams) / len(grams)
        assert scores[f"bleu_{n}"] == pytest.approx(100 * product ** (1 / n))
        assert "|tok:none|" in signatures[f"bleu_{n}"]


def test_named_objects_count_separately_from_their_cells():
    correct = scene_scores([SCENE], [RIGHT], [None])
    assert correct == {"objects": 100, "exact": 100}
    wrong = "dog on the left and cat at the top".split()
    assert scene_scores([SCENE], [wrong], [None]) == {"objects": 50, "exact": 0}
    mixed = scene_scores([SCENE] * 3, [RIGHT, ["dog"], RIGHT], [None] * 3)
    assert mixed == pytest.approx({"objects": 200 / 3, "exact": 200 / 3})


def test_pointing_is_the_share_of_words_with_the_maximum_in_the_box():
    peaks = [(0, 1)] + [None] * 4 + [(1, 0), (1, 0)] + [None] * 3
    scores = scene_scores([SCENE], [RIGHT], [weights(peaks)])
    assert scores["pointing"] == 100
    np.testing.assert_allclose(scores["chance"], 100 / 9)
    peaks = [(1, 1)] + [None] * 4 + [None, (1, 0)] + [None] * 3
    # The word "dog" misses its box; of the words "cat face" one hits and one has flat
    # weights, whose maximum counts as the first corner: a mean of 0 and 1/2.
    scores = scene_scores([SCENE], [RIGHT], [weights(peaks)])
    assert scores["pointing"] == 25


def test_a_caption_without_named_objects_has_no_pointing():
    scores = scene_scores([SCENE], [["a", "fox"]], [weights([(0, 0), (1, 1)])])
    assert scores == {"objects": 0, "exact": 0}


def test_a_position_is_in_a_box_if_its_centre_is():
    box = np.array([0, 0.25, 0.5, 0.75])
    for rows, columns in ((3, 5), (2, 7)):
        for y, x in np.ndindex(rows, columns):
            maps = np.zeros((1, rows, columns))
            maps[0, y, x] = 1
            inside = (y + 0.5) / rows < 0.5 and 0.25 <= (x + 0.5) / columns < 0.75
            assert pointing_share(maps, box) == inside


def test_words_of_object_names_have_boxes():
    words = "dog at the top and cat face on the left and fox on the right".split()
    cat, dog = (box.tolist() for box in SCENE.boxes)
    boxes = [box if box is None else box.tolist() for box in word_boxes(SCENE, words)]
    assert boxes == [dog, *[None] * 4, cat, cat, *[None] * 8]
    image = CaptionedImage(SCENE.image, SCENE.captions)
    assert word_boxes(image, words) == [None] * len(words)


def test_images_other_than_scenes_have_metrics_of_texts_only():
    maps = weights([None] * len(RIGHT))
    texts, _ = split_scores([CaptionedImage(SCENE.image, ("Dog!",))], [["dog"]], [None])
    assert texts["chrf"] > 99.9
    scores, signatures = split_scores([SCENE], [RIGHT], [maps])
    assert scores.keys() - texts.keys() == {"objects", "exact", "pointing", "chance"}
    assert signatures.keys() == texts.keys()
