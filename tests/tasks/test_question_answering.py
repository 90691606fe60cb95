"""Question answering: linear start, clipping, supervision, scores, own files."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from details import weights_of
from states import changed, stepped, task_of

from base.errors import UserError
from configs.memory_network_qa import VARIANTS, get_config
from figures import attention as figures_attention
from tasks.questions import metrics as answers
from tasks.questions import task as question_task
from tasks.questions.babi import sources, text
from tasks.questions.babi.encoding import Vocabulary, encode
from tasks.questions.babi.text import Line
from tasks.questions.models import LinearStart, fact_losses
from tasks.questions.task import QuestionAnswering, QuestionOptions, Story
from training import evaluate, optimizers
from training.optimizers import make_optimizer
from training.task import NoOptions, create


def config(**changes):
    return changed(get_config("smoke"), changes)


def started(tmp_path, steps, **changes):
    """A task, its state after some steps, and its batches."""
    task = task_of(config(**changes), tmp_path)
    state, data = jax.jit(task.objective.init)(jax.random.key(0)), task.train_data()
    if steps:
        state, _ = stepped(task, state, map(data.__getitem__, range(steps)))
    return task, state, data


def test_the_nil_embedding_stays_0_in_training(task, state):
    data = task.train_data()
    state, _ = stepped(task, state, [data[0], data[1]])
    for name, table in state.params.items():
        assert table.shape[0] == 4, name  # two tasks, two repeats
        np.testing.assert_array_equal(table[:, 0], 0)
        assert (np.abs(table[:, 1:]).max((1, 2)) > 0).all()


def test_models_side_by_side_train_and_are_clipped_as_if_alone(tmp_path):
    rate, bound = 0.25, 20.0  # some matrices of a model have a greater gradient
    changes = {"optimizer__learning_rate": rate, "optimizer__clip": bound}
    task, state, data = started(tmp_path, 0, **changes)
    batch, rng = data[0], jax.random.key(4)
    following, _ = jax.jit(task.objective.step)(state, batch, rng)
    optimizer = make_optimizer(task.config)

    @jax.jit
    def alone(params, part):
        def loss(params):
            logits = task.model.apply({"params": params}, part, train=True, linear=True)
            return optax.softmax_cross_entropy_with_integer_labels(
                logits, part["answer"]
            ).mean()

        updates, _ = optimizer.update(jax.grad(loss)(params), optimizer.init(params))
        return updates

    are_clipped = set()
    for slots, group in task.data.groups.items():
        _, texts = task.data.training[slots]
        for i, n in enumerate(group):
            params = jax.tree.map(lambda x, n=n: x[n], state.params)
            part = {name: x[:, i] for name, x in batch[str(slots)].items()}
            if texts is not None:  # numbers of statements
                numbers = part["sentences"][..., 0]
                part["sentences"] = texts[i // task.config.data.repeats][numbers]
            updates = alone(params, part)
            for name, value in optax.apply_updates(params, updates).items():
                np.testing.assert_allclose(value, following.params[name][n], atol=1e-6)
            norms = [np.linalg.norm(x) for x in updates.values()]
            are_clipped.add(tuple(x > 0.999 * rate * bound for x in norms))
    assert (False, True, True) in are_clipped


def test_the_default_config_scales_by_its_batch_size():
    for variant in VARIANTS.keys() - {"smoke"}:
        defaults = get_config(variant)
        assert defaults.optimizer.scale == defaults.data.batch_size == 32
        assert (defaults.optimizer.clip, defaults.optimizer.clip_by) == (40.0, "matrix")


def test_the_softmax_comes_back_where_the_validation_loss_rises():
    losses = iter([[3.0, 3.0, 3.0], [2.0, 4.0, 2.0], [1.0, 1.0, 2.5], [9.0, 9.0, 9.0]])
    schedule = optax.constant_schedule(0.1)
    objective = LinearStart(
        lambda rng: {"w": jax.random.normal(rng, (2, 3))},
        loss=None,
        optimizer=optax.sgd(schedule),
        models=3,
        linear_steps=100,
        validation_losses=lambda state: np.array(next(losses)),
    )
    state = objective.init(jax.random.key(0))
    expected = [  # updates that the schedule counts: none before the softmax
        ([True, True, True], [0, 0, 0]),
        ([True, False, True], [0, 0, 0]),
        ([True, False, False], [0, 7, 0]),
    ]
    for linear, count in expected:
        counted = jax.tree.map(lambda x: x + 7, state.opt_state)
        state = objective.after_evaluation(state.replace(opt_state=counted), {})
        remaining = state.extra["linear"] & ~state.extra["ends"]  # in the next step
        np.testing.assert_array_equal(remaining, linear)
        state = state.replace(extra=state.extra | {"linear": remaining})
        (counts,) = jax.tree.leaves(state.opt_state)
        np.testing.assert_array_equal(counts, count)
    ended = objective.after_evaluation(state.replace(step=jnp.array(100)), {})
    assert not (ended.extra["linear"] & ~ended.extra["ends"]).any()


def test_the_softmax_comes_back_in_the_step_after_the_evaluation(tmp_path):
    task, state, data = started(tmp_path, 3, loss__linear_steps=2)
    scores = evaluate.evaluate(task, state, "validation").scores
    ended = task.objective.after_evaluation(state, scores)
    assert scores["linear"] == 4 and ended.extra["ends"].all()
    after = evaluate.evaluate(task, ended, "validation").scores
    assert after == scores  # those that are saved with the state
    following, _ = stepped(task, ended, [data[3]])
    assert not following.extra["linear"].any()
    assert task.objective.after_evaluation(following, {}) is following


def test_the_linear_start_has_weights_outside_of_0_to_1_and_softmax_has_not(tmp_path):
    task, state, _ = started(tmp_path, 0, model__init_scale=0.3)
    soft = state.replace(extra=state.extra | {"linear": jnp.zeros(4, bool)})
    story = "Mary moved to the office. John went to the garden. "
    long = story * task.data.slots[1] + "Where is John?"
    short = {1: story + "Where is John?"}
    for each_state, normalised in [(state, False), (soft, True)]:
        (prediction,) = evaluate.predict(
            task, each_state, {1: long}, QuestionOptions(), True
        )
        (each,) = prediction.attention
        assert len(each.keys) == task.data.slots[1]
        assert np.allclose(each.weights.sum(-1), 1, atol=1e-5) == normalised
    (prediction,) = evaluate.predict(task, soft, short, QuestionOptions(), True)
    (each,) = prediction.attention
    assert len(each.keys) == 3 and each.keys[2] == "(empty slots)"
    np.testing.assert_allclose(each.weights.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(weights_of(each.details), each.weights, atol=1e-5)
    hard = each._replace(weights=np.zeros_like(each.weights))  # on other statements
    with np.errstate(all="raise"):
        merged = question_task._with_last(hard, hard.weights[..., -1])
    np.testing.assert_array_equal(merged.details.bias, each.details.bias)


def test_a_figure_shows_the_statements_as_typed_and_explains_its_marks(
    task, state, monkeypatch, tmp_path
):
    drawn = []
    monkeypatch.setattr(
        figures_attention, "attention_heatmaps", lambda *_, **given: drawn.append(given)
    )
    typed = "Mary moved to the office. John went to the garden. Where is John?"
    facts = (Line("Mary moved to the office."), Line("Where is Mary?", "office", (1,)))
    (prediction,) = evaluate.predict(task, state, {1: typed}, QuestionOptions(), True)
    task.draw(prediction, "Line 1", tmp_path)
    story = Story(1, 1, facts)
    task.draw(task.show(story, *task.answers(state, [story])), "Task 1", tmp_path)
    first, second = drawn
    assert first["rows"][:2] == [
        "Mary moved to the office.",
        "John went to the garden.",
    ]
    assert first["title"] == f"Line 1: Where is John? Answer: {prediction.text}"
    assert second["rows"][0] == "• Mary moved to the office."
    assert (first["note"], second["note"]) == ("", "• supporting fact.")
    assert {first["row_title"], second["row_title"]} == {"statement"}


def test_a_memory_has_as_many_slots_as_the_longest_training_story(tmp_path):
    task, _, data = started(tmp_path, 0, data__memory=7)
    stories = task.source.stories
    counts = {
        number: max(
            sum(not line.answer for line in lines[:n])
            for lines in stories[number]["train"]
            for n, line in enumerate(lines)
            if line.answer
        )
        for number in (1, 4)
    }
    assert counts[1] > 7 and counts[4] == 2
    assert task.data.slots == {1: 7, 4: 2} and set(data[0]) == {"7", "2"}


def test_fact_losses_equal_a_loop(draw):
    hops, slots = 3, 5
    weights = np.array(jax.nn.softmax(draw(7, hops, slots)))
    facts = [[2, -1, -1, -1], [1, 0, -1, -1], [4, 3, 0, -1], [0, 1, 2, 3]]
    facts += [[-1, -1, -1, -1], [-1, 2, -1, -1], [3, -1, 1, -1]]
    actual = fact_losses(jnp.array(weights), jnp.array(facts))
    for row, slots_of_facts in enumerate(facts):
        total = 0.0
        length = max((n for n, x in enumerate(slots_of_facts) if x >= 0), default=0) + 1
        for hop in range(hops):
            targets = [slots_of_facts[min(hop, length - 1)]]
            if hop == hops - 1:
                targets += slots_of_facts[hop + 1 :]
            mass = sum(weights[row, hop, x] for x in set(targets) if x >= 0)
            total -= np.log(mass) if mass else 0
        assert actual[row] == pytest.approx(total, rel=1e-5)


def test_supervision_moves_the_attention_to_the_facts(tmp_path):
    hits = []
    for weight in (0.0, 1.0):
        task, state, _ = started(
            tmp_path,
            60,
            data__tasks=(15,),
            data__questions=200,
            loss__supervision=weight,
            loss__linear_steps=0,
            optimizer__learning_rate=0.05,
        )
        assert not state.extra["linear"].any()  # from the start
        hits.append(
            evaluate.evaluate(task, state, "train", NoOptions()).scores["fact_1"]
        )
    assert hits[1] > hits[0] + 10, hits


def test_the_best_repeat_has_the_lowest_training_error():
    errors = {1: [9.0, 4.0, 1.0], 2: [6.0, 8.0, 7.0]}
    training = {1: [3.0, 2.0, 2.0], 2: [0.0, 1.0, 0.5]}
    scores = answers.summary(errors, training)
    assert scores["best_1"] == 4.0 and scores["best_2"] == 6.0
    assert scores["best"] == 5.0 and scores["failed"] == 1
    assert scores["error"] == pytest.approx(35 / 6)
    assert scores["error_deviation"] == pytest.approx(np.std([7.5, 6.0, 4.0], ddof=1))
    assert [scores[f"repeat_{n}"] for n in (1, 2, 3)] == [7.5, 6.0, 4.0]
    assert scores["error_1"] == pytest.approx(14 / 3)
    deviation = np.std([6.0, 8.0, 7.0], ddof=1)
    assert scores["error_2_deviation"] == pytest.approx(deviation)
    alone = answers.summary({1: [9.0]}, {1: [3.0]})
    assert alone.keys() == {"error", "error_1", "best", "failed", "best_1"}


def test_attention_on_facts_counts_questions_with_a_fact_in_memory():
    top = np.array([[[0, 1], [2, 2], [3, 0]]])  # one repeat, three questions, two hops
    facts = np.array([[0, -1], [1, 2], [-1, -1]])
    expected = [[100.0, 50.0]]
    np.testing.assert_allclose(answers.attention_on_facts(top, facts), expected)
    assert np.isnan(answers.attention_on_facts(top, facts * 0 - 1)).all()


def test_joint_training_has_one_model_for_all_tasks(tmp_path):
    task, state, data = started(tmp_path, 1, data__training="joint", data__repeats=1)
    assert all(len(table) == 1 for table in jax.tree.leaves(state.params))
    longest = max(x.longest for x in task.source.questions("train").values())
    assert task.data.slots == {1: longest, 4: longest}
    assert data[0].keys() == {str(longest)}
    assert task.source.vocabularies[1].names == task.source.vocabularies[4].names
    scores = evaluate.evaluate(task, state, "test", NoOptions()).scores
    assert {"best_1", "best_4", "fact_1", "fact_2"} <= set(scores)


@pytest.fixture
def files(tmp_path):
    """Paths of a user's stories by split."""
    paths = {}
    for split, stories in sources.generated([6], 60)[6].items():
        path = tmp_path / f"{split}.txt"
        path.write_text(text.write(itertools.islice(stories, 12)), "utf-8")
        paths[split] = str(path)
    return paths


