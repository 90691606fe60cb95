"""The tasks of pointer networks: every answer equals brute force."""

import itertools
import math

import numpy as np
import pytest

from tasks.pointing import data as pointing
from tasks.pointing import tours
from tasks.pointing.data import (
    KINDS,
    MAX_EXACT_TRAINING,
    answers,
    held_out,
    instances,
    sequences,
    steps,
)


def make(kind, sizes=(3, 11, 7, 5), width=13, **options):
    rng = np.random.default_rng(0)
    return instances(kind, rng, np.array(sizes), width, **options)


def cases(batch):
    """Yields the inputs of each instance in float64 and the indices of its answer."""
    for x, n, target in zip(*(batch[name] for name in batch), strict=True):
        yield x[:n].astype(np.float64), [k - 1 for k in target.tolist() if k]


def left_of(a, b, c):
    """Positive if c is left of the line from a to b."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_padded_with_0_and_every_answer_ends_in_0(kind):
    batch = make(kind)
    features = 1 if kind == "sorting" else 2
    T = 3 * 21 + 1 if kind == "delaunay" else 14
    assert pointing.features(kind) == features
    assert batch["inputs"].shape == (4, 13, features)
    assert batch["target"].shape == (4, T) == (4, steps(kind, 13))
    assert batch["lengths"].tolist() == [3, 11, 7, 5]
    types = {"inputs": "float32", "lengths": "int32", "target": "int32"}
    assert {name: array.dtype.name for name, array in batch.items()} == types
    for x, n, target in zip(*batch.values(), strict=True):
        assert (x[:n] > 0).all() and (x[:n] < 1).all() and (x[n:] == 0).all()
        answer = target[: np.flatnonzero(target == 0)[0]]
        assert (target[len(answer) :] == 0).all()
        assert len(answer) >= 3 and answer.min() >= 1 and answer.max() <= n


def test_numbers_are_sorted():
    for numbers, answer in cases(make("sorting", sizes=(1, 11, 13, 2))):
        ascending = sorted(range(len(numbers)), key=lambda i: numbers[i, 0])
        assert answer == ascending


def test_every_point_is_left_of_the_sides_of_a_hull():
    batch = make("hull", sizes=[3, 5, 13] * 29)
    for points, answer in cases(batch):
        following = {
            i: j
            for i, j in itertools.permutations(range(len(points)), 2)
            if all(
                left_of(points[i], points[j], points[k]) > 0
                for k in set(range(len(points))) - {i, j}
            )
        }
        expected = [min(following)]
        while following[expected[-1]] != expected[0]:
            expected.append(following[expected[-1]])
        assert answer == expected


def circle(a, b, c):
    """Centre and squared radius of the circle through three points."""
    matrix = 2 * np.array([b - a, c - a])
    centre = np.linalg.solve(matrix, [b @ b - a @ a, c @ c - a @ a])
    return centre, (a - centre) @ (a - centre)


def incentre(a, b, c):
    sides = np.array([math.dist(b, c), math.dist(c, a), math.dist(a, b)])
    return tuple(sides @ np.array([a, b, c]) / sides.sum())


def test_delaunay_triangles_have_empty_circumcircles():
    for points, answer in cases(make("delaunay", sizes=[3, 5, 11] * 7)):
        empty = {}
        for triple in itertools.combinations(range(len(points)), 3):
            centre, square = circle(*points[list(triple)])
            others = np.delete(points, triple, axis=0)
            if (((others - centre) ** 2).sum(1) > square).all():
                empty[triple] = incentre(*points[list(triple)])
        expected = sorted(empty, key=empty.get)
        assert answer == [i for triple in expected for i in triple]


def test_the_bound_on_the_number_of_triangles_is_tight():
    target = make("delaunay", sizes=[5] * 211, width=5)["target"]
    assert np.count_nonzero(target, 1).max() == 3 * (2 * 5 - 5)
    assert steps("delaunay", 5) == target.shape[1] == 16


def test_tours_are_exact_up_to_a_size_and_near_optimal_beyond(monkeypatch):
    exact = [answer for _, answer in cases(make("tsp", sizes=(5, 11, 13), fast=False))]
    approximated = []

    def in_order(points, sizes):
        approximated.extend(sizes)
        return np.broadcast_to(np.arange(points.shape[1]), points.shape[:2])

    monkeypatch.setattr(tours, "near_optimal", in_order)
    mixed = [answer for _, answer in cases(make("tsp", sizes=(5, 11, 13)))]
    assert mixed[:2] == exact[:2] and mixed[2] == list(range(13))
    assert approximated == [13] and 11 <= MAX_EXACT_TRAINING < 13
    batch = held_out("tsp", "test", 17, 2)
    assert approximated == [13]
    for (_, answer), tour in zip(
        cases(batch), tours.held_karp(batch["inputs"]), strict=True
    ):
        assert answer == tour.tolist()


def batches(kind="sorting", seed=7, **options):
    fields = {"min_size": 3, "max_size": 13, "buckets": 3, "batch_size": 5} | options
    return pointing.batches(kind, **fields, seed=seed)


@pytest.mark.parametrize(
    ("max_size", "buckets"), [(13, 1), (13, 3), (13, 11), (13, 100), (5, 2)]
)
def test_sizes_are_equally_frequent_in_few_shapes(max_size, buckets):
    source = batches(max_size=max_size, buckets=buckets, batch_size=7)
    sizes = list(range(3, max_size + 1))
    lengths, lengths_by_shape = [], {}
    for i in range(800):
        batch = source[i]
        lengths.extend(batch["lengths"])
        of_shape = lengths_by_shape.setdefault(batch["inputs"].shape, set())
        of_shape.update(batch["lengths"])
    assert len(lengths_by_shape) == min(buckets, len(sizes))
    assert sorted(n for ns in lengths_by_shape.values() for n in ns) == sizes
    for (batch_size, width, _), of_shape in lengths_by_shape.items():
        assert batch_size == 7 and width == max(of_shape)
        assert 0 <= len(of_shape) - len(sizes) // len(lengths_by_shape) <= 1
    # Five standard errors of 800 independent draws, the worst case.
    share = 1 / len(sizes)
    error = math.sqrt(share * (1 - share) / 800)
    shares = [lengths.count(n) / len(lengths) for n in sizes]
    np.testing.assert_allclose(shares, share, atol=5 * error)


@pytest.mark.parametrize("kind", KINDS)
def test_smaller_held_out_sets_are_prefixes_of_larger_ones(kind):
    small, large = (held_out(kind, "test", 7, count) for count in (3, 11))
    for name, array in small.items():
        np.testing.assert_array_equal(array, large[name][:3])
    assert (large["lengths"] == 7).all() and large["inputs"].shape[1] == 7


def test_held_out_instances_differ_by_split_and_size_and_from_training():
    evaluation = [
        held_out(kind, split, size, 2)["inputs"].flat[0]
        for kind in KINDS
        for split in ("validation", "test")
        for size in (3, 5)
    ]
    trained = [batches(seed=k)[i]["inputs"].flat[0] for k, i in np.ndindex(3, 3)]
    # Also directly from generators with the keys that training may have.
    keys = itertools.product(range(4), range(2), (0, 3, 5))
    raw = [np.random.default_rng(key).random(dtype=np.float32) for key in keys]
    numbers = [*evaluation, *trained, *raw]
    assert len(set(numbers)) == len(numbers) == 16 + 9 + 24


def test_sequences_end_at_the_first_0_if_any():
    tokens = np.array([[3, 1, 0, 2], [2, 2, 5, 1], [0, 4, 4, 4]])
    actual = [sequence.tolist() for sequence in sequences(tokens)]
    assert actual == [[2, 0], [1, 1, 4, 0], []]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [7, 11, 53])
def test_training_solvers_agree_with_evaluation_solvers(kind, width):
    max_size = min(width, MAX_EXACT_TRAINING) if kind == "tsp" else width
    sizes = np.random.default_rng(0).integers(
        3, max_size + 1, 400 if width < 20 else 40
    )
    batch = make(kind, sizes, width)
    expected = answers(kind, batch["inputs"], batch["lengths"])
    np.testing.assert_array_equal(batch["target"], expected)
