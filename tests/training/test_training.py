"""Tests of the training loop, gradients, checkpoints, logs and errors on a toy task."""

import functools
import math
import os
import re
import shutil
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy

from base.errors import UserError
from training import checkpoints, checks, loop, runtime, state
from training.log import Log, read_rows


def make_config(**fields):
    config = toy.get_config()
    config.update_from_flattened_dict(fields)
    return config


def shapes(config):
    return jax.eval_shape(toy.Toy(config).objective.init, jax.random.key(0))


def make_task(**fields):
    return toy.Toy(make_config(**fields))


# --- gradients


def test_accumulated_gradients_equal_those_of_the_whole_batch():
    task = make_task(**{"model.dropout": 0.0})
    params = task.objective.init(jax.random.key(0)).params
    batch, rng = task.train_data()[0], jax.random.key(1)
    whole, sums = state.gradients(task.loss, params, batch, rng)
    for parts in (2, 4, 8):
        actual, actual_sums = state.gradients(task.loss, params, batch, rng, parts)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5), actual, whole)
        np.testing.assert_allclose(actual_sums["loss"], sums["loss"], rtol=1e-6)
        np.testing.assert_allclose(actual_sums["tokens"][0], sums["tokens"][0])
    mean = jax.grad(lambda p: (lambda s, aux: s / aux[0])(*task.loss(p, batch, None)))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-5), whole, mean(params)
    )


def test_accumulation_must_divide_the_batch_size():
    task = make_task(**{"optimizer.accumulate": 5})
    first = task.objective.init(jax.random.key(0))
    with pytest.raises(
        UserError, match="accumulate is 5: must divide 16, the batch size"
    ):
        task.objective.step(first, task.train_data()[0], jax.random.key(0))


def test_a_batch_of_filler_has_zero_gradients():
    task = make_task()
    params = task.objective.init(jax.random.key(0)).params
    batch = task.train_data()[0] | {"weight": np.zeros(16, np.float32)}
    grads, _ = state.gradients(task.loss, params, batch, jax.random.key(1))
    assert all((g == 0).all() for g in jax.tree.leaves(grads))


# --- the loop


def test_a_run_directory_holds_config_metrics_checkpoints_and_figures(tmp_path, capsys):
    assert loop.train(make_config(), tmp_path) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"config.json", "environment.json", "metrics.jsonl", "checkpoints"}
    assert names >= {"assets", "figures", "tensorboard"}
    rows = read_rows(tmp_path / "metrics.jsonl")
    train = [row for row in rows if row["split"] == "train"]
    assert [row["step"] for row in train] == [5, 10, 12]
    evaluations = [r for r in rows if r["split"] == "validation"]
    assert [r["step"] for r in evaluations] == [4, 8, 12]
    assert evaluations[-1]["error"] < evaluations[0]["error"]
    assert rows[0]["seconds"] <= rows[-1]["seconds"]
    for row in train:
        assert row["tokens_per_second"] > 0 and row["steps_per_second"] > 0
        assert 0 <= row["waiting"] < 1
        assert "skipped" not in row  # by default, updates are not checked
    assert sorted(tmp_path.glob("figures/step_12/*.png"))
    assert "nothing to train" not in capsys.readouterr().err
    loop.train(make_config(), tmp_path)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "nothing to train: step 12 of 12 is done"
    assert last.startswith("done: step 12, best error at step 12, in ")


class Clock:
    """Clock that a test moves forward."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Late:
    """Future of a batch that takes some seconds."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def result(self):
        self.clock.now += self.seconds
        return self.seconds


def test_the_fraction_of_time_without_a_batch_is_logged(tmp_path):
    clock = Clock()
    log = Log(tmp_path, start=0, total=5, clock=clock)
    for step, wait in ((2, 6.0), (5, 0.0)):
        for _ in log.awaited([Late(clock, wait), Late(clock, wait)]):
            clock.now += 5
        with log.paused("evaluating"):
            clock.now += 1000
        log.train_row(step)
    log.close()
    first, second = read_rows(tmp_path / "metrics.jsonl")
    assert (first["waiting"], second["waiting"]) == (6 / 11, 0)
    assert first["steps_per_second"] == 2 / 22
    assert second["steps_per_second"] == 3 / 10
    assert (first["seconds"], second["seconds"]) == (1022, 2032)


