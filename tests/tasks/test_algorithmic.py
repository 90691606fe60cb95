"""The tasks of the Neural Turing Machine: their sequences, and the task."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from states import task_of

from base.errors import UserError
from configs import ntm_copy, ntm_ngrams, ntm_recall, ntm_repeat_copy, ntm_sort
from tasks.algorithmic import data as algorithmic
from tasks.algorithmic import figures as sequence_figures
from tasks.algorithmic import task as tasks_algorithmic
from tasks.algorithmic.data import KINDS, held_out, optimal_bits, parse, sequences
from training import evaluate, trained
from training.task import Evaluation, NoOptions

CONFIGS = {
    "copy": ntm_copy,
    "repeat_copy": ntm_repeat_copy,
    "recall": ntm_recall,
    "ngrams": ntm_ngrams,
    "sort": ntm_sort,
}
WIDTH = 7


SIZES = np.array([7, 6, 7])


def draw(kind, seed=0, **fields):
    return sequences(kind, np.random.default_rng(seed), SIZES, WIDTH, **fields)


def answers(batch, row):
    """The answers of a sequence: [answers, O] of 0 and 1, in order."""
    return batch["targets"][row][batch["mask"][row]].astype(int)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_the_widths_of_its_kind_and_bits_for_answers(kind):
    batch = draw(kind)
    steps = batch["inputs"].shape[1]
    assert batch["inputs"].shape == (3, steps, KINDS[kind].inputs)
    assert batch["targets"].shape == (3, steps, KINDS[kind].outputs)
    assert batch["mask"].shape == (3, steps) and batch["mask"].dtype == bool
    assert {x.dtype for n, x in batch.items() if n != "mask"} == {np.dtype("float32")}
    assert set(np.unique(batch["targets"])) == {0, 1}
    assert not batch["targets"][~batch["mask"]].any()
    if kind != "ngrams":
        assert not batch["inputs"][batch["mask"]].any()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing_but_the_width(kind):
    rng, sizes = np.random.default_rng(0), np.array([2, 7, 5])
    items = rng.integers(0, 2, (3, 11, 3, 6))
    vectors, numbers = rng.integers(0, 2, (3, 11, 8)), rng.uniform(-1, 1, (3, 11))
    make = {
        "copy": lambda width: algorithmic._copy(vectors[:, :width], sizes),
        "repeat_copy": lambda width: algorithmic._repeat_copy(
            vectors[:, :width], sizes, np.array([3, 1, 2]), 3
        ),
        "recall": lambda width: algorithmic._recall(
            items[:, :width], sizes, np.array([0, 5, 2])
        ),
        "ngrams": lambda width: algorithmic._ngrams(vectors[:, :width, 0], sizes),
        "sort": lambda width: algorithmic._sort(
            vectors[:, :width], numbers[:, :width], sizes
        ),
    }[kind]
    narrow, wide = make(7), make(11)
    for name, values in narrow.items():
        T = values.shape[1]
        np.testing.assert_array_equal(wide[name][:, :T], values)
        assert wide[name].shape[1] > T and not wide[name][:, T:].any()


def test_copies_are_the_input_after_a_delimiter():
    batch = draw("copy")
    for row, size in enumerate(SIZES):
        inputs, bits = batch["inputs"][row], answers(batch, row)
        np.testing.assert_array_equal(inputs[:size, :8], bits)
        assert np.flatnonzero(inputs[:, 8]).tolist() == [size]
        assert np.flatnonzero(batch["mask"][row]).tolist() == list(
            range(size + 1, 2 * size + 1)
        )


@pytest.mark.parametrize("repeats", [None, 3, 13])
def test_repeated_copies_end_in_a_marker(repeats):
    batch = draw("repeat_copy", repeats=repeats)
    for row, size in enumerate(SIZES):
        inputs, bits = batch["inputs"][row], answers(batch, row)
        # The counts 1..10 have the mean 5.5 and the variance 99 / 12.
        count = inputs[size, 8] * np.sqrt(99 / 12) + 5.5
        assert repeats is None or count == pytest.approx(repeats, abs=1e-4)
        assert len(bits) == size * round(float(count)) + 1
        assert bits[:, 8].tolist() == [0] * (len(bits) - 1) + [1]
        for i, vector in enumerate(bits[:-1]):
            np.testing.assert_array_equal(vector[:8], inputs[i % size, :8])
        assert np.flatnonzero(inputs[:, 8]).tolist() == [size]


def test_recall_asks_for_the_item_after_the_queried_one():
    batch = draw("recall")
    for row, size in enumerate(SIZES):
        inputs, bits = batch["inputs"][row], answers(batch, row)
        assert np.flatnonzero(inputs[:, 6]).tolist() == [4 * i for i in range(size)]
        assert np.flatnonzero(inputs[:, 7]).tolist() == [4 * size, 4 * size + 4]
        items = [inputs[4 * i + 1 : 4 * i + 4, :6] for i in range(size)]
        query = inputs[4 * size + 1 : 4 * size + 4, :6]
        positions = [i for i in range(size - 1) if (items[i] == query).all()]
        assert any((items[i + 1] == bits).all() for i in positions)
        assert np.flatnonzero(batch["mask"][row]).tolist() == [
            4 * size + 5 + i for i in range(3)
        ]


def test_sorting_asks_for_the_four_fifths_of_highest_priority():
    batch = draw("sort")
    for row, size in enumerate(SIZES):
        inputs = batch["inputs"][row, :size]
        order = sorted(range(size), key=lambda i: -inputs[i, 8])[: 4 * size // 5]
        np.testing.assert_array_equal(answers(batch, row), inputs[order, :8])
        assert (abs(inputs[:, 8]) <= 1).all()


def test_each_answer_of_ngrams_is_the_input_of_the_next_step():
    batch = draw("ngrams")
    expected = batch["targets"][:, :-1] * batch["mask"][:, 1:, None]
    np.testing.assert_array_equal(batch["inputs"][:, 1:], expected)
    assert not batch["inputs"][:, 0].any()


def test_the_optimal_predictor_counts_the_bits_that_followed_a_context():
    batch = held_out("ngrams", "test", 41, 5)
    for row, actual in enumerate(optimal_bits(batch)):
        bits, counts, total = answers(batch, row)[:, 0], {}, 5.0
        for t in range(5, 41):
            count = counts.setdefault(tuple(bits[t - 5 : t]), [0, 0])
            total -= np.log2((count[bits[t]] + 0.5) / (sum(count) + 1))
            count[bits[t]] += 1
        assert actual == pytest.approx(total)


def test_the_mean_cost_of_the_optimal_predictor_is_the_papers():
    optimum = optimal_bits(held_out("ngrams", "validation", 200, 200))
    error = optimum.std() / np.sqrt(len(optimum))
    assert abs(optimum.mean() - 133.9) < 4 * error + 0.8


def test_smaller_held_out_sets_are_prefixes_of_larger_ones():
    for kind in KINDS:
        small, large = (held_out(kind, "test", 7, count) for count in (3, 5))
        validation = held_out(kind, "validation", 7, 3)
        for name in small:
            np.testing.assert_array_equal(small[name], large[name][:3])
        assert not np.array_equal(small["targets"], validation["targets"])


COUNT = "must be a repeat count from x1 to x999"
PRIORITY = "must be a number in [-1, 1], as in 10110100:0.5"


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("copy", "1011010", "the bits are '1011010': must be 8 bits, each 0 or 1"),
        ("copy", "10110102", "the bits are '10110102': must be 8 bits, each 0 or 1"),
        ("repeat_copy", "10110100", f"the last word is '10110100': {COUNT}"),
        ("repeat_copy", "10110100 x0", f"the last word is 'x0': {COUNT}"),
        ("repeat_copy", "10110100 x\u00b2", f"the last word is 'x²': {COUNT}"),
        ("repeat_copy", "10110100 x1000", f"the last word is 'x1000': {COUNT}"),
        ("repeat_copy", "x3", "the size is 0: must be at least 1"),
        (
            "recall",
            "101010-110010-010101",
            "must end in `? ITEM`, where ITEM is in the sequence and not its last "
            "item: 000111-001100-010101 111000-110011-101010 ? 000111-001100-010101",
        ),
        (
            "recall",
            "101010-110010 001100 ? 101010-110010",
            "an item is '101010-110010': must be 3 vectors joined by -",
        ),
        ("ngrams", "01102", "the bits are '01102': must be bits, each 0 or 1"),
        ("ngrams", "0110", "the size is 4: must be at least 6"),
        ("sort", "10110100:0.5 01101001:2", f"a priority is '2': {PRIORITY}"),
        ("sort", "10110100:0.5 01101001", f"a priority is '': {PRIORITY}"),
        ("sort", "10110100:0.5", "the size is 1: must be at least 2"),
    ],
)
def test_invalid_text_is_refused(kind, text, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        parse(kind, text)


# The task.


def make(kind="copy", **fields):
    return task_of(CONFIGS[kind].get_config("smoke"), **fields)


def scores_of(task, state=None):
    state = state or SimpleNamespace(params=None)  # for an oracle
    return evaluate.evaluate(task, state, "test", NoOptions()).scores


def let(task, outputs):
    """Puts a function of arrays in the place of the compiled outputs of a task."""
    outputs.eval_shape = outputs
    task.outputs = task._jit_outputs = outputs


def oracle(scale):
    """Returns outputs whose logits are the targets' signs times `scale`."""

    def outputs(state, batch, attention):
        logits = scale * (2 * batch["targets"] - 1)
        return tasks_algorithmic.Answers(
            logits, tasks_algorithmic._nats(logits, batch), []
        )

    return outputs


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_bits_per_sequence_and_wrong_bits_in_per_cent(kind):
    task = make(kind)
    data, evaluation = task.config.data, task.config.evaluation
    sizes = dict.fromkeys([data.max_size, *evaluation.sizes])
    count = evaluation.sequences
    batches = [held_out(kind, "test", size, count) for size in sizes]
    # Probability 1/2 costs 1 bit per answer bit; a confident wrong answer costs its
    # logit, in nats.
    let(task, oracle(0.0))
    scores = scores_of(task)
    expected = batches[0]["mask"].sum() * KINDS[kind].outputs / count
    assert scores["bits"] == pytest.approx(expected, rel=1e-5)
    assert scores["per_bit"] == pytest.approx(1, rel=1e-5)
    ones = batches[0]["targets"][batches[0]["mask"]]  # a logit of 0 answers 0
    assert scores["wrong"] == pytest.approx(100 * ones.mean())
    let(task, oracle(50.0))
    scores = scores_of(task)
    assert scores["bits"] == pytest.approx(0, abs=1e-6) and scores["wrong"] == 0
    let(task, oracle(-50.0))
    scores = scores_of(task)
    assert scores["per_bit"] == pytest.approx(50 / np.log(2), rel=1e-5)
    assert scores["wrong"] == pytest.approx(100)
    assert ("optimum" in scores) == (kind == "ngrams")


