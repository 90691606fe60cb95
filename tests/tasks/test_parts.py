"""Tests that the hosts of a job together build the batch of a single host."""

import importlib

import jax
import numpy as np
import pytest
from smoke import ROOT

from base.errors import UserError
from tasks.adding import data as adding
from tasks.algorithmic import data as algorithmic
from tasks.captioning import captions
from tasks.common import policy
from tasks.common.vocabulary import Segmentations
from tasks.fewshot import data as fewshot
from tasks.images import data as images
from tasks.language import agreement_data as agreement
from tasks.language import text_data as running_text
from tasks.pointing import data as pointing
from tasks.questions.babi.encoding import Questions
from tasks.recognition import data as recognition
from tasks.regression import task as regression
from tasks.sentences import data as sentences
from tasks.speech.utterances import Mixing
from tasks.visual_questions import scenes as shapes
from training.task import create

CONFIGS = [
    pytest.param(path.stem, marks=[pytest.mark.network] * (path.stem == "captioning"))
    for path in sorted((ROOT / "configs").glob("[!_]*.py"))
    # These have the data of seq2seq_nmt.
    if path.stem not in ("bahdanau_nmt", "luong_nmt")
]
# Of four pieces: those of one host; of two, in order and interleaved; and of four.
SHARES = [[(0, 1, 2, 3)], [(0, 1), (2, 3)], [(0, 3), (1, 2)], [(0,), (1,), (2,), (3,)]]
# Functions that make the examples of a batch, and the number of those in a result.
MAKERS = {
    (adding, "sequences"): lambda batch: len(batch["target"]),
    (agreement, "draw"): lambda sentence: 1,
    (algorithmic, "_batch"): lambda batch: len(batch["inputs"]),
    (captions, "read_images"): len,
    (fewshot, "_images"): lambda episode: 1,
    (images, "corners"): len,
    (images, "_shift"): lambda image: 1,
    (pointing, "answers"): len,
    (Questions, "batch"): lambda batch: batch["answer"].size,
    (policy, "seeds"): len,
    (recognition, "_canvas"): lambda canvas: 1,
    (regression, "take"): lambda batch: len(batch["x"]),
    (running_text, "_take"): len,
    (Mixing, "spectrogram"): lambda spectrogram: 1,
    (Segmentations, "ids"): lambda sentence: 1,
    (sentences, "take"): lambda batch: len(batch["label"]),
    (shapes, "draw"): lambda scene: 1,
}


def part(source, index, pieces):
    """Returns a part of a batch, and how many examples were made for it."""
    counts = []

    def counted(function, count):
        def call(*arguments, **keywords):
            result = function(*arguments, **keywords)
            counts.append(count(result))
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for (owner, name), count in MAKERS.items():
            patch.setattr(owner, name, counted(getattr(owner, name), count))
        return source.part(index, pieces, 4), sum(counts)


def check_parts(source):
    for index in (0, 3):
        whole = source[index]
        for shares in SHARES:
            parts, counts = zip(*(part(source, index, x) for x in shares), strict=True)
            order = np.concatenate(shares)

            def check(expected, *rows, order=order):
                pieces = np.split(expected, 4)
                np.testing.assert_array_equal(
                    np.concatenate(rows), np.concatenate([pieces[i] for i in order])
                )

            jax.tree.map(check, whole, *parts)
            if len(shares) == 1:
                (whole_count,) = counts
            assert sum(counts) == whole_count  # no host makes the rows of another one
            assert len(shares) == 1 or 0 < max(counts) < whole_count


def same(batch, other):
    leaves = zip(*map(jax.tree.leaves, (batch, other)), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_parts_of_a_batch_are_the_whole_and_made_alone(name, tmp_path):
    config = importlib.import_module(f"configs.{name}").get_config("smoke")
    for field in ("batch_size", "batch_size_multiple", "points"):
        if field in config.data:
            config.data[field] = 8
    if name == "las_digits":
        config.data.update({"warp": 0.3, "speed": 0.3, "resampling": 0.3, "gain": 9.0})
        config.data.update({"time_masks": 2, "time_mask": 0.2, "frequency_masks": 1})
    first, again, other = (
        create(config, tmp_path, training=True).train_data()
        for config.seed in (3, 3, 5)
    )
    check_parts(first)
    for index in (7, 0):  # depends on the seed and the index alone
        jax.tree.map(np.testing.assert_array_equal, first[index], again[index])
        assert not same(first[index], other[index]) or name == "kernel_regression"


def test_masked_sequences_are_the_same_in_every_part():
    sizes = {"length": 47, "min_length": 23, "buckets": 3, "batch_size": 8}
    check_parts(adding.batches("multiply", "variable", **sizes, seed=3))


def test_images_that_are_shifted_at_random_are_the_same_in_every_part():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (23, 16, 16, 3), np.uint8)
    labelled = images.LabelledImages(values, np.arange(23), ("x",) * 23, augmented=True)
    source = images.batches(labelled, 16, batch_size=8, seed=5)
    check_parts(source)
    assert not (source[0]["image"] == values[source[0]["label"]]).all()


class Example:
    """An image with captions, of which one is longer than all others."""

    def __init__(self, number):
        self.captions = ("a " * (1 + number % 5 + 20 * (number == 7)),)
        self.image = np.full((4, 4, 3), number, np.uint8)


class Letters:
    def encode(self, text):
        return [5] * len(text.split()) + [2]


def test_captions_of_a_part_are_as_wide_as_those_of_the_whole():
    examples = [Example(number) for number in range(11)]
    pick = lambda rng, n: examples[rng.integers(11)]  # noqa: E731
    source = captions.batches(pick, Letters(), batch_size=8, max_length=30, seed=3)
    check_parts(source)
    widths = {source.part(i, (0,), 4)["target"].shape[1] for i in range(20)}
    assert widths == {source[i]["target"].shape[1] for i in range(20)} == {8, 24}


def test_a_batch_that_the_devices_do_not_divide_is_refused():
    source = images.batches(None, 16, batch_size=6, seed=0)
    with pytest.raises(UserError, match="^the batch size is 6: must be a multiple"):
        source.part(0, (0,), 4)
