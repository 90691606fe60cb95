"""Sweeps: spaces, plans, states, schedules, studies, tables, processes."""

import csv
import dataclasses
import itertools
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
import sweep_storm
from smoke import ROOT

from base.errors import UserError
from sweeps import estimate, report, runner, scheduler, space, state, study, workers
from sweeps import plan as plans
from sweeps.plan import Plan
from sweeps.space import Prune, Sweep, choice, integers, log_uniform, uniform
from tasks.captioning.task import Captioning
from training import configuration, encoding
from training.cluster import lock as lock_module
from training.task import create

FLAG = sweep_storm.CONFIG
LISTS = str(ROOT / "configs/pointer_sorting.py") + ":smoke"
KERNELS = ("gaussian", "triangular", "epanechnikov")


def grid(**fields):
    domains = {"model.kernel": choice(*KERNELS), "model.width": choice(0.5, 0.7)}
    return Sweep(space=domains, **fields)


def put(plan, run, values=(), score=None, steps=None):
    """Writes what a run leaves behind: values by evaluation, and the final score."""
    overrides = [*run.overrides, f"train_steps={steps or plan.config.train_steps}"]
    configuration.record(configuration.read(plan.flag, overrides), run.folder)
    metric, every = plan.sweep.metric, plan.config.eval_every
    rows = [
        {"step": every * i, "split": "validation", "seconds": 1.0, metric: x}
        for i, x in enumerate(values, 1)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run.folder / "metrics.jsonl").write_text(text)
    if score is not None:
        scores = {"step": steps or plan.config.train_steps, metric: score}
        path = run.folder / f"eval_{plan.sweep.split}.json"
        path.write_text(json.dumps(scores))


# Spaces


def test_a_grid_is_the_product_of_its_choices_with_conditions_and_zipped_fields():
    sweep = Sweep(
        space={
            "a": choice("x", "y"),
            "b": choice(1, 2, 3).only_if("a", "y"),
            ("c", "d"): choice((5, 7), (11, 13)),
        }
    )
    expected = [{"a": "x", "c": c, "d": d} for c, d in ((5, 7), (11, 13))]
    expected += [
        {"a": "y", "b": b, "c": c, "d": d}
        for b in (1, 2, 3)
        for c, d in ((5, 7), (11, 13))
    ]
    assert space.points(sweep) == expected
    assert space.points(dataclasses.replace(sweep, trials=3)) == expected[:3]


def test_one_at_a_time_changes_one_field_or_tuple_of_fields_of_the_config():
    sweep = Sweep(
        space={"a": choice("x", "y"), ("c", "d"): choice((5, 7))},
        method="one_at_a_time",
    )
    assert space.points(sweep) == [{}, {"a": "x"}, {"a": "y"}, {"c": 5, "d": 7}]


@pytest.mark.parametrize("method", ["random", "quasi_random"])
def test_a_longer_random_sequence_begins_with_a_shorter_one(method):
    domains = {
        "a": choice(2, 3, 5),
        "b": log_uniform(1e-4, 1e-1),
        "c": integers(3, 5),
        "d": uniform(-1, 1).only_if("a", 3),
    }
    short, long, other = (
        space.points(Sweep(space=domains, method=method, trials=n, random_seed=seed))
        for n, seed in ((7, 0), (211, 0), (7, 1))
    )
    assert long[:7] == short != other
    assert {point["a"] for point in long} == {2, 3, 5}
    assert {point["c"] for point in long} == {3, 4, 5}
    assert all(("d" in point) == (point["a"] == 3) for point in long)
    logs = [np.log10(point["b"]) for point in long]
    assert -4 <= min(logs) < -3.8 and -1.2 < max(logs) <= -1
    assert abs(np.mean(logs) + 2.5) < 0.3


def test_a_quasi_random_sequence_spreads_more_evenly_than_chance():
    domains = {"a": choice(*range(13)), "b": integers(0, 12)}
    sweep = Sweep(space=domains, method="quasi_random", trials=91, random_seed=3)
    rows = list(itertools.islice(space._points(sweep), 91))
    for name in domains:
        counts = np.bincount([point[name] for point in rows], minlength=13)
        assert counts.min() >= 5 and counts.max() <= 9


A = choice(1)
FAULTS = [
    ({"space": {}}, "has nothing to vary: must have a field or two seeds"),
    ({"space": [1]}, r"sweep.space is \[1\]: must be a dict"),
    ({"space": {"a": [1, 2]}}, "must be choice"),
    ({"space": {"a": uniform(0, 1)}}, "is an interval"),
    ({"space": {"seed": A}}, "list them in sweep.seeds"),
    ({"space": {("a", "b"): choice(1, 2)}}, "must have tuples of 2 values"),
    ({"space": {(): choice(())}}, "must be the name of a field, or a tuple"),
    ({"space": {("a", "a"): choice((1, 2))}}, "has a field twice"),
    ({"space": {"a": A, ("a", "b"): choice((1, 2))}}, "has a field twice"),
    ({"space": {"a": A.only_if("b", 1), "b": A}}, "depends on b, which must come befo"),
    ({"space": {"a": A, "b": A.only_if("a")}}, "has no value"),
    (
        {"space": {"a": A, "b": A.only_if("a", [1])}},
        r"depends on a = \[1\], which is n",
    ),
    (
        {"space": {("a", "c"): choice((1, 5)), "b": A.only_if("c", 1)}},
        "depends on c = 1, which is not swept",
    ),
    (
        {"space": {"a": A, "b": A.only_if("a", 1)}, "method": "one_at_a_time"},
        "has a condition, but one_at_a_time changes one field",
    ),
    (
        {"space": {"train_steps": choice(3, 6)}, "prune": Prune()},
        "all trials must be evaluated at the same steps",
    ),
    ({"method": "bayes"}, "sweep.method is 'bayes'"),
    ({"method": "random"}, "sweep.trials is None"),
    ({"trials": 0}, "sweep.trials is 0: must be .* at least 1"),
    ({"trials": "5"}, "sweep.trials is '?5'?: must be a"),
    ({"seeds": (3, 3)}, "sweep.seeds"),
    ({"seeds": 3}, "sweep.seeds is 3: must be a tuple"),
    ({"seeds": (-1,)}, "must be a tuple of different"),
    ({"metric": 5}, "sweep.metric is 5: must be the name of a metric"),
    ({"goal": "high"}, "sweep.goal is 'high'"),
    ({"split": "train"}, "sweep.split is 'train'"),
    ({"prune": True}, "sweep.prune is True: must be Pru"),
    ({"random_seed": "a"}, "sweep.random_seed is"),
]