def test_the_logged_loss_is_the_mean_over_all_examples_since_the_last_row(tmp_path):
    config = make_config(log_every=2, train_steps=2)
    loop.train(config, tmp_path)
    task = toy.Toy(config)
    init_rng, rng = jax.random.split(jax.random.key(0))
    current, total, count = task.objective.init(init_rng), 0.0, 0.0
    for step in range(2):
        step_rng, batch = jax.random.fold_in(rng, step), task.train_data()[step]
        current, sums = task.objective.step(current, batch, step_rng)
        total, count = total + sums["loss"][0], count + sums["loss"][1]
    row = read_rows(tmp_path / "metrics.jsonl")[0]
    np.testing.assert_allclose(row["loss"], total / count, rtol=1e-5)


def test_the_last_checkpoints_and_the_best_are_kept(tmp_path):
    class Overfits(toy.Toy):
        def score(self, state, evaluation):
            return {"error": abs(int(state.step) - 5.0)}  # best at 4

    config = make_config(save_every=2)
    config.task = Overfits
    loop.train(config, tmp_path)
    with checkpoints.Checkpoints(tmp_path) as saved:
        assert saved.steps() == [4, 10, 12]
        assert saved.best() == 4
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {"step_4", "step_12"}


def test_a_save_is_not_disturbed_by_the_steps_that_follow(tmp_path):
    task = toy.Toy(make_config(**{"model.width": 100_000}))
    step = jax.jit(task.objective.step, donate_argnums=0)
    batch, rng = task.train_data()[0], jax.random.key(0)
    current = task.objective.init(rng)
    with checkpoints.Checkpoints(tmp_path, 9) as saved:
        expected = {}
        for number in range(1, 6):
            current, _ = step(current, batch, rng)
            expected[number] = jax.tree.map(np.array, current)
            saved.save(number, current)
        for number, state in expected.items():
            restored = saved.restore(number, shapes(task.config))
            jax.tree.map(np.testing.assert_array_equal, restored, state)


