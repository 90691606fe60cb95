"""The tasks of pointer networks: every answer against brute force, every score."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from data import pointing
from data.pointing import (
    EXACT,
    KINDS,
    Batches,
    answers,
    held_karp,
    held_out,
    instances,
    is_simple,
    near_optimal,
    score,
    sequences,
    signed_area,
    steps,
    tour_length,
)
from errors import UserError

SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])


def drawn(*shape):
    return np.random.default_rng(3).random(shape, np.float32)


def make(kind, sizes=(3, 11, 7, 5), width=13, **options):
    rng = np.random.default_rng(0)
    return instances(kind, rng, np.array(sizes), width, **options)


def cases(batch):
    """Of each instance its inputs in float64 and the indices of its answer."""
    for x, n, target in zip(*(batch[name] for name in batch), strict=True):
        yield x[:n].astype(np.float64), [k - 1 for k in target.tolist() if k]


def mean_length(points, tours):
    return np.mean([tour_length(x, t) for x, t in zip(points, tours, strict=True)])


def left_of(a, b, c):
    """Above 0 where c lies left of the line from a to b."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_padded_with_0_and_every_answer_ends(kind):
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


def test_a_hull_has_every_point_on_its_left():
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


def test_delaunay_triangles_are_those_with_an_empty_circle():
    for points, answer in cases(make("delaunay", sizes=[3, 5, 11] * 7)):
        empty = {}
        for triple in itertools.combinations(range(len(points)), 3):
            centre, square = circle(*points[list(triple)])
            others = np.delete(points, triple, axis=0)
            if (((others - centre) ** 2).sum(1) > square).all():
                empty[triple] = incentre(*points[list(triple)])
        expected = sorted(empty, key=empty.get)
        assert answer == [i for triple in expected for i in triple]


def test_the_bound_on_the_triangles_is_reached_and_never_exceeded():
    target = make("delaunay", sizes=[5] * 211, width=5)["target"]
    assert np.count_nonzero(target, 1).max() == 3 * (2 * 5 - 5)
    assert steps("delaunay", 5) == target.shape[1] == 16


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
def test_held_karp_finds_the_shortest_of_all_tours(n):
    points = drawn(11, n, 2)
    tours = held_karp(points)
    for x, tour in zip(points, tours, strict=True):
        assert sorted(tour) == list(range(n)) and tour[0] == 0
        assert signed_area(x[tour]) > 0
        others = itertools.permutations(range(1, n))
        shortest = min(tour_length(x, [0, *order]) for order in others)
        np.testing.assert_allclose(tour_length(x, tour), shortest, rtol=1e-6)


def test_held_karp_is_the_same_in_parts(monkeypatch):
    points = drawn(19, 11, 2)
    whole = held_karp(points)
    np.testing.assert_array_equal(held_karp(points[17:]), whole[17:])
    monkeypatch.setattr(pointing, "_TABLE", 1)
    monkeypatch.setattr(pointing, "_BLOCK", 101)
    np.testing.assert_array_equal(held_karp(points), whole)


def test_the_mean_optimum_of_five_cities_is_that_of_the_paper():
    points = drawn(20_000, 5, 2)
    tours = held_karp(points)
    lengths = [tour_length(x, t) for x, t in zip(points, tours, strict=True)]
    error = np.std(lengths) / math.sqrt(len(lengths))
    # Printed as 2.12; four standard errors, and what rounding may hide.
    assert abs(np.mean(lengths) - 2.12) < 4 * error + 0.005


def test_near_optimal_tours_are_valid_and_hardly_longer_than_the_shortest():
    points = drawn(61, 13, 2)
    tours = near_optimal(points, np.full(61, 13))
    assert (np.sort(tours, 1) == np.arange(13)).all() and (tours[:, 0] == 0).all()
    assert all(signed_area(x[t]) > 0 for x, t in zip(points, tours, strict=True))
    found, shortest = mean_length(points, tours), mean_length(points, held_karp(points))
    assert shortest - 1e-6 <= found < 1.002 * shortest


def test_a_near_optimal_tour_depends_on_its_own_cities_alone():
    points, sizes = drawn(5, 17, 2), np.array([17, 3, 13, 17, 5])
    tours = near_optimal(points, sizes)
    for i, n in enumerate(sizes):
        assert sorted(tours[i, :n]) == list(range(n)) and tours[i, 0] == 0
        points[i, n:] = i  # whatever stands at padding
    for i in range(5):
        alone = near_optimal(points[[i]], sizes[[i]])
        np.testing.assert_array_equal(alone[0], tours[i])