@pytest.mark.parametrize(("fields", "message"), FAULTS)
def test_a_faulty_sweep_is_refused_in_one_line(fields, message):
    with pytest.raises(UserError, match=message) as error:
        Sweep(**({"space": {"a": A}} | fields))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (choice, (), "must be one or more different values"),
        (choice, (1, 1), "must be one or more different values"),
        (uniform, (1, 0), "high is 0: must be above 1"),
        (uniform, (math.nan, 1), "low is nan"),
        (uniform, ("x", "y"), "low is 'x': must be a number"),
        (log_uniform, (0, 1), "low is 0: must be above 0"),
        (integers, (8.5, 10), "low is 8.5: must be a whole number"),
        (integers, (True, 10), "low is True: must be a whole number"),
        (Prune, (1, 1), "sweep.prune.factor is 1: must be at least 2"),
        (Prune, (1.5, 2), "sweep.prune.after is 1.5: must be a whole number"),
    ],
)
def test_a_faulty_domain_is_refused_in_one_line(function, arguments, message):
    with pytest.raises(UserError, match=message) as error:
        function(*arguments)
    assert "\n" not in str(error.value)


def test_flags_are_a_grid_with_seeds_as_replicates():
    sweep = plans.read_grid(["model.kernel=gaussian,boxcar", "seed=2,5"])
    assert sweep == Sweep(
        space={"model.kernel": choice("gaussian", "boxcar")}, seeds=(2, 5)
    )
    texts = "model.kernel", "model.kernel=", "=a", "a=3,3", "seed=x", "seed=(0,1),(2,)"
    for text in (*texts, f"seed={'7' * 5003}", f"seed=0,{'7' * 301}"):
        with pytest.raises(UserError, match=f"^--grid={re.escape(text[:70])}") as error:
            plans.read_grid([text])
        assert len(str(error.value)) < 200


def test_a_value_of_a_grid_may_be_a_list(tmp_path):
    def values(text):
        (domain,) = plans.read_grid([f"field={text}"]).space.values()
        return domain.values

    assert values("(5,),(7,11)") == ("(5,)", "(7,11)")
    assert values("[5,7],(5, 7, [11]),13") == ("[5,7]", "(5, 7, [11])", "13")
    assert values("((3,5),7),(3x5,7)") == ("((3,5),7)", "(3x5,7)")
    # A bracket inside of a text is of the text.
    assert values("a(5,7),b)") == ("a(5", "7)", "b)")
    for faulty in ("(5,7", "(5,),", ",(5,)"):
        with pytest.raises(UserError, match="must be"):
            sweep = plans.read_grid([f"evaluation.sizes={faulty}"])
            Plan(sweep, LISTS, (), tmp_path).check()
    sweep = plans.read_grid(["evaluation.sizes=(5,),(5,6)"])
    plan = Plan(sweep, LISTS, (), tmp_path)
    plan.check()
    configs = [configuration.read(LISTS, run.overrides) for run in plan.runs()]
    assert [config.evaluation.sizes for config in configs] == [(5,), (5, 6)]


# Plans


def test_every_override_is_checked_before_the_first_run(tmp_path):
    Plan(grid(), FLAG, (), tmp_path).check()
    for domains, message in (
        ({"model.kernle": choice("gaussian")}, "did you mean config.model.kernel"),
        ({"model.kernel": choice("gaussian", "x")}, "^model.kernel=x: config.model.k"),
        ({"model.width": choice(0.5, -1.0)}, "^model.width=-1.0: .*config.model.width"),
    ):
        with pytest.raises(UserError, match=message):
            Plan(Sweep(space=domains), FLAG, (), tmp_path).check()
    kernels = choice("boxcar", "gaussian")
    width = choice(0.5, -1.0).only_if("model.kernel", "gaussian")
    learned = {"model.kernel": kernels, "model.learned": choice(False, True)}
    for domains, message in (
        (
            {"model.width": uniform(0.5, 1e9)},
            "model.width=1000000000.0: config.model.w",
        ),
        ({"model.kernel": kernels, "model.width": width}, "model.width is -1"),
        ({"data.points": uniform(11, 20)}, "data.points is '11.0': must be a whole"),
        (learned, "model.kernel=boxcar model.learned=True"),
    ):
        given = ["model.learned=False"] if domains is not learned else []
        sweep = Sweep(space=domains, method="tpe", trials=3)
        with pytest.raises(UserError, match=message):
            Plan(sweep, FLAG, given, tmp_path).check()
    assert not list(tmp_path.iterdir())