def test_own_stories_are_kept_in_the_run_directory(tmp_path, files):
    smoke = config(data__source="files", data__repeats=1)
    smoke.data.files.update(files | {"validation": ""})
    workdir = tmp_path / "run"
    task = create(smoke, workdir, training=True)
    state = jax.jit(task.objective.init)(jax.random.key(0))
    scores = evaluate.evaluate(task, state, "test", NoOptions()).scores
    for path in files.values():
        (tmp_path / path).unlink()
    again = create(smoke, workdir, training=False)
    assert evaluate.evaluate(again, state, "test", NoOptions()).scores == scores
    assert len(again.source.stories[0]["validation"]) == 1
    (workdir / "assets" / "vocabularies.json").write_text("{")
    with pytest.raises(UserError, match=r"damaged \(vocabularies.json differs"):
        create(smoke, workdir, training=False)


@pytest.mark.parametrize("others", [0, 1, 11])
def test_a_single_story_with_a_question_cannot_be_split(tmp_path, files, others):
    (tmp_path / "one.txt").write_text("1 A b.\n2 C?\td\t1\n" + "1 A.\n" * others)
    change = {"train": str(tmp_path / "one.txt"), "validation": ""}
    with pytest.raises(UserError, match="has 1 story with a question: must have at"):
        sources.from_files(files | change)


