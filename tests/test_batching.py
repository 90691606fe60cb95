import sys
from collections import Counter

import numpy as np
import pytest

from data.batching import Batches, choose_boxes, eval_batches
from data.vocabulary import EOS, Segmentations


def _sentences(lengths):
    """Sentence n is n + 4, repeated, and EOS: a batch tells which sentence it holds."""
    return Segmentations([[[n + 4] * (k - 1) + [EOS]] for n, k in enumerate(lengths)])


def _corpus(count=331, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.geometric(0.15, count) + 1
    target = np.maximum(source + rng.integers(-2, 4, count), 2)
    return source, target


def _batches(pack, tokens=128, max_shapes=3, seed=7, count=331):
    source, target = map(_sentences, _corpus(count))
    return Batches(
        source, target, tokens=tokens, max_shapes=max_shapes, seed=seed, pack=pack
    )


def _held(ids):
    """Sentences of a batch side in reading order: [(row, number, length)]."""
    found = []
    for r, row in enumerate(ids):
        sentence = []
        for i in row[row != 0].tolist():
            sentence.append(i)
            if i == EOS:
                assert len(set(sentence[:-1])) == 1
                found.append((r, sentence[0] - 4, len(sentence)))
                sentence = []
        assert not sentence
    return found


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("epoch", [0, 3])
def test_every_pair_exactly_once_an_epoch_and_side_by_side(pack, epoch):
    batches, (source, target) = _batches(pack), _corpus()
    seen = Counter()
    for i in range(epoch * len(batches), (epoch + 1) * len(batches)):
        sides = [_held(batches[i][name]) for name in ("source", "target")]
        assert [s[:2] for s in sides[0]] == [t[:2] for t in sides[1]]
        for (_, n, s), (_, _, t) in zip(*sides, strict=True):
            assert (s, t) == (source[n], target[n])
            seen[n] += 1
    assert seen == Counter(range(331))


@pytest.mark.parametrize("pack", [False, True])
def test_an_element_depends_on_seed_and_index_alone(pack):
    one, two, other = _batches(pack), _batches(pack), _batches(pack, seed=8)
    order = [2 * len(one) + 1, 0, len(one) + 3, 1]
    forward = {i: one[i] for i in sorted(order)}
    for i in order:
        for name in ("source", "target"):
            np.testing.assert_array_equal(two[i][name], forward[i][name])
    assert any(
        not np.array_equal(one[i]["source"], other[i]["source"])
        for i in range(len(one))
    )
    with pytest.raises(IndexError):
        one[-1]


@pytest.mark.parametrize("pack", [False, True])
def test_epochs_differ_in_order(pack):
    batches = _batches(pack)
    first, second = (
        [_held(batches[e * len(batches) + i]["source"]) for i in range(len(batches))]
        for e in (0, 1)
    )
    assert first != second


@pytest.mark.parametrize("pack", [False, True])
def test_shapes_are_few_and_within_the_budget(pack):
    batches = _batches(pack)
    seen = {
        (*batch["source"].shape, batch["target"].shape[1])
        for batch in (batches[i] for i in range(len(batches)))
    }
    assert seen == set(batches.shapes)
    assert len(seen) <= 3
    for rows, s, t in seen:
        assert rows % 8 == 0
        assert rows == 8 or rows * max(s, t) <= 128
    assert all(b.dtype == np.int32 for b in batches[0].values())


def test_packing_pads_less_than_boxes_and_padding_counts_it():
    boxes, packed = _batches(False, count=2003), _batches(True, count=2003)
    assert packed.padding() < 0.06 < boxes.padding()
    source, target = _corpus(2003)
    size = sum(b.size for i in range(len(packed)) for b in packed[i].values())
    assert packed.padding() == pytest.approx(1 - (source.sum() + target.sum()) / size)


def test_boxes_are_the_best_there_are():
    """Against every choice of three boxes; few pairs, so that all can be tried."""
    from itertools import combinations

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
    """Best "a EOS"; the others are longer, and a row cannot hold all of them."""
    listed = [[[n + 4] * k + [EOS] for k in (1, 2, 5)] for n in range(97)]
    sides = [Segmentations(listed) for _ in range(2)]
    for pack in (False, True):
        batches = Batches(*sides, tokens=64, max_shapes=2, seed=1, pack=pack)
        lengths = Counter()
        for i in range(3 * len(batches)):
            held = _held(batches[i]["source"])
            assert sorted(n for _, n, _ in _held(batches[i]["target"])) == sorted(
                n for _, n, _ in held
            )
            lengths.update(length for *_, length in held)
        assert sum(lengths.values()) == 3 * 97
        assert lengths.keys() <= {2, 3, 6}
        assert lengths[3] > 0.1 * 97 * 3


def test_sides_must_have_as_many_sentences():
    with pytest.raises(ValueError, match="2 sources for 3 targets"):
        Batches(
            _sentences([3, 4]), _sentences([3, 4, 5]), tokens=64, max_shapes=1, seed=0
        )


def test_evaluation_holds_every_sentence_once_with_its_index():
    source, target = map(_sentences, _corpus(101))
    seen, shapes = [], set()
    for indices, batch in eval_batches(source, target, rows=16):
        assert batch.keys() == {"source", "target"}
        shapes.add(tuple(ids.shape for ids in batch.values()))
        for ids in batch.values():
            assert [(r, n) for r, n, _ in _held(ids)] == list(enumerate(indices))
        seen += indices.tolist()
    assert sorted(seen) == list(range(101))
    assert len(shapes) <= 4


def _calls(function):
    """Number of calls, of Python and of C functions, while a function runs."""
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in calls)


@pytest.mark.parametrize("count", [503, 5003])
def test_a_batch_costs_a_few_calls_for_each_of_its_sentences(count):
    batches = _batches(True, tokens=2048, count=count)
    batches[0]  # the plan of the epoch is made once
    for index in range(len(batches)):
        sentences = len(_held(batches[index]["source"]))
        assert _calls(lambda index=index: batches[index]) < 20 * sentences