class Changed(toy.Toy):
    """The toy task with another step, `changed(step, state, batch, rng)`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.objective.step = functools.partial(self.changed, self.objective.step)


class Explodes(Changed):
    """A task whose loss is not finite from step 7 on."""

    def changed(self, step, state, batch, rng):
        bad = jnp.where(state.step >= 6, jnp.nan, 0.0)
        state, sums = step(state, batch, rng)
        return state, sums | {"loss": (sums["loss"][0] + bad, sums["loss"][1])}


class ExplodesUnseen(Changed):
    """A task whose gradient is not finite from step 7 on."""

    def bad(self, step):
        return jnp.where(step >= 6, jnp.nan, 0.0)

    def changed(self, step, state, batch, rng):
        bad = self.bad(state.step)
        state, sums = step(state, batch, rng)
        return state.replace(params=jax.tree.map(lambda p: p + bad, state.params)), sums


class Burst(ExplodesUnseen):
    """A task whose gradient is not finite at steps 4 and 7."""

    def bad(self, step):
        return jnp.where((step == 3) | (step == 6), jnp.inf, 0.0)


@pytest.mark.parametrize(
    "task, message",
    [
        (Explodes, r"loss is nan at step 7, on batch 6,.* good checkpoint .* step 6"),
        (
            ExplodesUnseen,
            r"(loss is nan at step 8, on batch 7|not finite after step 7, on batch 6),"
            ".* step 6",
        ),
    ],
)
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_state(
    tmp_path, task, message
):
    config = make_config(save_every=1)
    config.task = task
    with pytest.raises(UserError, match=message):
        loop.train(config, tmp_path)
    good = checkpoints.restore(tmp_path, "last", shapes(config))
    assert int(good.step) == 6
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(good))


def test_a_skipped_update_changes_only_the_step():
    task = Burst(make_config())
    update = state.skip_non_finite(task.objective.step)
    batch, rng = task.train_data()[0], jax.random.key(1)
    plain, plain_sums = task.objective.step(
        task.objective.init(jax.random.key(0)), batch, rng
    )
    first, sums = update(task.objective.init(jax.random.key(0)), batch, rng)
    jax.tree.map(np.testing.assert_array_equal, first, plain)
    assert sums.pop("skipped") == (0, 0)
    jax.tree.map(np.testing.assert_array_equal, sums, plain_sums)
    before = first.replace(step=jnp.int32(3))
    after, sums = update(before, batch, rng)
    assert sums.pop("skipped") == (1, 0)
    assert not any(jax.tree.leaves(sums))
    jax.tree.map(
        np.testing.assert_array_equal, after, before.replace(step=jnp.int32(4))
    )


@pytest.mark.parametrize(
    "parallel", ["jit", pytest.param("pmap", marks=pytest.mark.slow)]
)
def test_a_run_that_skips_updates_counts_them_and_resumes_bit_for_bit(
    tmp_path, parallel
):
    config = make_config(non_finite="skip", save_every=1, parallel=parallel)
    config.task = Burst
    assert loop.train(config, tmp_path / "straight") == 0
    rows = read_rows(tmp_path / "straight" / "metrics.jsonl")
    train = [row for row in rows if row["split"] == "train"]
    assert [(row["step"], row["skipped"]) for row in train] == [
        (5, 1),
        (10, 1),
        (12, 0),
    ]
    assert all(math.isfinite(row["loss"]) for row in train)
    for steps in (7, 12):
        with config.unlocked():
            config.train_steps = steps
        assert loop.train(config, tmp_path / "parts") == 0
    jax.tree.map(
        np.testing.assert_array_equal,
        checkpoints.restore(tmp_path / "parts", "last", shapes(config)),
        checkpoints.restore(tmp_path / "straight", "last", shapes(config)),
    )


def test_a_row_in_which_every_update_was_skipped_has_no_loss(tmp_path):
    log = Log(tmp_path, start=0, total=2)
    zero, unit = np.float32(0), np.float32(1)
    for step in (1, 2):
        log.add(step, {"loss": (zero, zero), "skipped": (unit, zero)})
    log.train_row(2)
    log.close()
    (row,) = read_rows(tmp_path / "metrics.jsonl")
    assert row["skipped"] == 2 and "loss" not in row


def test_prefetch_keeps_the_order_and_passes_errors_on():
    batches = loop.prefetch(lambda i: i * i, 3, 11)
    assert [batch.result() for batch in batches] == [i * i for i in range(3, 11)]
    assert list(loop.prefetch(lambda i: i, 5, 5)) == []
    batches = loop.prefetch(lambda i: 1 // (6 - i), 4, 9)
    assert [next(batches).result(), next(batches).result()] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(batches).result()


def test_batches_are_computed_ahead_of_their_use():
    computed = {number: threading.Event() for number in range(9)}
    batches = loop.prefetch(lambda number: computed[number].set(), 0, 9)
    next(batches)
    assert all(computed[number].wait(60) for number in range(4))  # 3 of them ahead
    assert not computed[5].is_set()
    batches.close()


def test_a_log_waits_only_for_steps_that_are_long_past(tmp_path):
    waited = []

    class Value:
        def __init__(self, step):
            self.step = step

        def __array__(self, *args, **kwargs):
            waited.append(self.step)
            return np.float32(1)

    log = Log(tmp_path, start=0, total=23)
    for step in range(1, 23):
        log.add(step, {"loss": (Value(step), np.float32(1))})
    assert waited == [1, 2, 3, 4, 5, 6]
    log.wait()
    log.close()
    assert waited == list(range(1, 23))


def test_a_step_is_traced_once_for_each_shape_of_batches(tmp_path):
    traced = []

    class Traced(Changed):
        def changed(self, step, state, batch, rng):
            traced.append(batch["x"].shape)
            return step(state, batch, rng)

    config = make_config(train_steps=41, eval_every=40, save_every=40, log_every=20)
    config.task = Traced
    loop.train(config, tmp_path)
    assert sorted(traced) == [(16, 3), (32, 3)]


# --- logs


def test_rows_after_the_restored_step_and_torn_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    row = '{"step": %d, "split": "train", "seconds": %d}\n'
    path.write_text(row % (3, 30) + row % (6, 60) + row % (9, 90) + '{"step": 1')
    clock = Clock()
    log = Log(tmp_path, start=6, total=12, clock=clock)
    clock.now = 7.0
    log.row(8, "train", {"loss": 0.5})
    log.close()
    rows = read_rows(path)
    assert [r["step"] for r in rows] == [3, 6, 8]
    assert rows[-1]["seconds"] == 67


_LINE = "step 2/4 (50%)  loss 0.5000  0.0% waiting for data  1:15 elapsed  1:15 left"


def test_a_terminal_gets_a_bar_and_others_get_lines(tmp_path, monkeypatch, capsys):
    for tty, words in ((True, "2/4"), (False, _LINE)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda tty=tty: tty, raising=False)
        clock = Clock()
        log = Log(tmp_path, start=0, total=4, clock=clock)
        clock.now = 75.0
        log.add(1, {"loss": (jnp.array(1.0), jnp.array(2.0))})
        log.add(2, {"loss": (jnp.array(1.0), jnp.array(2.0))})
        log.train_row(2)
        log.say("a line [of mine]")
        log.close()
        output = capsys.readouterr().err
        assert words in output and "a line [of mine]" in output


def test_the_first_five_seconds_of_steps_are_not_in_the_estimate(tmp_path, capsys):
    clock = Clock()
    log = Log(tmp_path, start=10, total=110, clock=clock)
    with log.paused("compiling"):
        clock.now += 60
    for step in range(11, 21):
        clock.now += 9 if step == 11 else 2  # of the step before
        log.add(step, {"loss": (jnp.array(1.0), jnp.array(1.0))})
    log.train_row(20)
    log.close()
    estimate, row = capsys.readouterr().err.splitlines()[1:]
    assert estimate == "step 14/110 (13%)  1:15 elapsed  3:12 left"
    assert "loss 1.0000" in row and row.endswith("1:27 elapsed  3:00 left")


def test_the_estimate_leaves_out_compilation_and_counts_pauses(tmp_path, capsys):
    """Steps of 3 s, evaluations of 20 s, saves of 1 s; the first ones compile."""
    clock, compiling, total = Clock(), 100.0, 41
    every = {"evaluating": 10, "saving": 5}
    log = Log(tmp_path, start=0, total=total, every=every, clock=clock)

    def compiles(seconds):
        clock.now += seconds
        event = "/jax/core/compile/backend_compile_duration"
        jax.monitoring.record_event_duration_secs(event, seconds)

    ends = {}
    for step in range(1, total + 1):
        if step in (1, 2):  # two shapes of batches
            with log.paused("compiling"):
                compiles(compiling)
        clock.now += 3
        log.add(step, {})
        log.train_row(step)
        ends[step] = clock.now
        for name, seconds in (("evaluating", 20), ("saving", 1)):
            if step % every[name] == 0 or step == total:
                with log.paused(name):
                    clock.now += seconds
                    if step == 10:
                        compiles(compiling)
    log.close()
    rows = [x for x in capsys.readouterr().err.splitlines() if x.endswith(" left")]
    lefts = {}
    for step, line in enumerate(rows, 1):
        minutes, seconds = line.split("  ")[-1].strip("> left").split(":")
        lefts[step] = 60 * int(minutes) + int(seconds)
    assert lefts[1] == lefts[2] + 3 == 40 * 3  # from the first line on
    assert all(line.split("  ")[-1].startswith("> ") for line in rows[:10])
    for step in range(11, total + 1):
        assert lefts[step] == clock.now - ends[step], step
    assert not any(" > " in line for line in rows[10:])


def test_the_best_evaluation_so_far_is_shown(tmp_path, capsys):
    row = '{"step": 3, "split": "validation", "seconds": 1, "error": 0.7}\n'
    (tmp_path / "metrics.jsonl").write_text(row)
    log = Log(tmp_path, start=3, total=12, metric=("error", "min"), clock=Clock())
    for step, error in ((6, 0.9), (9, 0.5), (12, 0.5)):
        log.evaluation(step, "validation", {"error": error, "other": 1.0})
    log.close()
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith("error 0.9  other 1  (best error 0.7 at step 3)")
    assert second.endswith("error 0.5  other 1  (best so far)")
    assert third.endswith("(best so far)")


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_bar_fits_the_terminal(columns, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for name, value in {"COLUMNS": columns, "TERM": "xterm", "FORCE_COLOR": 1}.items():
        monkeypatch.setenv(name, str(value))
    clock = Clock()
    log = Log(tmp_path, start=0, total=5000, clock=clock)
    clock.now = 1056.0
    log.add(1056, {"loss": (np.float32(1), np.float32(2)), "tokens": (7e6, 1.0)})
    log.train_row(1056)
    with log.paused("evaluating"):
        log._display._progress.refresh()
    log.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    (line,) = {x.strip() for x in re.split(r"[\r\n]", text) if "evaluating" in x}
    assert "1056/5000" in line and "1:05:44 left" in line and "…" not in line
    assert len(line) <= columns
    assert ("21%" in line) == (columns >= 40)
    assert ("tokens/s" in line) == (columns >= 100)


def test_a_run_without_figures_says_so_before_it_is_done(tmp_path, capsys):
    class Bare(toy.Toy):
        def figures(self, state, evaluation, folder):
            return []

    config = make_config(train_steps=1)
    config.task = Bare
    loop.train(config, tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2] == "no figures: nothing to draw (step 1)"
    assert lines[-1].startswith("done: ")
    assert not list((tmp_path / "figures").iterdir())


# --- the process


def test_a_step_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "step_bytes", lambda step: 3 * 2**60)
    message = "a training step needs 3072 PiB of memory on each device: must be at most"
    config = make_config(train_steps=1)
    with pytest.raises(UserError, match=message):
        loop.train(config, tmp_path / "run")
    assert loop.train(config, tmp_path / "run", memory_check=False) == 0
    monkeypatch.setattr(checks, "step_bytes", lambda step: None)  # unknown
    assert loop.train(config, tmp_path / "other") == 0


def test_the_memory_of_a_step_has_arguments_results_and_activations(monkeypatch):
    x, w = jnp.zeros((7, 11)), jnp.zeros((11, 1300))
    step = jax.jit(lambda x, w: jnp.sin(x @ w) @ w.T).lower(x, w).compile()
    arrays = x.size + w.size + 7 * 1300 + 7 * 11  # the product and the result
    assert 4 * arrays <= checks.step_bytes(step) < 2 * 4 * arrays
    available = checks.step_bytes(step)
    monkeypatch.setattr(checks, "device_memory", lambda: available)
    checks.check_step(step)
    available -= 1
    with pytest.raises(UserError, match="or try it with --memory_check=false$"):
        checks.check_step(step)


def test_memory_is_tuned_once_and_only_if_enabled(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    monkeypatch.setattr(runtime.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for name in runtime._MALLOC:
        monkeypatch.delenv(name, raising=False)
    runtime.tune_memory(False)
    assert not calls
    monkeypatch.setenv("MALLOC_TOP_PAD_", "7")
    runtime.tune_memory(True)
    (_, command, environment), *_ = calls
    assert command == [sys.executable, *sys.orig_argv[1:]]
    assert environment["MALLOC_TOP_PAD_"] == "7"
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    runtime.report_memory()
    assert "--tune_memory=false" in capsys.readouterr().err
    runtime.report_memory()
    assert capsys.readouterr().err == ""
    runtime.tune_memory(True)
    monkeypatch.delenv("GLIBC_TUNABLES")
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    runtime.tune_memory(True)
    assert len(calls) == 1


def test_reading_leaves_an_unfinished_save_alone_and_training_removes_it(tmp_path):
    current = make_task().objective.init(jax.random.key(0))
    with checkpoints.Checkpoints(tmp_path, keep=7) as saved:
        saved.save(1, current)
    unfinished = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "checkpoints" / "1", unfinished)
    threads = set(threading.enumerate())
    assert checkpoints.find(tmp_path, "last") == 1
    for thread in set(threading.enumerate()) - threads:
        thread.join(7)  # orbax removes files in the background
    assert unfinished.exists()
    with checkpoints.Checkpoints(tmp_path, keep=7) as saved:
        assert saved.steps() == [1]
        saved.save(3, current)
    assert not unfinished.exists()