def test_each_part_of_a_split_file_has_a_question(tmp_path, files):
    story, statement = "1 A b.\n2 C?\td\t1\n", "1 A.\n"
    for count, content in ((2, story * 2 + statement), (3, statement * 7 + story * 3)):
        (tmp_path / "few.txt").write_text(content)
        change = {"train": str(tmp_path / "few.txt"), "validation": ""}
        splits = sources.from_files(files | change)[0]
        assert [len(splits[x]) for x in ("train", "validation")] == [count - 1, 1]
        for split in ("train", "validation"):
            assert encode(splits[split], Vocabulary(list("abcd"))).longest == 1


def test_held_out_stories_without_a_question_are_left_out(tmp_path, files):
    (tmp_path / "held.txt").write_text("1 A.\n1 A b.\n2 C?\td\t1\n1 A.\n")
    splits = sources.from_files(files | {"validation": str(tmp_path / "held.txt")})[0]
    assert [[line.answer for line in x] for x in splits["validation"]] == [["", "d"]]


def test_a_linear_start_until_the_end_gives_a_warning():
    changed = config(loss__linear_steps=4)
    changed.train_steps = 4
    (line,) = optimizers.warnings(changed)
    assert line == (
        "config.loss.linear_steps is 4, which is not less than config.train_steps=4: "
        "that phase lasts until the end"
    )
    changed.train_steps = 5
    assert not optimizers.warnings(changed)


def test_a_split_without_a_file_has_no_evaluation():
    story = (("1 A.", "", ()),)
    source = sources.Source({0: {"train": story}}, {0: Vocabulary(["a"])})
    with pytest.raises(UserError, match="config.data.files.test is not set"):
        source.questions("test")
    task = SimpleNamespace(source=source)
    with pytest.raises(UserError, match="config.data.files.test is not set"):
        QuestionAnswering.picked(task, "test", 10)


def test_predictions_name_unknown_words_and_tasks(task, state):
    options = QuestionOptions()
    story = "Mary moved to the office. Where is Zoe?"
    with pytest.raises(UserError, match="line 2: the story has the word 'zoe', which"):
        list(evaluate.predict(task, state, {2: story}, options, False))
    with pytest.raises(UserError, match="task is 7: must be one of 1, 4"):
        list(evaluate.predict(task, state, {1: story}, QuestionOptions(task=7), False))