def test_a_run_is_a_trial_with_a_seed(tmp_path):
    plan = Plan(grid(seeds=(3, 5)), FLAG, ["data.points=41"], tmp_path)
    assert [run.name for run in plan.runs()][:3] == [
        "000.seed3",
        "000.seed5",
        "001.seed3",
    ]
    run = plan.runs()[-1]
    config = configuration.read(FLAG, run.overrides)
    assert (config.model.kernel, config.model.width) == ("epanechnikov", 0.7)
    assert (config.data.points, config.seed) == (41, 5)
    assert (plan.sweep.metric, plan.sweep.goal) == ("mse", "min")


def test_a_widened_sweep_keeps_the_numbers_of_its_runs(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    for run in plan.runs()[1:4]:
        put(plan, run)
    domains = {"model.kernel": choice(*KERNELS), "model.width": choice(0.3, 0.5, 0.7)}
    wide = Plan(Sweep(space=domains, seeds=(0, 1)), FLAG, (), tmp_path)
    numbers = {tuple(trial.point.values()): trial.number for trial in wide.trials}
    assert len(set(numbers.values())) == len(numbers) == 9
    for trial in plan.trials[1:4]:
        assert numbers[tuple(trial.point.values())] == trial.number


def test_another_sweep_is_refused_with_the_difference(tmp_path):
    plan = Plan(grid(seeds=(5,)), FLAG, (), tmp_path)
    put(plan, plan.runs()[3])  # triangular, 0.7
    narrow = Sweep(space={"model.kernel": choice(*KERNELS)}, seeds=(5,))
    domains = {"model.kernel": choice(*KERNELS), "model.width": uniform(0.5, 0.6)}
    drawn = Sweep(space=domains, method="tpe", trials=9, seeds=(5,))
    for sweep, overrides, message in (
        (narrow, (), r"003.seed5 is not a run of .* \(config.model.width is 0.7\)"),
        (drawn, (), "config.model.width is 0.7"),
        (plan.sweep, ["data.points=41"], "config.data.points is"),
        (plan.sweep, ["train_steps=5"], "config.train_steps is 6"),
        (grid(seeds=(0, 1)), (), "config.seed is 5"),
    ):
        with pytest.raises(UserError, match=message):
            Plan(sweep, FLAG, overrides, tmp_path)
    # Another metric or split of the same runs is accepted.
    other = grid(seeds=(5,), split="test", metric="loss", goal="min")
    assert len(Plan(other, FLAG, (), tmp_path).runs()) == 6


def test_a_run_that_was_planned_shorter_is_not_of_the_sweep(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run = plan.runs()[0]
    put(plan, run)
    extended = {"extended": [{"step": 3, "before": []}]}
    encoding.write_json(encoding.read_json(run.folder) | extended, run.folder)
    with pytest.raises(UserError, match=r"not a run of this sweep \(config.extended"):
        Plan(grid(), FLAG, (), tmp_path)


def test_a_worker_joins_only_the_sweep_of_the_folder(tmp_path):
    with pytest.raises(UserError, match="has no sweep.json: start the sweep first"):
        Plan(grid(), FLAG, (), tmp_path, joins=True)
    Plan(grid(), FLAG, (), tmp_path).save()
    worker = Plan(grid(), FLAG, (), tmp_path, joins=True)
    assert not is_done(worker)
    for sweep, overrides in (grid(seeds=(0, 1)), ()), (grid(), ["data.points=41"]):
        with pytest.raises(UserError, match="has another sweep: start again with that"):
            Plan(sweep, FLAG, overrides, tmp_path, joins=True)
    Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path).save()
    with pytest.raises(UserError, match="has another sweep: start again with that"):
        runner.Runner(worker).next()
    with pytest.raises(UserError, match="the method tpe runs on one machine only"):
        Plan(tpe_sweep(trials=3), FLAG, (), tmp_path, joins=True)


def test_the_folder_of_a_sweep_is_neither_a_run_nor_in_use(
    tmp_path, monkeypatch, capsys
):
    configuration.record(configuration.read(FLAG, ()), tmp_path / "run")
    with pytest.raises(UserError, match="run is a run directory: take another folder"):
        Plan(grid(), FLAG, (), tmp_path / "run")
    plan, original = Plan(grid(), FLAG, (), tmp_path / "s"), workers.Processes.call

    def call(self, arguments, share, *, started, **options):
        """Runs a process that sleeps until Ctrl-C stops the sweep."""

        def interrupt(number):
            started(number)
            message = f"s is in use: process {os.getpid()} on host"
            with pytest.raises(UserError, match=message):
                runner.run(plan, [share], joins=False)
            os.kill(os.getpid(), signal.SIGINT)

        command = ["-c", "import time; time.sleep(60)"]
        return original(self, command, share, started=interrupt, **options)

    monkeypatch.setattr(workers.Processes, "call", call)
    assert runner.run(plan, [workers.Share()], joins=False) == 130
    line = "stopped: 0 of 6 runs are done; the same command continues"
    assert capsys.readouterr().err.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("overrides", "flags", "message"),
    [
        (["seed=5"], ["model.kernel=gaussian"], "--config.seed: must be seeds"),
        (
            ["model.width=0.5"],
            ["model.width=0.7,0.9"],
            "--config.model.width: the sweep sets this field itself",
        ),
        ([], ["model.width=0.5,,0.7"], "must be FIELD=VALUE,VALUE"),
        ([], ["seed=0", "seed=1"], "seed must be given once"),
        ([], ["model.kernel=a", "model.kernel=b"], "model.kernel must be given once"),
        ([], ["model.width=0.5,0.50"], "model.width=0.50 is the same config as"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(overrides, flags, message, tmp_path):
    with pytest.raises(UserError, match=message):
        Plan(plans.read_grid(flags), FLAG, overrides, tmp_path)


# States


def test_progress_is_read_from_the_run_directory(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run, other = plan.runs()[:2]
    empty = state.Progress(0, 0, 6, {}, None, ())
    assert state.progress(plan, run) == empty
    put(plan, run, [2.0, 1.5], steps=3)
    expected = empty._replace(step=6, target=3, values={3: 2.0, 6: 1.5})
    assert state.progress(plan, run) == expected
    put(plan, other, [2.0], score=1.25)
    assert state.progress(plan, other).score == 1.25
    (other.folder / "eval_validation.json").write_text('{"step": 6, "bits": 7.0}')
    with pytest.raises(UserError, match="^sweep.metric is mse: must be one of bits$"):
        state.progress(plan, other)
    (other.folder / "eval_validation.json").write_text('{"step"')  # damaged
    assert state.progress(plan, other).score is None


def test_a_log_is_read_again_only_when_a_file_has_changed(tmp_path, monkeypatch):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run, calls = plan.runs()[0], []
    read = state.read_rows
    monkeypatch.setattr(
        state, "read_rows", lambda path: calls.append(path) or read(path)
    )
    put(plan, run, [7.0])
    first = state.progress(plan, run)
    assert state.progress(plan, run) == first and len(calls) == 1
    put(plan, run, [7.0, 5.0])
    assert len(state.progress(plan, run).values) == 2
    state.record_failure(plan, run, "killed")
    assert state.progress(plan, run).failures == ("killed",)
    put(plan, run, [7.0, 5.0], score=3.5)
    assert state.progress(plan, run).score == 3.5
    assert len(calls) == 4


def test_failures_without_progress_are_counted(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run = plan.runs()[0]
    state.record_failure(plan, run, "a")
    # Of a process that was killed while it saved.
    (run.folder / "checkpoints" / "2.orbax-checkpoint-tmp").mkdir(parents=True)
    state.record_failure(plan, run, "b\nc")
    assert state.progress(plan, run).failures == ("a", "b c")
    (run.folder / "checkpoints" / "3").mkdir()
    state.record_failure(plan, run, "d")
    assert state.progress(plan, run).failures == ("d",)  # after a checkpoint


def test_three_errors_or_ten_kills_are_a_failure():
    error, kill = "out of memory (status 1)", "step 7 (signal 9)"

    def has_failed(*lines):
        return state.Progress(0, 0, 6, {}, None, lines).has_failed

    assert not has_failed(error, kill, kill, error, *[kill] * 5)
    assert has_failed(error, kill, error, error)
    assert has_failed(*[kill] * 10)


def test_a_lock_is_exclusive_until_its_processes_are_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "_SETTLE", 0.0)
    plan = Plan(grid(), FLAG, (), tmp_path)
    run = plan.runs()[0]
    path = tmp_path / "locks" / run.name

    def lock():
        return state.lock(plan, run)

    first = lock()
    assert first.acquire() and not lock().acquire()
    assert [job.run for job in jobs(plan)] == plan.runs()[1:]
    first.release()
    assert not path.exists()
    second = lock()
    assert second.acquire()
    machine = second.owner.split()[-1]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    saving = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    second.add(saving.pid)
    _, _, added = path.read_text().partition(machine)
    path.write_text(f"host {ended.pid} 5 {machine}{added}")
    assert not lock().acquire()  # the run outlives its worker to save
    second.release()
    assert path.exists()  # it is not the lock of this process any more
    saving.kill()
    saving.wait()
    assert lock().acquire()
    path.write_text(f"host {ended.pid} 5 {machine} {ended.pid} ")  # gone when added
    assert lock().acquire()
    path.write_text(f"elsewhere {ended.pid} 5 other")
    assert not lock().acquire()  # without waiting
    os.utime(path, (old := time.time() - 121, old))
    assert lock().acquire()


# Schedules


def jobs(plan, count=1000):
    """The jobs that can be done at the same time now; releases their locks."""
    plan.save()
    taken = list(itertools.islice(iter(runner.Runner(plan).next, None), count))
    for job in taken:
        job.lock.release()
    return taken


def is_done(plan):
    return not scheduler.open_runs(plan) and not plan.is_growing


def test_runs_that_are_scored_or_failed_are_not_run_again(tmp_path):
    plan = Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path)
    runs = plan.runs()
    put(plan, runs[2], [2.0, 1.5], score=1.0)
    put(plan, runs[3], [2.0, 1.5])  # trained, not evaluated
    put(plan, runs[4], [2.0])  # stopped half-way
    for _ in range(state.MAX_ERRORS):
        state.record_failure(plan, runs[5], "killed")
    names = [job.run.name for job in jobs(plan)]
    assert names == [run.name for run in runs if run not in (runs[2], runs[5])]
    assert all(job.step == 6 and job.final for job in jobs(plan))
    assert not is_done(plan)
    for run in runs:
        put(plan, run, score=1.0)
    assert not jobs(plan) and is_done(plan)


def test_fields_that_a_resumed_run_may_change_are_swept_too(tmp_path):
    domains = {"train_steps": choice("5", "3"), "non_finite": choice("stop", "skip")}
    plan = Plan(Sweep(space=domains), FLAG, (), tmp_path)
    expected = [(5, True), (5, True), (3, True), (3, True)]
    assert [(job.step, job.final) for job in jobs(plan)] == expected
    # A run is scored when its own number of steps is done.
    for run, steps in zip(plan.runs(), (5, 5, 3, 3), strict=True):
        put(plan, run, [2.0], score=1.0, steps=steps)
    path = plan.runs()[1].folder / "eval_validation.json"
    path.write_text(json.dumps({"step": 3, plan.sweep.metric: 1.0}))
    assert [job.run.trial.number for job in jobs(plan)] == [1]
    again = Plan(Sweep(space=domains), FLAG, (), tmp_path)
    assert again.trials == plan.trials


def test_the_best_third_goes_on_and_the_others_can_follow(tmp_path):
    domains = {"model.width": choice(*(0.1 * n for n in range(1, 8)))}
    sweep = Sweep(space=domains, prune=Prune(after=1, factor=3))
    plan = Plan(sweep, FLAG, ["train_steps=40", "eval_every=3"], tmp_path)
    runs = plan.runs()
    assert plan.rungs == (3, 9, 27)
    assert [(job.step, job.final) for job in jobs(plan)] == [(3, False)] * 7
    values = [5.0, 3.0, 4.0, 7.0, 2.0, 6.0, 8.0]
    for run, value in zip(runs[:2], values[:2], strict=True):
        put(plan, run, [value], steps=3)
    assert {job.run.trial.number for job in jobs(plan)} == {2, 3, 4, 5, 6}
    put(plan, runs[2], [values[2]], steps=3)  # three are there: the best goes on
    first, *others = jobs(plan)
    assert (first.run, first.step, first.final) == (runs[1], 9, False)
    assert [job.step for job in others] == [3] * 4
    for run, value in zip(runs, values, strict=True):
        put(plan, run, [value], steps=3)
    assert {(job.run.trial.number, job.step) for job in jobs(plan)} == {(4, 9), (1, 9)}
    # A trial that has begun the next rung stays there, whatever comes later.
    put(plan, runs[2], [4.0, 3.9, 3.8], steps=9)
    put(plan, runs[1], [3.0, 2.9, 2.8], steps=9)
    assert [job.run.trial.number for job in jobs(plan)] == [4]
    put(plan, runs[4], [2.0, 1.9, 1.8], steps=9)
    (job,) = jobs(plan)
    assert job.run == runs[4] and job.step == 27
    # The runs of stopped trials belong to the sweep when it is started again.
    assert Plan(sweep, FLAG, plan._overrides, tmp_path).trials == plan.trials


def test_one_of_a_few_trials_is_trained_to_the_end(tmp_path):
    sweep = Sweep(space={"model.width": choice(0.5, 0.7)}, prune=Prune(after=1))
    plan = Plan(sweep, FLAG, (), tmp_path)
    first, second = plan.runs()
    put(plan, first, [2.0], steps=3)
    assert [job.run for job in jobs(plan)] == [second]
    put(plan, second, [1.0], steps=3)  # no third of two: the best goes on
    (job,) = jobs(plan)
    assert (job.run, job.step, job.final) == (second, 6, True)
    put(plan, second, [1.0, 0.9], score=0.9)
    assert is_done(plan)
    report.write(plan, state.rows(plan))
    line = "| 0 | 0.5 | – (0 of 1 seeds) | stopped at 3 of 6 steps: 2 |"
    assert line in (tmp_path / "table.md").read_text()


def test_a_trial_is_pruned_by_its_mean_over_seeds(tmp_path):
    domains = {"model.width": choice(0.5, 0.7)}
    sweep = Sweep(space=domains, seeds=(0, 1), prune=Prune(after=1, factor=2))
    plan = Plan(sweep, FLAG, (), tmp_path)
    values = {"000.seed0": 1.0, "000.seed1": 9.0, "001.seed0": 4.0, "001.seed1": 4.0}
    for run in plan.runs()[:3]:
        put(plan, run, [values[run.name]], steps=3)
    assert [job.run.name for job in jobs(plan)] == ["001.seed1"]
    put(plan, plan.runs()[3], [4.0], steps=3)
    assert [(job.run.name, job.step, job.final) for job in jobs(plan)] == [
        ("001.seed0", 6, True),
        ("001.seed1", 6, True),
    ]
    with pytest.raises(UserError, match="sweep.prune.after is 2: must be below 2"):
        late = dataclasses.replace(sweep, prune=Prune(after=2))
        Plan(late, FLAG, (), tmp_path / "late")


def test_pruning_and_suggestions_need_a_metric_of_the_evaluation(tmp_path):
    with pytest.raises(UserError, match="^sweep.goal is missing: the metric bleu"):
        Plan(grid(metric="bleu"), FLAG, (), tmp_path)
    for fields in ({"prune": Prune()}, {"method": "tpe", "trials": 2}):
        sweep = grid(metric="bleu", goal="max", **fields)
        plan = Plan(sweep, FLAG, (), tmp_path / fields.get("method", "grid"))
        if not plan.trials:
            plan.add(space.points(grid())[0])
        run = plan.runs()[0]
        put(plan, run, [1.0], steps=3)
        log = run.folder / "metrics.jsonl"
        log.write_text(log.read_text().replace("bleu", "mse"))
        with pytest.raises(UserError, match="^sweep.metric is bleu: must be one of ms"):
            scheduler.open_runs(plan)


# Studies


def tpe_sweep(**fields):
    domains = {
        "model.kernel": choice(*KERNELS),
        "optimizer.learning_rate": log_uniform(1e-3, 1e-1),
        "data.points": integers(11, 53).only_if("model.kernel", "gaussian"),
    }
    return Sweep(space=domains, method="tpe", **fields)


def test_suggestions_are_rebuilt_from_the_runs_alone(tmp_path):
    def advance(plan, count):
        plan.save()
        trials = runner.Runner(plan)
        for _ in range(count):
            job = trials.next()
            point = job.run.trial.point
            distance = abs(np.log10(point["optimizer.learning_rate"]) + 2.5)
            value = distance + (point["model.kernel"] != "triangular")
            put(plan, job.run, [value, value], score=value)
            job.lock.release()

    plan = Plan(tpe_sweep(trials=31), FLAG, (), tmp_path / "killed")
    (tmp_path / "killed").mkdir()
    (tmp_path / "calm").mkdir()
    advance(plan, 13)
    again = Plan(tpe_sweep(trials=31), FLAG, (), tmp_path / "killed")
    assert again.trials == plan.trials
    advance(again, 18)
    assert len(again.trials) == 31 and is_done(again)
    calm = Plan(tpe_sweep(trials=31), FLAG, (), tmp_path / "calm")
    advance(calm, 31)
    assert calm.trials == again.trials
    points = [trial.point for trial in calm.trials]
    conditional = [point["model.kernel"] == "gaussian" for point in points]
    assert [("data.points" in point) for point in points] == conditional
    # The first ten are random.
    values = [row.mean for row in state.rows(calm)]
    assert np.mean(values[20:]) < np.mean(values[:10]) - 0.2


def test_a_running_trial_is_not_suggested_again(tmp_path):
    plan = Plan(tpe_sweep(trials=3), FLAG, (), tmp_path)
    plan.save()
    trials = runner.Runner(plan)
    taken = [trials.next() for _ in range(3)]
    assert len({repr(job.run.trial.point) for job in taken}) == 3
    assert trials.next() is None
    for job in taken:
        job.lock.release()


def test_a_study_has_the_state_of_each_trial(tmp_path):
    """The validation metric chooses trials; the score is that of the test split."""
    sweep = tpe_sweep(trials=9, prune=Prune(after=1, factor=2), split="test")
    plan = Plan(sweep, FLAG, (), tmp_path)
    for _ in range(6):
        study.suggest(plan, state.rows(plan))
    done, stopped, diverged, failed, running, _ = plan.runs()
    put(plan, done, [2.0, 1.0], score=7.0)
    put(plan, stopped, [0.5], steps=3)
    put(plan, diverged, [math.nan], steps=3)
    for _ in range(state.MAX_ERRORS):
        state.record_failure(plan, failed, "error")
    put(plan, running, steps=3)
    for scored, last in (False, "RUNNING"), (True, "WAITING"):
        built = study.build(plan, state.rows(plan), scored=scored)
        assert [trial.state.name for trial in built.trials] == [
            "COMPLETE",
            "PRUNED",
            "FAIL",
            "FAIL",
            "RUNNING",
            last,
        ]
        assert built.trials[1].intermediate_values == {3: 0.5}
        assert built.best_trial.number == 0  # not the early value
        assert built.best_value == (7.0 if scored else 1.0)
    assert built.trials[0].user_attrs == {done.name: 7.0}


def test_suggestions_rank_early_values_below_final_ones(tmp_path):
    """Early values of trials that were stopped are lower than all final ones."""
    sweep = tpe_sweep(trials=40, prune=Prune(after=1, factor=2))
    plan = Plan(sweep, FLAG, (), tmp_path)
    rows, near = [], []
    while len(plan.trials) < 36:
        trial = study.suggest(plan, rows)
        distance = abs(np.log10(trial.point["optimizer.learning_rate"]) + 2.5)
        near.append(distance < 0.25)  # a quarter; the others are stopped
        values = {3: 0.0} | ({6: 1 + distance} if near[-1] else {})
        progress = state.Progress(6, 6, 6, values, None, ())
        rows.append(state.Row(trial, (progress,)))
    assert np.mean(near[12:]) > 0.4, near


def test_a_study_is_exported_for_other_tools(tmp_path):
    path = tmp_path / "study.db"
    plan = Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path / "s")
    runs = plan.runs()
    put(plan, runs[0], [4.0, 3.0], score=3.0)
    study.export(plan, path)
    for i, run in enumerate(runs[:4]):
        put(plan, run, [4.0, 3.0 + i], score=3.0 + i)
    study.export(plan, path)  # in place of the earlier one
    other = Plan(tpe_sweep(trials=2), FLAG, (), tmp_path / "other")
    study.export(other, path)
    storage = f"sqlite:///{path}"
    names = {str(tmp_path / "s"), str(tmp_path / "other")}
    assert {*optuna.get_all_study_names(storage)} == names
    loaded = optuna.load_study(study_name=str(tmp_path / "s"), storage=storage)
    assert loaded.direction.name == "MINIMIZE" and loaded.metric_names == ["mse"]
    assert [trial.value for trial in loaded.trials] == [3.5, 5.5, *[None] * 4]
    assert loaded.best_params == {"model.kernel": "gaussian", "model.width": "0.5"}
    assert loaded.trials[1].intermediate_values == {3: 4.0, 6: 5.5}
    assert loaded.trials[1].user_attrs == {"001.seed0": 5.0, "001.seed1": 6.0}
    (tmp_path / "text.db").write_text("text " * 300)
    for name in ("text.db", "nothing/study.db"):
        with pytest.raises(UserError, match=f"^--export=.*{name} cannot be") as error:
            study.export(plan, tmp_path / name)
        assert "\n" not in str(error.value)


# Tables and plots


def test_the_tables_have_the_mean_and_spread_over_seeds(tmp_path):
    plan = Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path)
    for i, run in enumerate(plan.runs()[:5]):
        put(plan, run, [4.0, 3.0 + i], score=10.0 - i**2)
    report.write(plan, state.rows(plan))
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["1", "0", "2", "3", "4", "5"]
    scores = [float(rows[0][f"mse_seed{seed}"]) for seed in (0, 1)]
    assert scores == [6.0, 1.0] and float(rows[0]["mse"]) == 3.5
    assert float(rows[0]["mse_sd"]) == statistics.stdev(scores)
    assert rows[2]["mse"] == "" and rows[2]["mse_seed0"] == "-6.0"
    text = (tmp_path / "table.md").read_text()
    assert "| 1 | gaussian | 0.7 | 3.5 ± 3.5 |  |" in text
    cells = "| 2 | triangular | 0.5 | – (1 of 2 seeds) | seed 1: 0 of 6 steps |"
    assert cells in text
    plan = Plan(grid(prune=Prune(after=1, factor=2)), FLAG, (), tmp_path / "pruned")
    put(plan, plan.runs()[0], [4.0], steps=3)
    report.write(plan, state.rows(plan))
    text = (tmp_path / "pruned" / "table.md").read_text()
    assert "| – (0 of 1 seeds) | stopped at 3 of 6 steps: 4 |" in text


def test_values_that_are_not_finite_are_last(tmp_path):
    sweep = Sweep(space={"model.width": choice(0.5, 0.7, 0.9)}, seeds=(0, 1))
    plan = Plan(sweep, FLAG, (), tmp_path)
    scores = (math.nan, 1.0, 2.0, 2.0, math.inf, 1.0)
    for run, score in zip(plan.runs(), scores, strict=True):
        put(plan, run, [score, score], score=score)
    report.write(plan, state.rows(plan))
    with (tmp_path / "table.csv").open() as file:
        assert [row["trial"] for row in csv.DictReader(file)] == ["1", "0", "2"]
    assert is_done(plan)
    built = study.build(plan, state.rows(plan))
    assert [trial.value for trial in built.trials] == [None, 2.0, None]


@pytest.mark.parametrize(
    ("sweep", "scored", "expected"),
    [
        (grid(), 6, {"learning_curves", "metric_by_trial", "parallel_coordinates",
                     "slices", "importance"}),
        (grid(), 1, {"learning_curves"}),
        (grid(), 0, set()),
        (
            Sweep(space={"model.width": choice(0.5, 0.7),
                         ("data.points", "model.kernel"): choice((41, "boxcar"))},
                  method="one_at_a_time"),
            4,
            {"learning_curves", "metric_by_trial", "parallel_coordinates", "slices"},
        ),
        (Sweep(space={}, seeds=(0, 1)), 2, {"learning_curves"}),
    ],
)  # fmt: skip
def test_plots_are_drawn_of_what_can_be_compared(
    tmp_path, monkeypatch, sweep, scored, expected
):
    plan = Plan(sweep, FLAG, (), tmp_path)
    for i, run in enumerate(plan.runs()[:scored]):
        put(plan, run, [4.0, 3.0 + i], score=3.0 + i)
    titles, labels, entitle = {}, [], study._entitle

    def entitled(figure, name, *args):
        entitle(figure, name, *args)
        titles[name] = figure.get_suptitle() or figure.axes[0].get_title()
        if name == "learning_curves":
            labels.extend(x.get_label() for x in figure.axes[0].lines)

    monkeypatch.setattr(study, "_entitle", entitled)
    study.plot(plan, state.rows(plan))
    assert {*titles} == expected and not any("Plot" in x for x in titles.values())
    if labels and plan.sweep.space:
        assert labels[0] == f"0: {space.describe(plan.trials[0].point)}"
    sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("plots/*")}
    assert {*sizes} == expected
    assert all(size > 5000 for size in sizes.values())