def test_sizes_beyond_training_have_their_own_scores():
    task = make("repeat_copy")
    let(task, oracle(1.0))
    scores = scores_of(task)
    names = {f"{name}_{size}" for name in ("bits", "wrong") for size in ("2", "2x3")}
    assert set(scores) == {"bits", "per_bit", "wrong"} | names


def test_scores_do_not_depend_on_the_batch_size_of_evaluation():
    task, parts = make("copy"), []

    def outputs(state, batch, attention):  # each sequence has a loss of its own
        parts.append(len(batch["inputs"]))
        scale = batch["inputs"].mean((1, 2), keepdims=True)
        return oracle(scale)(state, batch, attention)

    let(task, outputs)
    expected = scores_of(task)
    task.batch_size = 3
    parts.clear()
    assert scores_of(task) == pytest.approx(expected)
    assert parts[:3] == [3, 3, 2]


@pytest.fixture(scope="module")
def started():
    task = make(model__read_heads=2)
    return task, jax.jit(task.objective.init)(jax.random.key(0))


def test_the_loss_is_of_the_answers_alone(started):
    task, state = started
    batch = jax.tree.map(jnp.asarray, task.train_data()[0])
    other = batch | {
        "targets": jnp.where(batch["mask"][..., None], batch["targets"], 1)
    }
    rng = jax.random.key(1)
    step = jax.jit(task.objective.step)
    (updated, metrics), (expected, _) = (step(state, x, rng) for x in (batch, other))
    jax.tree.map(np.testing.assert_array_equal, updated.params, expected.params)
    nats, answer_bits = metrics["loss"]
    bits, batch_size = metrics["bits"]
    assert answer_bits == batch["mask"].sum() * 8
    assert batch_size == len(batch["mask"])
    assert bits == pytest.approx(float(nats) / np.log(2), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_in_the_notation_of_the_input(kind, tmp_path):
    item, following = "101010-110010-010101", "001100-101011-111000"
    text, expected = {
        "copy": ("10110100 01101001", "10110100 01101001"),
        "repeat_copy": ("10110100 x3", "10110100 10110100 10110100 end"),
        "recall": (f"{item} {following} ? {item}", following.replace("-", " ")),
        "ngrams": ("0110101", "0.12 0.88 0.88 0.12 0.88 0.12 0.88"),
        "sort": ("10110100:0.5 01101001:-0.25 11110000:0.75", "11110000 10110100"),
    }[kind]
    task = make(kind)
    let(task, oracle(2.0))  # 1 / (1 + e^-2) is 0.88
    run = trained.Run(task.config, task, SimpleNamespace(params=None), "last")
    answer, empty = run.predict([text, " "], figures=tmp_path)
    assert (answer.text, empty.text) == (expected, "") and answer.score < 0
    (path,) = tmp_path.glob("*.png")
    assert min(Image.open(path).size) > 200
    with pytest.raises(UserError, match="line 2: "):
        run.predict(["", "nonsense"])


def test_a_prediction_carries_the_read_and_write_weights(started):
    task, state = started
    run = trained.Run(task.config, task, state, "last")
    (answer,) = run.predict(["10110100 01101001"])
    names = {attention.name: len(attention.weights) for attention in answer.attention}
    assert list(names.items()) == [("read weights", 2), ("write weights", 1)]
    for attention in answer.attention:
        _, steps, slots = attention.weights.shape
        assert (steps, slots) == (5, task.config.model.slots)
        assert len(attention.queries) == steps and len(attention.keys) == slots
        np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    (answer,) = run.predict(["10110100 01101001"], attention=False)
    assert answer.attention == ()


def test_a_figure_has_the_write_weights_above_the_numbered_read_weights(
    started, monkeypatch, tmp_path
):
    panels = {}
    monkeypatch.setattr(
        sequence_figures,
        "sequence_maps",
        lambda maps, title, path, signed: panels.update(maps) or path,
    )
    task, state = started
    paths = evaluate.draw(task, state, Evaluation("validation"), tmp_path)
    assert [path.name for path in paths] == [
        f"copy_{size}_validation.png" for size in (3, 5)
    ]
    assert tuple(panels) == (
        "input",
        "target",
        "output",
        "error",
        "write weights",
        "read weights 1",
        "read weights 2",
    )
    assert {values.shape[1] for values in panels.values()} == {11}
    assert panels["input"].shape[0] == 9 and panels["target"].shape[0] == 8
    assert panels["write weights"].shape[0] == task.config.model.slots
    np.testing.assert_allclose(panels["error"], panels["output"] - panels["target"])


def test_only_repeated_copies_have_two_sizes():
    with pytest.raises(UserError, match=r"sizes has \(3, 2\): must be a whole number$"):
        make(evaluation__sizes=((3, 2),))
