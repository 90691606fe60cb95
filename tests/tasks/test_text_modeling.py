"""Running text, and truncated back-propagation through time that resumes."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from states import task_of

from base.errors import UserError
from configs import lstmn_text
from tasks.common.vocabulary import BOS, PAD, UNK
from tasks.language import text_data as running_text
from tasks.language.text_modeling import TextModeling
from training import evaluate
from training.task import NoOptions, create

B, T = 3, 5


def smoke(**fields):
    config = lstmn_text.get_config("smoke")
    config.model.dropout = 0.0  # steps are compared with evaluation
    config.update_from_flattened_dict(fields)
    return config


def test_consecutive_batches_continue_each_row_and_cover_an_epoch():
    ids = np.arange(100, 100 + 47, dtype=np.int32)
    source = running_text.batches(ids, batch_size=B, tokens=T, seed=1)
    epoch = [source[i] for i in range(3)]
    rows = np.concatenate([batch["tokens"] for batch in epoch], 1)
    for row in rows:
        np.testing.assert_array_equal(np.diff(row) % len(ids), 1)
    assert len(np.unique(rows)) == rows.size == 45
    for batch in epoch:
        np.testing.assert_array_equal((batch["tokens"] - batch["before"]) % 47, 1)
    assert [batch["first"].all() for batch in epoch] == [True, False, False]
    assert source[3]["first"].all()
    assert (source[3]["tokens"] != source[0]["tokens"]).any()


def test_a_text_in_parts_has_each_token_once_with_its_predecessor():
    ids = np.arange(10, 10 + 17, dtype=np.int32)
    batches = running_text.in_parts(ids, B, 4)
    tokens = np.concatenate([batch["tokens"] for batch in batches], 1)
    before = np.concatenate([batch["before"] for batch in batches], 1)
    np.testing.assert_array_equal(tokens[tokens != PAD], ids)
    np.testing.assert_array_equal(before[tokens != PAD], [BOS, *ids[:-1]])


def test_a_text_that_is_too_short_is_an_error():
    with pytest.raises(UserError, match="^the training text has 7 tokens: must have"):
        running_text.batches(np.ones(7, np.int32), batch_size=B, tokens=T, seed=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def task(folder):
    return task_of(smoke(), folder)


@pytest.fixture(scope="module")
def steps(task):
    """The states before and after each of the first steps, and the last metrics."""
    step, source = jax.jit(task.objective.step), task.train_data()
    states = [jax.jit(task.objective.init)(jax.random.key(0))]
    for number in range(3):
        state, metrics = step(states[-1], source[number], jax.random.key(number))
        states.append(state)
    # Another text begins in the first part.
    again = dataclasses.replace(states[0], extra=states[2].extra)
    again, _ = step(again, source[0], jax.random.key(0))
    return states, again, metrics


def test_steps_carry_the_state_and_reset_it_at_the_first_part(task, steps):
    states, again, metrics = steps
    assert set(metrics) == {"loss", "tokens"}
    read = jax.jit(functools.partial(task.model.apply, train=False))
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    carry = task.model.start(task.config.data.batch_size)
    for number in range(2):
        before = task.train_data()[number]["before"]
        _, carry = read({"params": states[number].params}, before, carry)
        jax.tree.map(close, states[number + 1].extra, carry)
    jax.tree.map(close, again.extra, states[1].extra)


def test_perplexity_is_exact_and_the_batch_size_of_a_whole_text_has_little_effect(
    folder, task, steps
):
    state = steps[0][-1]
    config = smoke(**{"evaluation.batch_size": 1})
    single = create(config, folder, training=False)
    scores = evaluate.evaluate(single, state, "test", NoOptions()).scores
    ids = running_text.stream(task.texts.vocabulary, task.texts.lines("test"))
    before = np.concatenate([[BOS], ids[:-1]])[None]
    read = jax.jit(functools.partial(task.model.apply, train=False))
    logits, _ = read({"params": state.params}, before)
    nats = -jax.nn.log_softmax(logits[0])[np.arange(len(ids)), ids]
    np.testing.assert_allclose(scores["perplexity"], np.exp(nats.mean()), rtol=1e-4)
    several = evaluate.evaluate(task, state, "test", NoOptions()).scores["perplexity"]
    np.testing.assert_allclose(several, scores["perplexity"], rtol=0.05)


def test_continuations_begin_with_the_line_and_never_have_unknown_words(task, steps):
    state = steps[0][-1]
    lines = {1: "The dogs near", 2: "qqq"}
    options = task.Options(length=6)
    first, second = evaluate.predict(task, state, lines, options, True)
    assert first.text.startswith("the dogs near") and first.score < 0
    intra, upper = first.attention
    assert (intra.layer, upper.layer) == (0, 1)
    length = len(first.text.split())
    assert intra.weights.shape == (1, length + 1, length + 1)
    assert list(intra.queries[:4]) == ["<s>", "the", "dogs", "near"]
    lines |= {4: "a", 7: "The dogs near"}  # the sample depends on the line alone
    *_, again = evaluate.predict(task, state, lines, options, False)
    assert again.text == first.text and not again.attention
    greedy = [
        next(iter(evaluate.predict(task, state, lines, drawn, False))).text
        for drawn in (task.Options(length=6, temperature=0.0, seed=s) for s in (1, 2))
    ]
    assert greedy[0] == greedy[1]
    compiled = task.continuations._sample._cache_size()
    other_seed = task.Options(length=6, seed=5)
    texts = [x.text for x in evaluate.predict(task, state, lines, other_seed, False)]
    assert task.continuations._sample._cache_size() == compiled
    assert again.text not in texts
    assert task.texts.vocabulary.encode("qqq")[0] == UNK
    assert second.score < 0


@pytest.mark.parametrize(
    "variant", ["", "lstm", "transformer", "memory_network", "deep"]
)
def test_the_models_have_as_many_parameters(variant):
    config = lstmn_text.get_config(variant)
    vocabulary = SimpleNamespace(size=config.data.vocab_size)
    task = TextModeling(config, SimpleNamespace(vocabulary=vocabulary))
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    count = sum(x.size for x in jax.tree.leaves(state.params))
    assert abs(count / 1_080_000 - 1) < 0.02, count


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "^config.data.files.train is missing"),
        ({"train": "nowhere"}, "^config.data.files.train: nowhere: No such file"),
        ({"train": "latin"}, "not text in UTF-8$"),
        ({"train": "empty"}, "^config.data.files.train: empty is empty$"),
        (
            {"train": "short"},
            "has 1 sentence: must have at least 3, for train and validation and test$",
        ),
    ],
)
def test_own_text_that_cannot_be_read_is_an_error(fields, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "short").write_text("One sentence.")
    files = {"train": "", "validation": "", "test": ""} | fields
    with pytest.raises(UserError, match=error):
        running_text.read("files", files)


def test_own_text_is_split_in_order(tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(f"line {i}." for i in range(100)))
    files = {"train": str(path), "validation": "", "test": ""}
    splits = running_text.read("files", files)
    assert {split: len(lines) for split, lines in splits.items()} == {
        "train": 81,
        "validation": 10,
        "test": 9,
    }
    assert splits["train"][0] == "line 0 ."
    assert splits["validation"][-1] == "line 99 ."


def test_lines_over_the_maximum_of_words_are_left_out_and_reported(tmp_path, capsys):
    path = tmp_path / "text"
    path.write_text("\n".join(f"line {i}." for i in range(100)))
    config = smoke(**{"data.source": "files", "data.files.train": str(path)})
    for words, line in (
        (4 * 81, ""),  # with EOS
        (4 * 11, "; left out: the first 70 lines, over config.data.train_words=44"),
    ):
        config.data.train_words = words
        texts = TextModeling.prepare(config, tmp_path / str(words), training=True)
        size = texts.vocabulary.size
        expected = f"data: {words:,} training tokens, {size} pieces{line}\n"
        assert capsys.readouterr().err == expected
        assert len(texts.train) == words


@pytest.mark.network
def test_the_speeches_have_1_8_million_words():
    splits = running_text.read("speeches", {})
    words = sum(len(line.split()) for lines in splits.values() for line in lines)
    assert 1_900_000 < words < 2_200_000  # with punctuation marks
    assert len(splits["validation"]) > 2000 and len(splits["test"]) > 2000
