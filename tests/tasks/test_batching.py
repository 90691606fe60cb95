"""Batches of sentence pairs: epochs, determinism, shapes, packing, evaluation."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from tasks.common.vocabulary import EOS, Segmentations
from tasks.translation.batching import TranslationBatches, choose_boxes, eval_batches


def _sentences(lengths):
    """Sentence n is n + 4, repeated, and EOS, so that its ids identify it."""
    return Segmentations([[[n + 4] * (k - 1) + [EOS]] for n, k in enumerate(lengths)])


def _corpus(count=331, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.geometric(0.15, count) + 1
    target = np.maximum(source + rng.integers(-2, 4, count), 2)
    return source, target


def _batches(pack, tokens=128, max_shapes=3, seed=7, count=331):
    source, target = map(_sentences, _corpus(count))
    return TranslationBatches(
        source, target, tokens=tokens, max_shapes=max_shapes, seed=seed, pack=pack
    )


def _sentences_in(ids):
    """Sentences of one side of a batch, in order: [(row, sentence, length)]."""
    sentences = []
    for r, row in enumerate(ids):
        sentence = []
        for i in row[row != 0].tolist():
            sentence.append(i)
            if i == EOS:
                assert len(set(sentence[:-1])) == 1
                sentences.append((r, sentence[0] - 4, len(sentence)))
                sentence = []
        assert not sentence
    return sentences


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("epoch", [0, 3])
def test_an_epoch_has_every_pair_once_and_its_sides_in_one_row(pack, epoch):
    batches, (source, target) = _batches(pack), _corpus()
    count = Counter()
    for i in range(epoch * len(batches), (epoch + 1) * len(batches)):
        sides = [_sentences_in(batches[i][name]) for name in ("source", "target")]
        assert [s[:2] for s in sides[0]] == [t[:2] for t in sides[1]]
        for (_, n, s), (_, _, t) in zip(*sides, strict=True):
            assert (s, t) == (source[n], target[n])
            count[n] += 1
    assert count == Counter(range(331))


@pytest.mark.parametrize("pack", [False, True])
def test_epochs_differ_in_order(pack):
    batches = _batches(pack)
    first, second = (
        [
            _sentences_in(batches[e * len(batches) + i]["source"])
            for i in range(len(batches))
        ]
        for e in (0, 1)
    )
    assert first != second


@pytest.mark.parametrize("pack", [False, True])
def test_shapes_are_few_and_within_the_budget(pack):
    batches = _batches(pack)
    shapes = {
        (*batch["source"].shape, batch["target"].shape[1])
        for batch in (batches[i] for i in range(len(batches)))
    }
    assert shapes == set(batches.shapes)
    assert len(shapes) <= 3
    for rows, s, t in shapes:
        assert rows % 8 == 0
        assert rows == 8 or rows * max(s, t) <= 128
    assert all(b.dtype == np.int32 for b in batches[0].values())


def test_packing_pads_less_than_boxes_and_padding_is_its_share():
    boxes, packed = _batches(False, count=2003), _batches(True, count=2003)
    assert packed.padding() < 0.06 < boxes.padding()
    source, target = _corpus(2003)
    size = sum(b.size for i in range(len(packed)) for b in packed[i].values())
    assert packed.padding() == pytest.approx(1 - (source.sum() + target.sum()) / size)


def test_boxes_are_nearly_the_best_of_all_choices():
    """Tries all choices of three boxes for a few pairs."""
    source, target = _corpus(13, seed=3)
    sides = [(s, t) for s in set(source) for t in set(target)]

    def area(boxes):
        total = 0
        for s, t in zip(source, target, strict=True):
            total += min((a + b for a, b in boxes if a >= s and b >= t), default=1e9)
        return total

    best = min(map(area, combinations(sides, 3)))
    boxes = choose_boxes(source, target, 3)
    assert len(boxes) <= 3
    assert area(boxes) <= 1.05 * best


def test_one_box_is_the_longest_pair_and_enough_boxes_pad_nothing():
    source, target = np.array([3, 3, 5, 7]), np.array([2, 2, 11, 4])
    assert choose_boxes(source, target, 1) == [(7, 11)]
    assert set(choose_boxes(source, target, 9)) == {(3, 2), (5, 11), (7, 4)}


def test_drawn_segmentations_fit_their_row():
    """Segmentations have 2, 3 or 6 ids; a row cannot hold the longest of each."""
    listed = [[[n + 4] * k + [EOS] for k in (1, 2, 5)] for n in range(97)]
    sides = [Segmentations(listed) for _ in range(2)]
    for pack in (False, True):
        batches = TranslationBatches(*sides, tokens=64, max_shapes=2, seed=1, pack=pack)
        lengths = Counter()
        for i in range(3 * len(batches)):
            source, target = (
                _sentences_in(batches[i][name]) for name in ("source", "target")
            )
            assert sorted(n for _, n, _ in target) == sorted(n for _, n, _ in source)
            lengths.update(length for *_, length in source)
        assert sum(lengths.values()) == 3 * 97
        assert lengths.keys() <= {2, 3, 6}
        assert lengths[3] > 0.1 * 97 * 3


@pytest.mark.parametrize(("batch_size", "count"), [(16, 4), (51, 2), (101, 1)])
def test_evaluation_has_every_pair_once_with_its_index(batch_size, count):
    source, target = map(_sentences, _corpus(101))
    evaluated, shapes = [], set()
    for indices, batch in eval_batches(source, target, batch_size=batch_size):
        assert batch.keys() == {"source", "target"}
        shapes.add(tuple(ids.shape for ids in batch.values()))
        for ids in batch.values():
            assert [(r, n) for r, n, _ in _sentences_in(ids)] == list(
                enumerate(indices)
            )
        evaluated += indices.tolist()
    assert sorted(evaluated) == list(range(101))
    assert len(shapes) == count
