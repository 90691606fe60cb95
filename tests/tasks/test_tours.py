"""Tours: exact by all permutations, near-optimal compared with exact."""

import itertools

import numpy as np
import pytest

from tasks.pointing.geometry import signed_area
from tasks.pointing.tours import held_karp, near_optimal, tour_length


def random_points(*shape):
    return np.random.default_rng(3).random(shape, np.float32)


def mean_length(points, tours):
    return np.mean([tour_length(x, t) for x, t in zip(points, tours, strict=True)])


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
def test_held_karp_returns_the_shortest_of_all_tours(n):
    points = random_points(11, n, 2)
    tours = held_karp(points)
    for x, tour in zip(points, tours, strict=True):
        assert sorted(tour) == list(range(n)) and tour[0] == 0
        assert signed_area(x[tour]) > 0
        orders = itertools.permutations(range(1, n))
        shortest = min(tour_length(x, [0, *order]) for order in orders)
        np.testing.assert_allclose(tour_length(x, tour), shortest, rtol=1e-6)


def test_held_karp_does_not_depend_on_its_block_sizes(monkeypatch):
    points = random_points(19, 11, 2)
    whole = held_karp(points)
    np.testing.assert_array_equal(held_karp(points[17:]), whole[17:])
    monkeypatch.setattr("tasks.pointing.tours._TABLE", 1)
    monkeypatch.setattr("tasks.pointing.tours._BLOCK", 101)
    np.testing.assert_array_equal(held_karp(points), whole)


def test_near_optimal_tours_are_valid_and_hardly_longer_than_the_shortest():
    points = random_points(61, 13, 2)
    tours = near_optimal(points, np.full(61, 13))
    assert (np.sort(tours, 1) == np.arange(13)).all() and (tours[:, 0] == 0).all()
    assert all(signed_area(x[t]) > 0 for x, t in zip(points, tours, strict=True))
    actual = mean_length(points, tours)
    shortest = mean_length(points, held_karp(points))
    assert shortest - 1e-6 <= actual < 1.002 * shortest


def test_a_near_optimal_tour_depends_on_its_cities_alone():
    points, sizes = random_points(5, 17, 2), np.array([17, 3, 13, 17, 5])
    tours = near_optimal(points, sizes)
    for i, n in enumerate(sizes):
        assert sorted(tours[i, :n]) == list(range(n)) and tours[i, 0] == 0
        points[i, n:] = i  # arbitrary padding
    for i in range(5):
        (tour,) = near_optimal(points[[i]], sizes[[i]])
        np.testing.assert_array_equal(tour, tours[i])