def test_tours_are_exact_up_to_a_size_and_near_optimal_beyond(monkeypatch):
    exact = [answer for _, answer in cases(make("tsp", sizes=(5, 11, 13), fast=False))]
    solved = []

    def first_come(points, sizes):
        solved.extend(sizes)
        return np.broadcast_to(np.arange(points.shape[1]), points.shape[:2])

    monkeypatch.setattr(pointing, "near_optimal", first_come)
    mixed = [answer for _, answer in cases(make("tsp", sizes=(5, 11, 13)))]
    assert mixed[:2] == exact[:2] and mixed[2] == list(range(13))
    assert solved == [13] and 11 <= EXACT < 13
    held = held_out("tsp", "test", 17, 2)
    assert solved == [13]
    for (_, answer), tour in zip(cases(held), held_karp(held["inputs"]), strict=True):
        assert answer == tour.tolist()


def batches(kind="sorting", seed=7, **options):
    fields = {"smallest": 3, "largest": 13, "buckets": 3, "rows": 5} | options
    return Batches(kind, **fields, seed=seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_depends_on_seed_and_index_alone(kind):
    one, two, other = batches(kind), batches(kind), batches(kind, seed=8)
    forward = [one[i] for i in range(4)]
    for i in (2, 0, 3, 1):
        for name, array in two[i].items():
            np.testing.assert_array_equal(array, forward[i][name])
    inputs = {batch["inputs"].tobytes() for batch in [*forward, other[0], other[1]]}
    assert len(inputs) == 6
    with pytest.raises(IndexError):
        one[-1]


@pytest.mark.parametrize(
    ("largest", "buckets"), [(13, 1), (13, 3), (13, 11), (13, 100), (5, 2)]
)
def test_sizes_are_equally_frequent_in_few_shapes(largest, buckets):
    source = batches(largest=largest, buckets=buckets, rows=7)
    sizes = list(range(3, largest + 1))
    lengths, shapes = [], {}
    for i in range(800):
        batch = source[i]
        lengths.extend(batch["lengths"])
        shapes.setdefault(batch["inputs"].shape, set()).update(batch["lengths"])
    assert len(shapes) == min(buckets, len(sizes))
    assert sorted(n for held in shapes.values() for n in held) == sizes
    for (rows, width, _), held in shapes.items():
        assert rows == 7 and width == max(held)
        assert 0 <= len(held) - len(sizes) // len(shapes) <= 1
    # At worst, 800 independent draws; five standard errors.
    share = 1 / len(sizes)
    error = math.sqrt(share * (1 - share) / 800)
    found = [lengths.count(n) / len(lengths) for n in sizes]
    np.testing.assert_allclose(found, share, atol=5 * error)


@pytest.mark.parametrize("kind", KINDS)
def test_more_held_out_instances_begin_with_the_same(kind):
    few, many = (held_out(kind, "test", 7, count) for count in (3, 11))
    for name, array in few.items():
        np.testing.assert_array_equal(array, many[name][:3])
    assert (many["lengths"] == 7).all() and many["inputs"].shape[1] == 7


def test_held_out_instances_are_in_no_other_split_size_or_training_batch():
    first = [
        held_out(kind, split, size, 2)["inputs"].flat[0]
        for kind in KINDS
        for split in ("validation", "test")
        for size in (3, 5)
    ]
    trained = [batches(seed=k)[i]["inputs"].flat[0] for k, i in np.ndindex(3, 3)]
    # Straight from a generator, too, with the keys that training may have.
    keys = itertools.product(range(4), range(2), (0, 3, 5))
    raw = [np.random.default_rng(key).random(dtype=np.float32) for key in keys]
    every = [*first, *trained, *raw]
    assert len(set(every)) == len(every) == 16 + 9 + 24


@pytest.mark.parametrize("kind", KINDS)
def test_answers_score_full_marks(kind):
    batch = make(kind)
    scores = score(kind, batch, batch["target"])
    if kind == "tsp":
        assert scores.pop("length") == scores.pop("optimum")
    for name, value in scores.items():
        wanted = 0 if name in ("failure", "excess") else 100
        assert value == pytest.approx(wanted), name


def tokens_of(answers, T=40):
    tokens = np.zeros((len(answers), T), int)
    for row, answer in zip(tokens, answers, strict=True):
        row[: len(answer)] = np.array(answer, int) + 1
    return tokens


def test_sequences_end_at_the_first_0_or_never():
    tokens = np.array([[3, 1, 0, 2], [2, 2, 5, 1], [0, 4, 4, 4]])
    found = [sequence.tolist() for sequence in sequences(tokens)]
    assert found == [[2, 0], [1, 1, 4, 0], []]


def test_sorting_is_right_from_end_to_end_or_wrong():
    batch = make("sorting", sizes=(3, 5, 7, 11, 2))
    right = [answer for _, answer in cases(batch)]
    answers = [right[0], right[1][:-1], right[2][::-1], [*right[3], 0], right[4]]
    assert score("sorting", batch, tokens_of(answers)) == {"accuracy": 40}


@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("direction", [1, -1])
def test_a_hull_is_the_same_from_any_corner_in_any_direction(turn, direction):
    batch = make("hull")
    answers = [np.roll(answer, turn)[::direction] for _, answer in cases(batch)]
    expected = {"accuracy": 100, "failure": 0, "area": pytest.approx(100)}
    assert score("hull", batch, tokens_of(answers)) == expected


def test_hulls_that_are_no_polygons_fail_and_others_cover_a_part():
    inputs = np.zeros((7, 5, 2), np.float32)
    inputs[:, :4] = SQUARE  # a fifth input is padding
    target = tokens_of([[0, 1, 2, 3]] * 7)
    batch = {"inputs": inputs, "lengths": np.full(7, 4), "target": target}
    answers = [[0, 1, 2, 3], [3, 1, 0], [0, 2, 1, 3], [0, 1], [], [0, 1, 2, 4]]
    answers.append([0, 1, 2, 3, 0])
    scores = score("hull", batch, tokens_of(answers))
    expected = {"accuracy": 100 / 7, "failure": 500 / 7, "area": 75}
    assert scores == pytest.approx(expected)
    scores = score("hull", batch, tokens_of([[2, 0, 1, 3]] * 7))
    assert scores == {"accuracy": 0, "failure": 100}


def test_triangles_count_in_any_order_and_each_once():
    batch = make("delaunay", sizes=[7] * 5)
    right = [np.reshape(answer, (-1, 3)) for _, answer in cases(batch)]
    answers = [
        right[0][::-1, [2, 0, 1]].ravel(),
        right[1][1:].ravel(),
        [*right[2].ravel(), 0],  # one left over
        np.tile(right[3][:1], (4, 1)).ravel(),
        [*right[4].ravel(), 0, 0, 1],
    ]
    shares = [1, 1 - 1 / len(right[1]), 1, 1 / len(right[3]), 1]
    scores = score("delaunay", batch, tokens_of(answers))
    assert scores == pytest.approx({"accuracy": 20, "coverage": 100 * np.mean(shares)})


def test_tours_are_valid_whole_and_as_short_as_the_label_or_longer():
    inputs = np.tile(SQUARE.astype(np.float32), (5, 1, 1))
    target = tokens_of([[0, 1, 2, 3]] * 5)
    batch = {"inputs": inputs, "lengths": np.full(5, 4), "target": target}
    answers = [[2, 1, 0, 3], [0, 2, 1, 3], [0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 3, 0]]
    crossed = 2 + 2 * math.sqrt(2)
    scores = score("tsp", batch, tokens_of(answers))
    expected = {"valid": 40, "accuracy": 20, "optimum": 4, "length": (4 + crossed) / 2}
    expected["excess"] = 100 * (crossed / 4 - 1) / 2
    assert scores == pytest.approx(expected)
    scores = score("tsp", batch, tokens_of([[]] * 5))
    assert scores == {"valid": 0, "accuracy": 0, "optimum": 4}


def test_the_length_of_a_tour_is_that_of_its_turns_and_of_its_reverse():
    points = drawn(11, 2)
    tour = np.random.default_rng(1).permutation(11)
    legs = zip(tour, [*tour[1:], tour[0]], strict=True)
    expected = sum(math.dist(points[i], points[j]) for i, j in legs)
    for order in (tour, np.roll(tour, 5), tour[::-1]):
        np.testing.assert_allclose(tour_length(points, order), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("T", [0, 1, 5, 29])
def test_any_tokens_have_finite_scores(kind, T):
    batch = make(kind, sizes=[3, 5, 7, 13] * 53)
    rng = np.random.default_rng(T)
    for tokens in (rng.integers(0, 14, (212, T)), rng.integers(-3, 99, (212, T))):
        scores = score(kind, batch, tokens)
        json.dumps(scores, allow_nan=False)
        assert all(type(value) is float and value >= 0 for value in scores.values())
        lengths = {scores.pop(k, 1) for k in ("excess", "length", "optimum")}
        assert min(lengths) > 0 and max(scores.values()) <= 100


def crosses(polygon):
    """Whether two sides share more than a common corner, in exact fractions."""
    corner = [tuple(map(Fraction, map(float, point))) for point in polygon]
    sides = [(a, corner[(i + 1) % len(corner)]) for i, a in enumerate(corner)]

    def on(point, a, b):
        inside = all(min(u) <= p <= max(u) for p, *u in zip(point, a, b, strict=True))
        return left_of(a, b, point) == 0 and inside

    for (a, b), (c, d) in itertools.combinations(sides, 2):
        ends = [(p, c, d) for p in (a, b)] + [(p, a, b) for p in (c, d)]
        touching = {p for p, *side in ends if on(p, *side)}
        through = left_of(a, b, c) * left_of(a, b, d) < 0
        through = through and left_of(c, d, a) * left_of(c, d, b) < 0
        if through or len(touching) > len({a, b} & {c, d}):
            return True
    return False


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("corners", [3, 4, 5, 7])
def test_a_polygon_is_simple_where_no_two_sides_meet(corners, grid):
    rng = np.random.default_rng(corners)
    seen = set()
    for _ in range(150):
        polygon = rng.random((corners, 2), np.float32)
        if grid:  # full of points on one line, and of sides that touch
            places = rng.choice(16, corners, replace=False)
            polygon = np.stack(np.divmod(places, 4), 1)
        expected = not crosses(polygon)
        seen.add(expected)
        assert is_simple(polygon) == is_simple(polygon[::-1]) == expected
    assert seen == ({True} if corners == 3 and not grid else {True, False})


@pytest.mark.parametrize(
    ("polygon", "simple"),
    [
        ([(0, 0), (1, 0), (1, 1), (0, 1)], True),
        ([(0, 0), (1, 1), (1, 0), (0, 1)], False),  # crosses itself
        ([(0, 0), (2, 0), (2, 2), (1, 0), (0, 2)], False),  # a corner on a side
        ([(0, 0), (2, 0), (1, 0), (1, 1)], False),  # back along a side
        ([(0, 0), (1, 1), (2, 2)], False),  # on one line
        ([(0, 0), (1, 0), (2, 0), (2, 2)], True),  # straight on
        ([(0, 0), (5, 0), (5, 2), (4, 2), (4, 1), (1, 1), (1, 2), (0, 2)], True),
        ([(0, 0), (1, 0)], False),
        ([], False),
    ],
)
def test_polygons_that_touch_or_turn_back_are_not_simple(polygon, simple):
    assert is_simple(np.array(polygon).reshape(-1, 2)) == simple


def test_the_area_of_a_polygon_is_signed_by_its_direction():
    triangle = np.array([[0, 0], [3, 0], [0, 5]])
    assert signed_area(triangle) == 7.5 and signed_area(triangle[::-1]) == -7.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: steps("knapsack", 5),
            "kind is 'knapsack': must be one of sorting, hull",
        ),
        (lambda: pointing.features("x"), "kind is 'x': must be one of"),
        (lambda: score("x", {}, None), "kind is 'x': must be one of"),
        (lambda: steps("delaunay", 2), "inputs is 2: must be at least 3 for delau"),
        (lambda: make("hull", (2, 5)), "size is 2: must be at least 3 for hull$"),
        (lambda: make("sorting", (0,)), "size is 0: must be at least 1 for sor"),
        (
            lambda: batches("tsp", smallest=2),
            "config.data.smallest is 2: must be at least 3 for tsp$",
        ),
        (lambda: batches(largest=2), "config.data.largest is 2: must be at least 3$"),
        (lambda: batches(buckets=0), "config.data.buckets is 0: must be at least 1$"),
        (lambda: batches(rows=0), "config.data.rows is 0: must be at least 1$"),
        (lambda: held_out("hull", "train", 5, 1), "split is train: must be validation"),
        (lambda: held_out("hull", "test", 5, 0), "count is 0: must be at least 1$"),
        (lambda: held_out("hull", "test", 2, 5), "size is 2: must be at least 3 for"),
    ],
)
def test_what_there_is_not_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [7, 11, 53])
def test_training_is_answered_as_what_is_held_out(kind, width):
    largest = min(width, EXACT) if kind == "tsp" else width
    sizes = np.random.default_rng(0).integers(3, largest + 1, 400 if width < 20 else 40)
    batch = make(kind, sizes, width)
    found = answers(kind, batch["inputs"], batch["lengths"])
    np.testing.assert_array_equal(found, batch["target"])


@pytest.mark.parametrize("kind", ["hull", "delaunay"])
def test_points_on_a_line_have_no_answer(kind):
    line = np.linspace(0, 1, 5, dtype=np.float32)[None, :, None].repeat(2, axis=2)
    with pytest.raises(
        UserError, match="^points on one line have no hull and no triangles$"
    ):
        answers(kind, line, np.array([5]))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="17 inputs do not fit width 13"):
        make("hull", sizes=(17, 3))
    for n in (2, 21):
        with pytest.raises(ValueError, match=f"held_karp: {n} cities: must be 3 to 20"):
            held_karp(drawn(1, n, 2))