# Processes


def test_workers_share_the_cores_evenly_or_have_a_gpu_each(monkeypatch):
    monkeypatch.setattr(workers.shutil, "which", lambda _: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {3, 5, 7, 9, 11})
    (single,) = workers.shares(1, "--workers")
    assert single == workers.Share((3, 5, 7, 9, 11))
    parts = workers.shares(2, "--workers")
    assert parts == [workers.Share((3, 7, 11)), workers.Share((5, 9))]
    for count in (0, 6):
        message = f"^--workers is {count}: must be at least 1 and at most 5$"
        with pytest.raises(UserError, match=message):
            workers.shares(count, "--workers")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-7")
    assert [part.gpu for part in workers.shares(2, "--workers")] == ["2", "GPU-7"]
    with pytest.raises(UserError, match="at most 2"):
        workers.shares(3, "--workers")


def test_a_process_has_its_cores_and_ends_with_its_parent(tmp_path):
    code = "import os; print(os.sched_getaffinity(0), flush=True)"
    core = min(os.sched_getaffinity(0))
    log = tmp_path / "log.txt"
    processes = workers.Processes()
    share = workers.Share((core,))
    assert processes.call(["-c", code], share, folder=tmp_path, log=log) == 0
    assert log.read_text().strip() == str({core})
    parent = (
        "from sweeps import workers; from pathlib import Path; "
        "workers.Processes().call(['-c', 'import os, time; "
        "print(os.getpid(), flush=True); time.sleep(60)'], workers.Share(), "
        "folder=Path('.'))"
    )
    outer = subprocess.Popen(
        [sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    child = int(outer.stdout.readline())
    assert sweep_storm.is_running(child)
    outer.kill()
    outer.wait()
    for _ in range(100):
        if not sweep_storm.is_running(child):
            break
        time.sleep(0.1)
    assert not sweep_storm.is_running(child)


GRID_FLAGS = "--grid=model.kernel=gaussian,triangular", "--grid=seed=0,1"


def test_a_dry_run_estimates_the_time(tmp_path, monkeypatch, capsys):
    sweep = Sweep(space={"model.width": choice(0.5, 0.7)}, seeds=(0, 1))
    plan = Plan(sweep, FLAG, (), tmp_path)
    for seconds, expected in (
        (0.01, "less than a second"),
        (0.5, "about 6.0 seconds"),
        (10, "about 2.0 minutes"),
        (3600.0, "about 12.0 hours"),
    ):
        monkeypatch.setattr(estimate, "_seconds_per_step", lambda *_, x=seconds: x)
        estimate.show(plan, [workers.Share()] * 2)
        first, second, total = capsys.readouterr().out.splitlines()
        assert first == "000  model.width=0.5  1 parameter"
        assert second.startswith("001  model.width=0.7")
        assert total.startswith(f"4 runs of 6 steps: {expected} with 2 workers")
    translator = str(ROOT / "configs/luong_nmt.py:smoke")
    sweep = Sweep(space={"model.score": choice("dot")})
    estimate.show(Plan(sweep, translator, (), tmp_path), [workers.Share()])
    assert re.search("^1 run of .* with 1 worker at", capsys.readouterr().out, re.M)


def test_a_dry_run_prepares_the_inputs_of_each_encoder(tmp_path, monkeypatch):
    def prepare(config, workdir, *, training):
        if config.model.encoder == "maps":
            raise UserError("maps are prepared")
        return SimpleNamespace(
            vocabulary=SimpleNamespace(size=9), blank=lambda: np.zeros((1, 32, 32, 3))
        )

    monkeypatch.setattr(Captioning, "prepare", prepare)
    captioner = str(ROOT / "configs/captioning.py:smoke")
    sweep = Sweep(space={"model.encoder": choice("cnn", "maps")})
    with pytest.raises(UserError, match="maps are prepared"):
        estimate.show(Plan(sweep, captioner, (), tmp_path), [workers.Share()])


def test_a_dry_run_times_a_run_that_ends_before_its_schedule(
    tmp_path, monkeypatch, capsys
):
    flag = LISTS

    def call(self, command, share, *, folder, log):
        prefix = "--config."
        given = [x.removeprefix(prefix) for x in command if x.startswith(prefix)]
        config = configuration.read(flag, given)
        create(config, tmp_path / "run", training=True)  # as train.py checks it
        (workdir,) = (x[10:] for x in command if x.startswith("--workdir="))
        Path(workdir).mkdir()
        row = {"step": config.train_steps, "split": "train", "seconds": 1.0}
        row["steps_per_second"] = 4.0
        (Path(workdir) / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        return 0

    monkeypatch.setattr(workers.Processes, "call", call)
    sweep = Sweep(space={"model.glimpses": choice(0, 1)})
    estimate.show(Plan(sweep, flag, (), tmp_path / "s"), [workers.Share()])
    assert re.search("^2 runs of 6 steps: about", capsys.readouterr().out, re.M)


@pytest.mark.parametrize("fail_fast", [False, True])
def test_a_run_that_fails_three_times_has_failed(
    tmp_path, monkeypatch, capsys, fail_fast
):
    plan = Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path)
    calls, plotted = [], []

    def call(self, arguments, share, *, folder, log, started):
        name = next(x for x in arguments if x.startswith("--workdir="))
        run = next(x for x in plan.runs() if name.endswith(x.name))
        calls.append((arguments[0], run.name))
        log.write_text("ok\nerror: no luck\n")
        if run.name == "001.seed0":
            return 3
        put(plan, run, [2.0, 1.0], score=1.0 if arguments[0] == "eval.py" else None)
        return 0

    monkeypatch.setattr(workers.Processes, "call", call)
    monkeypatch.setattr(study, "plot", lambda plan, rows: plotted.append(len(rows)))
    message = r"^1 of 12 runs failed \(001.seed0\): error: no luck \(status 3\)"
    with pytest.raises(UserError, match=message):
        runner.run(plan, [workers.Share()], joins=False, fail_fast=fail_fast)
    assert calls.count(("train.py", "001.seed0")) == 3
    done = [run.name for run in plan.runs() if state.progress(plan, run).score]
    assert done == ["000.seed0", "000.seed1"] if fail_fast else len(done) == 11
    assert calls.count(("eval.py", "000.seed0")) == 1
    assert "000.seed0  model.kernel=gaussian model.width=0.5  mse 1" in (
        capsys.readouterr().err
    )
    assert not any((tmp_path / "locks").iterdir())
    assert (tmp_path / "table.csv").exists() and plotted == [6]


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_table(tmp_path):
    """Kills of the coordinator and of runs; the table equals an undisturbed one."""
    command = sweep_storm.command(tmp_path / "calm", *GRID_FLAGS)
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0
    status, kills = sweep_storm.storm(
        tmp_path / "storm", GRID_FLAGS, number=6, rng=np.random.default_rng(0)
    )
    assert status == 0 and sum(kills.values()) == 6 and kills["coordinator"]
    tables = [(tmp_path / name / "table.csv").read_text() for name in ("calm", "storm")]
    assert tables[0] == tables[1]
    runs = sorted(path.name for path in (tmp_path / "storm" / "trials").iterdir())
    assert runs == [f"{n:03}.seed{s}" for n in (0, 1) for s in (0, 1)]
    for name in runs:
        path = tmp_path / "storm" / "trials" / name / "metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        steps = [row["step"] for row in rows if row["split"] == "validation"]
        assert steps == sorted(set(steps))
