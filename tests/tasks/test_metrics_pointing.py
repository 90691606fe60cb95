"""Metrics of pointers: correct, partly correct and arbitrary answers."""

import json
import math

import numpy as np
import pytest

from tasks.pointing.data import KINDS, instances
from tasks.pointing.metrics import pointing_scores

SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])


def make(kind, sizes=(3, 11, 7, 5)):
    return instances(kind, np.random.default_rng(0), np.array(sizes), 13)


def labels(batch):
    """Indices that each true answer points at."""
    return [[k - 1 for k in target.tolist() if k] for target in batch["target"]]


@pytest.mark.parametrize("kind", KINDS)
def test_true_answers_have_the_best_scores(kind):
    batch = make(kind)
    scores = pointing_scores(kind, batch, batch["target"])
    if kind == "tsp":
        assert scores.pop("length") == scores.pop("optimum")
    for name, value in scores.items():
        best = 0 if name in ("failure", "excess") else 100
        assert value == pytest.approx(best), name


def tokens_of(answers, T=40):
    tokens = np.zeros((len(answers), T), int)
    for row, answer in zip(tokens, answers, strict=True):
        row[: len(answer)] = np.array(answer, int) + 1
    return tokens


def test_a_partly_sorted_sequence_is_wrong():
    batch = make("sorting", sizes=(3, 5, 7, 11, 2))
    truth = labels(batch)
    answers = [truth[0], truth[1][:-1], truth[2][::-1], [*truth[3], 0], truth[4]]
    assert pointing_scores("sorting", batch, tokens_of(answers)) == {"accuracy": 40}


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("direction", [1, -1])
def test_a_hull_is_the_same_from_any_corner_in_any_direction(shift, direction):
    batch = make("hull")
    answers = [np.roll(answer, shift)[::direction] for answer in labels(batch)]
    expected = {"accuracy": 100, "failure": 0, "area": pytest.approx(100)}
    assert pointing_scores("hull", batch, tokens_of(answers)) == expected


def test_hulls_fail_if_not_simple_polygons_and_may_cover_a_part():
    inputs = np.zeros((7, 5, 2), np.float32)
    inputs[:, :4] = SQUARE  # a fifth input is padding
    target = tokens_of([[0, 1, 2, 3]] * 7)
    batch = {"inputs": inputs, "lengths": np.full(7, 4), "target": target}
    answers = [[0, 1, 2, 3], [3, 1, 0], [0, 2, 1, 3], [0, 1], [], [0, 1, 2, 4]]
    answers.append([0, 1, 2, 3, 0])
    scores = pointing_scores("hull", batch, tokens_of(answers))
    expected = {"accuracy": 100 / 7, "failure": 500 / 7, "area": 75}
    assert scores == pytest.approx(expected)
    scores = pointing_scores("hull", batch, tokens_of([[2, 0, 1, 3]] * 7))
    assert scores == {"accuracy": 0, "failure": 100}


def test_triangles_count_in_any_order_and_each_once():
    batch = make("delaunay", sizes=[7] * 5)
    truth = [np.reshape(answer, (-1, 3)) for answer in labels(batch)]
    answers = [
        truth[0][::-1, [2, 0, 1]].ravel(),
        truth[1][1:].ravel(),
        [*truth[2].ravel(), 0],  # an incomplete triangle
        np.tile(truth[3][:1], (4, 1)).ravel(),
        [*truth[4].ravel(), 0, 0, 1],
    ]
    shares = [1, 1 - 1 / len(truth[1]), 1, 1 / len(truth[3]), 1]
    scores = pointing_scores("delaunay", batch, tokens_of(answers))
    assert scores == pytest.approx({"accuracy": 20, "coverage": 100 * np.mean(shares)})


def test_tours_may_be_invalid_or_longer_than_the_label():
    inputs = np.tile(SQUARE.astype(np.float32), (5, 1, 1))
    target = tokens_of([[0, 1, 2, 3]] * 5)
    batch = {"inputs": inputs, "lengths": np.full(5, 4), "target": target}
    answers = [[2, 1, 0, 3], [0, 2, 1, 3], [0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 3, 0]]
    crossed = 2 + 2 * math.sqrt(2)
    scores = pointing_scores("tsp", batch, tokens_of(answers))
    expected = {"valid": 40, "accuracy": 20, "optimum": 4, "length": (4 + crossed) / 2}
    expected["excess"] = 100 * (crossed / 4 - 1) / 2
    assert scores == pytest.approx(expected)
    scores = pointing_scores("tsp", batch, tokens_of([[]] * 5))
    assert scores == {"valid": 0, "accuracy": 0, "optimum": 4}


@pytest.mark.parametrize(("cities", "name"), [(20, "optimum"), (21, "reference")])
def test_the_labels_of_large_instances_are_named_a_reference(cities, name):
    angles = 2 * np.pi * np.arange(cities) / cities
    inputs = np.stack([np.cos(angles), np.sin(angles)], -1)[None].astype(np.float32)
    target = tokens_of([range(cities)])
    batch = {"inputs": inputs, "lengths": np.array([cities]), "target": target}
    scores = pointing_scores("tsp", batch, target)
    length = cities * 2 * math.sin(math.pi / cities)
    expected = {"valid": 100, "accuracy": 100, "length": length, "excess": 0}
    assert scores == pytest.approx(expected | {name: length}, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("T", [0, 1, 5, 29])
def test_any_tokens_have_finite_scores(kind, T):
    batch = make(kind, sizes=[3, 5, 7, 13] * 53)
    rng = np.random.default_rng(T)
    for tokens in (rng.integers(0, 14, (212, T)), rng.integers(-3, 99, (212, T))):
        scores = pointing_scores(kind, batch, tokens)
        json.dumps(scores, allow_nan=False)
        assert all(type(value) is float and value >= 0 for value in scores.values())
        lengths = {scores.pop(k, 1) for k in ("excess", "length", "optimum")}
        assert min(lengths) > 0 and max(scores.values()) <= 100
