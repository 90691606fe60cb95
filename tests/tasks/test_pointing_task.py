"""The pointing task: loss, metrics, constrained search, predictions, figures."""

import functools
import itertools

import jax
import numpy as np
import pytest
from details import weights_of
from PIL import Image
from states import task_of
from translators import normal_like, quick_jit

from base.errors import UserError
from configs import pointer_delaunay, pointer_hull, pointer_sorting, pointer_tsp
from figures import canvas
from generation.search import Search
from tasks.pointing import data as pointing
from tasks.pointing import figures as geometry
from tasks.pointing.metrics import pointing_scores
from training import evaluate, trained
from training.state import TrainState
from training.task import Evaluation, Prediction

CONFIGS = {
    "sorting": pointer_sorting,
    "hull": pointer_hull,
    "delaunay": pointer_delaunay,
    "tsp": pointer_tsp,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Compiles without optimisation: compilation takes most of the time here."""
    monkeypatch.setattr(jax, "jit", quick_jit)


def make(kind="sorting", **fields):
    return task_of(CONFIGS[kind].get_config("smoke"), **fields)


def predict(task, state, lines, figures=None, attention=True, **options):
    run = trained.Run(task.config, task, state, "last")
    options = task.Options(**options)
    return run.predict(lines, options, figures=figures, attention=attention)


@functools.cache
def built(kind="sorting", **fields):
    """A task, and a state with parameters so large that its logits differ clearly."""
    task = make(kind, **fields)
    like = jax.eval_shape(task.objective.init, jax.random.key(0))
    params = normal_like(like.params)
    if "end" in params:  # otherwise every pointer is the end
        params["end"] = -params["end"]
    return task, TrainState.create(params, task.objective.optimizer)


@functools.cache
def whole_pass(task):
    return jax.jit(
        lambda params, batch: task.model.apply({"params": params}, batch, train=False)
    )


def probabilities(task, params, batch):
    """Probabilities of the pointers of a batch, teacher-forced: [B, T, S + 1]."""
    logits = np.array(whole_pass(task)(params, batch), np.float64)
    exps = np.exp(logits - logits.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def greedy(task, params, batch):
    """Greedy pointers [B, T], one teacher-forced pass per step."""
    tokens = np.zeros_like(batch["target"])
    ended = np.zeros(len(tokens), bool)
    for t in range(tokens.shape[1] - 1):  # the last pointer is always the end
        p = probabilities(task, params, batch | {"target": tokens})[:, t]
        if task.config.evaluation.constrain:
            for row, visited in enumerate(tokens[:, :t]):
                p[row, [0, *visited]] = 0
        tokens[:, t] = np.where(ended, 0, p.argmax(-1))
        ended |= tokens[:, t] == 0
    return tokens


def test_the_loss_is_over_the_pointers_up_to_the_first_end():
    task, state = built(data__min_size=2)
    batch = task.train_data()[1]
    p = probabilities(task, state.params, batch)
    expected = count = correct = 0
    for row, n in enumerate(batch["lengths"]):
        assert batch["target"][row, n] == 0
        for t in range(n + 1):
            expected -= np.log(p[row, t, batch["target"][row, t]])
            correct += p[row, t].argmax() == batch["target"][row, t]
            count += 1
    assert count < batch["target"].size
    loss, (pointers, metrics) = jax.jit(task.loss)(state.params, batch, None)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert pointers == count
    assert metrics == {"pointer_accuracy": (correct, count)}


@pytest.mark.parametrize("kind", ["delaunay", "tsp"])
def test_evaluation_covers_each_size_with_any_batch_size(kind):
    task, state = built(kind)
    actual = evaluate.evaluate(
        task, state, "test", task.EvaluationOptions(beam=1)
    ).scores
    expected = {}
    for size in (5, 6):
        batch = pointing.held_out(kind, "test", size, 20)
        tokens = greedy(task, state.params, batch)
        scores = pointing_scores(kind, batch, tokens)
        expected |= {f"{name}_{size}": value for name, value in scores.items()}
        expected |= scores if size == task.config.data.max_size else {}
    settings = {"instances": 20, "beam": 1}
    others = {name for name in actual if "_free" in name or "_constrained" in name}
    plain = {name: x for name, x in actual.items() if name not in others}
    assert plain == expected | settings and task.metric[0] in actual
    suffix = "free" if task.config.evaluation.constrain else "constrained"
    assert {f"accuracy_{suffix}", f"accuracy_{suffix}_5"} <= others
    assert task.config.data.batch_size < 20  # several batches, the last with filler
    if kind == "tsp":
        assert actual["valid"] == 100


def test_validation_is_greedy_with_any_beam_size():
    task, state = built("tsp", evaluation__beam=3, evaluation__sizes=(5,))
    options = task.EvaluationOptions(beam=1)
    greedy_scores = evaluate.evaluate(task, state, "validation", options).scores
    validation = evaluate.evaluate(task, state, "validation").scores
    assert validation.items() <= greedy_scores.items()
    beam_scores = evaluate.evaluate(
        task, state, "validation", task.EvaluationOptions()
    ).scores
    assert beam_scores["beam"] == 3
    assert not validation.items() <= beam_scores.items()
    assert not any(name.startswith(("valid_free", "beam")) for name in validation)


def tokens_of(task, state, batch, search, **options):
    answers = task.pointers.answers(state.params, batch, search, **options)
    ids = (best.ids for best, *_ in answers)
    return np.array([*itertools.zip_longest(*ids, fillvalue=0)]).T


def promised(kind, answer, items):
    """True if the text of an answer keeps what the task promises."""
    if kind == "sorting":
        return sorted(answer.split()) == sorted(items)
    shapes = [shape.split(",") for shape in answer.split()]
    if kind == "delaunay":
        distinct = all(len({*shape}) == len(shape) == 3 for shape in shapes)
        return distinct and len({frozenset(x) for x in shapes}) == len(shapes) > 0
    (points,) = zip(*shapes, strict=True)
    number = {"hull": range(3, len(items) + 1), "tsp": [len(items)]}[kind]
    return len({*points}) == len(points) and len(points) in number


@pytest.mark.parametrize("kind", CONFIGS)
def test_predictions_keep_what_the_task_promises(kind):
    """Unless they are told not to; the network here is not trained."""
    task, state = built(kind)
    rng, lines = np.random.default_rng(7), []
    for n in (3, 5, 4, 6, 5, 11):
        numbers = rng.random((n, pointing.features(kind)))
        lines.append(" ".join(",".join(f"{x:.4f}" for x in row) for row in numbers))

    def all_kept(**options):
        answers = predict(task, state, lines, attention=False, **options)
        return [
            promised(kind, each.text, line.split())
            for line, best in zip(lines, answers, strict=True)
            for each in (best, *best.others)
        ]

    assert all(all_kept()) and not all(all_kept(constrain=False, beam=1))
    several = all_kept(beam=3, n_best=3)
    assert len(several) > len(lines) and all(several)


@pytest.mark.parametrize("kind", ["tsp", "hull"])
def test_an_evaluation_has_metrics_of_the_other_search(kind, tmp_path):
    task, state = built(kind, evaluation__sizes=(5,), evaluation__instances=7)
    options = task.EvaluationOptions(beam=2)
    evaluation = evaluate.evaluate(task, state, "validation", options)
    batch, search = task.held_out("validation", 5), options.search(task.search)
    other = {"tsp": "_free", "hull": "_constrained"}[kind]
    for suffix, constrain in (("", kind == "tsp"), (other, kind == "hull")):
        tokens = tokens_of(task, state, batch, search, constrain=constrain)
        expected = pointing_scores(kind, batch, tokens)
        if suffix:
            expected.pop("optimum", None)
        for name, value in expected.items():
            assert evaluation.scores[f"{name}{suffix}"] == value
            assert evaluation.scores[f"{name}{suffix}_5"] == value
    assert (evaluation.scores["beam"], evaluation.scores["instances"]) == (2, 7)
    scores = evaluate.evaluate(task, state, "validation").scores
    assert not any(other in name for name in scores)
    paths = evaluate.draw(task, state, evaluation, tmp_path)
    numbers = (1, 2, 3)
    assert paths == [tmp_path / f"{kind}_{number}_validation.png" for number in numbers]
    assert sorted(tmp_path.iterdir()) == paths


def test_figures_show_the_answers_of_the_evaluation(monkeypatch, tmp_path):
    task, state = built("tsp")
    figures = []

    def draw(points, truth, predicted, title, path, **options):
        figures.append((title, predicted[0].tolist(), options["weights"]))
        return path

    monkeypatch.setattr(geometry, "pointing", draw)
    evaluation = evaluate.evaluate(task, state, "test", task.EvaluationOptions(beam=3))
    evaluate.draw(task, state, evaluation, tmp_path)
    evaluate.draw(task, state, Evaluation("test"), tmp_path)
    batch = task.held_out("test", 5)
    for search, drawn in (Search(3), figures[:3]), (task.search, figures[3:]):
        tokens = tokens_of(task, state, batch, search, constrain=True)
        for i, (title, predicted, weights) in enumerate(drawn):
            assert title == f"Tsp {i + 1} (test split)"
            assert predicted == (tokens[i, :5] - 1).tolist()
            np.testing.assert_allclose(weights.sum(-1), np.ones(6), rtol=1e-5)


def test_an_exhaustive_beam_ranks_all_permutations():
    task, state = built()
    size = 4
    batch = pointing.held_out("sorting", "test", size, 3)
    orders = np.array(list(itertools.permutations(range(1, size + 1))))
    search = Search(len(orders), n_best=len(orders))
    answers = task.pointers.answers(state.params, batch, search, constrain=True)
    target = np.pad(orders, ((0, 0), (0, 1))).astype(np.int32)
    for row in range(3):
        copies = {name: x[[row] * len(orders)] for name, x in batch.items()}
        p = probabilities(task, state.params, copies | {"target": target})
        expected = np.zeros(len(orders))
        for k, order in enumerate(orders):
            for t, pointer in enumerate(order):  # among the remaining inputs
                expected[k] += np.log(p[k, t, pointer] / p[k, t, order[t:]].sum())
        best = np.argsort(-expected)
        scores = [answer.score for answer in answers[row]]
        np.testing.assert_allclose(scores, expected[best], atol=1e-5)
        assert answers[row][0].ids[:size] == orders[best[0]].tolist()


def test_predictions_are_answers_line_by_line(tmp_path):
    task, state = built(evaluation__constrain=True)
    lines = ["0.30 .1 0.9", "", "1 0 0.5 0.25"]
    answers = predict(task, state, lines, figures=tmp_path)
    assert len(answers) == 3 and not any(answer.others for answer in answers)
    assert answers[1] == Prediction("", 0.0)
    for line in (0, 2):
        answer = answers[line]
        assert sorted(answer.text.split()) == sorted(lines[line].split())
        # Alone, an instance has no padding.
        (alone,) = predict(task, state, [lines[line]])
        assert alone.text == answer.text
        np.testing.assert_allclose(alone.score, answer.score, rtol=1e-5)
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == ["pointing_0001.png", "pointing_0003.png"]
    for path in paths:
        with Image.open(path) as image:
            assert min(image.size) > 100
    several = predict(task, state, lines, beam=4, n_best=2)
    assert [len(answer.others) for answer in several] == [1, 0, 1]
    assert several[0].score > several[0].others[0].score
    assert predict(task, state, ["", " "]) == [Prediction("", 0.0)] * 2


def test_a_prediction_has_the_weights_of_its_pointers():
    task, state = built()
    lines = ["0.5 0.25 0 1", "0.5 0.25 0 1 0.75 0.125"]
    answers = predict(task, state, lines, constrain=False)
    for text, answer in zip(lines, answers, strict=True):
        (attention,) = answer.attention
        items = text.split()
        pointed = [f"{float(item):.3f}" for item in answer.text.split()]
        assert attention.queries == [*pointed, "end"]
        assert attention.keys == ["end", *(f"{float(item):.3f}" for item in items)]
        size = len(attention.queries), len(attention.keys)
        assert attention.weights.shape == (1, *size)
        np.testing.assert_allclose(attention.weights.sum(-1), 1, rtol=1e-5)
        again = weights_of(attention.details)
        np.testing.assert_allclose(again, attention.weights, atol=1e-5)
        # In an unconstrained greedy answer every step points at the maximum weight, but
        # the last one, which is always the end.
        best = attention.weights[0, :-1].argmax(-1)
        assert [attention.keys[k] for k in best] == attention.queries[:-1]
    answers = predict(task, state, lines, attention=False)
    assert [answer.attention for answer in answers] == [(), ()]


@pytest.mark.parametrize("kind", ["hull", "delaunay"])
def test_answers_to_points_are_their_numbers(kind):
    task, state = built(kind)
    points = np.random.default_rng(0).random((11, 5, 2)).round(3)
    lines = [" ".join(f"{x:.3f},{y:.3f}" for x, y in row) for row in points]
    batch = {
        "inputs": points.astype(np.float32),
        "lengths": np.full(len(points), 5, np.int32),
        "target": np.zeros((len(points), pointing.steps(kind, 5)), np.int32),
    }
    expected = pointing.sequences(greedy(task, state.params, batch))
    assert max(map(len, expected)) > 3
    width = 3 if kind == "delaunay" else 1
    lines += [f"{lines[0]} {lines[1]}"]  # longer: the others are padded
    answers = predict(task, state, lines, constrain=False)[:-1]
    for answer, indices in zip(answers, expected, strict=True):
        shapes = [shape.split(",") for shape in answer.text.split()]
        assert all(len(shape) == width for shape in shapes[:-1])
        assert [int(k) - 1 for shape in shapes for k in shape] == indices.tolist()
        places = answer.attention[0].places
        assert places.chosen.tolist() == [*(indices + 1), 0]
        # A triangle is closed by its third point, and a hull by the end.
        assert places.polygon == (3 if kind == "delaunay" else len(indices) + 1)


@pytest.mark.parametrize("output", ["pointer", "none"])
def test_points_are_drawn_next_to_the_true_answer(output, monkeypatch, tmp_path):
    changes = {} if output == "pointer" else {"glimpses": 0, "max_inputs": 6}
    changes = {f"model__{name}": value for name, value in changes.items()}
    task, state = built("hull", model__output=output, **changes)
    figures = []

    def draw(points, truth, predicted, title, path, **options):
        figures.append((title, points, truth[0].tolist(), options["weights"] is None))
        return path

    monkeypatch.setattr(geometry, "pointing", draw)
    square = "0,0 1,0.5 1,0 0,1 1,1"  # only the second is not on the hull
    lines = [square, "", "0,0 1,0 0,1"]
    predict(task, state, lines, figures=tmp_path)
    titles, points, truths, without_weights = zip(*figures, strict=True)
    assert titles == ("Line 1: hull", "Line 3: hull")
    assert [len(inputs) for inputs in points] == [5, 3]
    assert truths == ([0, 2, 4, 3], [0, 1, 2])
    assert without_weights == (output == "none",) * 2
    lines[2] = "0,0 0.5,0.5 1,1"
    for folder in (None, tmp_path):
        with pytest.raises(UserError, match="line 3: points on one line have no hull"):
            predict(task, state, lines, figures=folder)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("sorting", "0.1 x", "line 3: item 2 is 'x': must be a finite number"),
        ("sorting", "nan", "line 3: item 1 is 'nan': must be a finite number"),
        ("sorting", "1e39", "line 3: item 1 is '1e39': must be a finite number"),
        ("sorting", "0.1,0.2", "line 3: item 1 is '0.1,0.2': must be a finite number"),
        ("tsp", "0,1 0.5", "line 3: item 2 is '0.5': must be two finite numbers, such"),
        ("tsp", "0,1 0,inf", "line 3: item 2 is '0,inf': must be two finite numbers"),
        ("tsp", "0,1 1,0", "line 3: .* is 2: must be at least 3 for tsp"),
    ],
)
def test_an_invalid_instance_is_named_by_its_line_and_item(kind, text, message):
    task = make(kind)
    valid = "0.5 0.25" if kind == "sorting" else "0,0 1,1 1,0"
    with pytest.raises(UserError, match=message):
        predict(task, None, [valid, "", text])


def test_numbers_and_sizes_outside_of_training_are_reported(capsys):
    task, state = built()
    lines = ["0.5 0.25 0 1 0.75", "0.5 1.25 0 1 0.75", "0.5 0.25"]
    assert predict(task, state, lines)[1].text
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: line 2 has numbers outside of [0, 1]")
    sizes = task.config.data.min_size, task.config.data.max_size
    message = "warning: line 3 has 2 inputs: the model was trained on {}"
    assert second == message.format(" to ".join(map(str, sorted({*sizes}))))


def test_unsupported_figures_inputs_and_options_are_reported(monkeypatch, tmp_path):
    task, state = built(model__output="none", model__glimpses=0, model__max_inputs=6)
    with pytest.raises(UserError, match="figures: PointerNetwork has no attention to"):
        predict(task, state, ["0.5 0"], figures=tmp_path)
    assert evaluate.draw(task, state, Evaluation("test"), tmp_path) == []
    with pytest.raises(UserError, match="config.model.max_inputs is 6: must be at le"):
        predict(task, state, ["1 1 1 1 1 1 1"])
    monkeypatch.setattr(canvas, "available", lambda: False)
    with pytest.raises(UserError, match="figures need matplotlib"):
        predict(task, state, ["0.5 0"], figures=tmp_path)
