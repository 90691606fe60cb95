"""Instances of pointing as text: parsing, solutions, padding and answers."""

import numpy as np
import pytest

from base.errors import UserError
from tasks.pointing import data as pointing
from tasks.pointing.text import Instance, parse, stack, unstack


@pytest.mark.parametrize("kind", pointing.KINDS)
def test_a_held_out_batch_is_parsed_back_from_its_text(kind):
    batch = pointing.held_out(kind, "test", 7, 5)
    # Texts have three decimals.
    batch["inputs"] = batch["inputs"].round(3)
    batch["target"] = pointing.answers(kind, batch["inputs"], batch["lengths"])
    instances = unstack(kind, batch)
    parsed = [parse(kind, " ".join(x.items)) for x in instances]
    stacked = stack(parsed)
    np.testing.assert_array_equal(stacked["inputs"], batch["inputs"])
    np.testing.assert_array_equal(stacked["lengths"], batch["lengths"])
    for x, y in zip(instances, parsed, strict=True):
        np.testing.assert_array_equal(y.solution(), x.truth)
        assert (y.truth is None) == (kind == "tsp")  # tours are expensive


def test_instances_of_different_sizes_are_padded():
    sizes = np.array([5, 3, 7])
    rng = np.random.default_rng(0)
    batch = pointing.instances("hull", rng, sizes, 7, fast=False)
    instances = unstack("hull", batch)
    assert [len(x.inputs) for x in instances] == sizes.tolist()
    stacked = stack(instances)
    np.testing.assert_array_equal(stacked["inputs"], batch["inputs"])
    np.testing.assert_array_equal(stacked["lengths"], sizes)


@pytest.mark.parametrize("kind", pointing.KINDS)
def test_scaling_and_shifting_change_no_answer(kind):
    text = "7 -3 11 0 5" if kind == "sorting" else "7,2 -3,5 11,-1 0,0 5,13"
    moved = parse(kind, text)
    inputs = (moved.inputs + 3) / 16
    target = pointing.answers(kind, inputs[None], np.array([5]))
    (expected,) = pointing.sequences(target)
    np.testing.assert_array_equal(moved.solution(), expected)


@pytest.mark.parametrize(
    ("kind", "indices", "text"),
    [
        ("sorting", [2, 0], "0.1 .30"),
        ("hull", [2, 0, 1], "3 1 2"),
        ("tsp", [0, 2, 1], "1 3 2"),
        ("tsp", [], ""),
        ("delaunay", [0, 1, 2, 1, 2], "1,2,3 2,3"),
        ("delaunay", [], ""),
    ],
)
def test_answers_are_written_in_the_documented_notation(kind, indices, text):
    items = [".30", "0.5", "0.1"] if kind == "sorting" else ["0,0", "1,0", "0,1"]
    instance = parse(kind, " ".join(items))
    assert instance.text(np.array(indices, int)) == text


def test_labels_are_short():
    assert parse("sorting", "0.123456 1").labels() == ["0.123", "1.000"]
    assert parse("hull", "0,0 1,0 0,1").labels() == ["1", "2", "3"]


@pytest.mark.parametrize("kind", ["hull", "delaunay"])
def test_points_on_a_line_are_refused_except_for_tours(kind):
    text = "0,0 0.5,0.5 1,1"
    with pytest.raises(
        UserError, match="^points on one line have no hull and no triangles$"
    ):
        parse(kind, text)
    assert sorted(parse("tsp", text).solution()) == [0, 1, 2]


def test_a_long_tour_has_a_caveat():
    points = np.random.default_rng(0).random((21, 2))
    for size, caveat in ((20, ""), (21, ", true tour possibly not the shortest")):
        assert Instance("tsp", points[:size], [], None).caveat() == caveat
    assert Instance("hull", points, [], None).caveat() == ""
