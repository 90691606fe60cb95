"""Sweeps: spaces, plans, states, schedules, suggestions, tables."""

import csv
import dataclasses
import itertools
import json
import math
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest
import sweep_storm
from smoke import ROOT

from base.errors import UserError
from sweeps import main, report, runner, space, state, tpe, workers
from sweeps.plan import Plan
from sweeps.scheduler import Scheduler, rungs
from sweeps.space import Prune, Sweep, choice, integers, log_uniform, uniform
from training import configuration

FLAG = sweep_storm.CONFIG
LISTS = str(ROOT / "configs/pointer_sorting.py") + ":smoke"
KERNELS = ("gaussian", "triangular", "epanechnikov")


def grid(**fields):
    domains = {"model.kernel": choice(*KERNELS), "model.width": choice(0.5, 0.7)}
    return Sweep(space=domains, **fields)


def put(plan, run, values=(), score=None, steps=None, **deaths):
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
    sweep = Sweep(
        space={"a": integers(0, 12)}, method="quasi_random", trials=1, random_seed=3
    )
    rows = space._points(sweep)
    counts = np.bincount([next(rows)["a"] for _ in range(13 * 7)], minlength=13)
    assert counts.min() >= 5 and counts.max() <= 9


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (Sweep(space={}), "has nothing to vary: must have a field or two seeds"),
        (Sweep(space={"a": choice()}), r"sweep.space\['a'\] is empty"),
        (Sweep(space={"a": choice(1, 1)}), "must be different values"),
        (Sweep(space={"a": [1, 2]}), r"sweep.space\['a'\] is \[1, 2\]: must be choice"),
        (Sweep(space={"a": uniform(0, 1)}), "is an interval: the method grid takes"),
        (
            Sweep(
                space={"a": choice(1), "b": choice(2).only_if("a", 1)},
                method="one_at_a_time",
            ),
            "has a condition, but one_at_a_time changes one field",
        ),
        (Sweep(space={"seed": choice(0, 1)}), "list them in sweep.seeds"),
        (Sweep(space={("a", "b"): choice(1, 2)}), "must be a tuple of 2 values"),
        (
            Sweep(space={"a": choice(1).only_if("b", 2), "b": choice(2)}),
            "depends on b, which must come before it in the space",
        ),
        (Sweep(space={"a": choice(1)}, method="bayes"), "sweep.method is 'bayes'"),
        (Sweep(space={"a": choice(1)}, goal="high"), "sweep.goal is 'high'"),
        (Sweep(space={"a": choice(1)}, split="train"), "sweep.split is 'train'"),
        (Sweep(space={"a": choice(1)}, seeds=(3, 3)), "sweep.seeds"),
        (Sweep(space={"a": choice(1)}, method="random"), "sweep.trials is missing"),
        (Sweep(space={"a": choice(1)}, trials=0), "sweep.trials is 0: must be at"),
        (
            Sweep(space={"a": uniform(1, 0)}, method="tpe", trials=2),
            "an interval with low < high",
        ),
        (
            Sweep(space={"a": log_uniform(0, 1)}, method="tpe", trials=2),
            "an interval above 0",
        ),
        (Sweep(space={"a": choice(1)}, prune=Prune(factor=1)), "sweep.prune"),
        (Sweep(space=[1]), r"sweep.space is \[1\]: must be a dict"),
        (Sweep(space={"a": choice(1)}, seeds=3), "sweep.seeds is 3: must be a tuple"),
        (Sweep(space={"a": choice(1)}, seeds=(-1,)), "must be a tuple of different"),
        (Sweep(space={"a": choice(1)}, trials="5"), "sweep.trials is '?5'?: must be a"),
        (Sweep(space={"a": choice(1)}, prune=True), "sweep.prune is True: must be Pru"),
        (Sweep(space={"a": choice(1)}, prune=Prune(after=1.5)), "with whole numbers"),
        (Sweep(space={"a": choice(1)}, random_seed="a"), "sweep.random_seed is"),
        (Sweep(space={(): choice(())}), "must be the name of a field, or a tuple"),
        (Sweep(space={("a", "a"): choice((1, 2))}), "has a field twice"),
        (
            Sweep(space={"a": choice(1), ("a", "b"): choice((1, 2))}),
            "sweep.space has a twice",
        ),
        (
            Sweep(space={"a": uniform("x", "y")}, method="tpe", trials=2),
            "must be two numbers",
        ),
        (
            Sweep(space={"a": integers(8.5, 10)}, method="tpe", trials=2),
            "must be two whole numbers",
        ),
        (
            Sweep(space={"a": choice(1), "b": choice(2).only_if("a")}),
            "has no value",
        ),
        (
            Sweep(space={"a": choice("x"), "b": choice(2).only_if("a", ["x"])}),
            r"depends on a = \['x'\], which is not swept",
        ),
        (
            Sweep(space={("a", "c"): choice((1, 5)), "b": choice(2).only_if("c", 1)}),
            "depends on c = 1, which is not swept",
        ),
        (
            Sweep(space={"train_steps": choice(3, 6)}, prune=Prune()),
            "all trials must be evaluated at the same steps",
        ),
    ],
)
def test_a_faulty_sweep_is_refused_in_one_line(sweep, message):
    with pytest.raises(UserError, match=message) as error:
        space.check(sweep)
    assert "\n" not in str(error.value)


def test_flags_are_a_grid_with_seeds_as_replicates():
    sweep = main.read_grid(["model.kernel=gaussian,boxcar", "seed=2,5"])
    assert sweep == Sweep(
        space={"model.kernel": choice("gaussian", "boxcar")}, seeds=(2, 5)
    )
    for text in ("model.kernel", "model.kernel=", "=a", "seed=x", "seed=(0,1),(2,)"):
        with pytest.raises(UserError, match=f"^--grid={re.escape(text)}: "):
            main.read_grid([text])


def test_a_value_of_a_grid_may_be_a_list(tmp_path):
    def values(text):
        (domain,) = main.read_grid([f"field={text}"]).space.values()
        return domain.values

    assert values("(5,),(7,11)") == ("(5,)", "(7,11)")
    assert values("[5,7],(5, 7, [11]),13") == ("[5,7]", "(5, 7, [11])", "13")
    assert values("((3,5),7),(3x5,7)") == ("((3,5),7)", "(3x5,7)")
    # A bracket inside of a text is of the text.
    assert values("a(5,7),b)") == ("a(5", "7)", "b)")
    for faulty in ("(5,7", "(5,),", ",(5,)"):
        with pytest.raises(UserError, match="must be"):
            plan = Plan(
                main.read_grid([f"evaluation.sizes={faulty}"]), LISTS, (), tmp_path
            )
            plan.check()
    plan = Plan(main.read_grid(["evaluation.sizes=(5,),(5,6)"]), LISTS, (), tmp_path)
    plan.check()
    sizes = [
        configuration.read(LISTS, run.overrides).evaluation.sizes for run in plan.runs()
    ]
    assert sizes == [(5,), (5, 6)]


@pytest.mark.parametrize("text", ["7" * 5003, "0," + "7" * 301])
def test_a_seed_of_many_digits_is_refused_in_one_line(text):
    with pytest.raises(UserError, match="seeds must be whole numbers$") as error:
        main.read_grid([f"seed={text}"])
    assert len(str(error.value)) < 200


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
    ends = {"model.width": uniform(0.5, 1e9)}
    sweep = Sweep(space=ends, method="tpe", trials=3)
    with pytest.raises(UserError, match="model.width=1000000000.0: config.model.width"):
        Plan(sweep, FLAG, (), tmp_path).check()
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


@pytest.mark.parametrize("journal", [True, False])
def test_a_widened_sweep_keeps_the_numbers_of_its_runs(tmp_path, journal):
    plan = Plan(grid(), FLAG, (), tmp_path)
    plan.save()
    for run in plan.runs()[1:4]:
        put(plan, run)
    if not journal:
        (tmp_path / "sweep.json").unlink()
    domains = {"model.kernel": choice("gaussian", *KERNELS[1:])}
    domains["model.width"] = choice(0.3, 0.5, 0.7)
    wide = Plan(Sweep(space=domains, seeds=(0, 1)), FLAG, (), tmp_path)
    numbers = {tuple(trial.point.values()): trial.number for trial in wide.trials}
    assert len(set(numbers.values())) == len(numbers) == 9
    for trial in plan.trials[1:4]:
        assert numbers[tuple(trial.point.values())] == trial.number


@pytest.mark.parametrize("journal", [True, False])
def test_another_sweep_is_refused_with_the_difference(tmp_path, journal):
    plan = Plan(grid(), FLAG, (), tmp_path)
    plan.save()
    put(plan, plan.runs()[3])  # triangular, 0.7
    if not journal:
        (tmp_path / "sweep.json").unlink()
    domains = {"model.kernel": choice("gaussian"), "model.width": choice(0.5, 0.7)}
    narrow = Sweep(space=domains)
    message = r"003.seed0 is not a run of this sweep \(config.model.kernel is triang"
    if journal:
        message = r"has another sweep: sweep.space\['model.kernel'\] lacks triangular"
    with pytest.raises(UserError, match=message):
        Plan(narrow, FLAG, (), tmp_path)
    with pytest.raises(UserError, match="config.data.points"):
        Plan(grid(), FLAG, ["data.points=41"], tmp_path)
    if journal:
        with pytest.raises(UserError, match="sweep.split is test: must be validation"):
            Plan(grid(split="test"), FLAG, (), tmp_path)
    deep, digits = "[" * 100_003, '{"sweep": ' + "7" * 5003 + "}"
    objects = '{"sweep": [], "config": {}}', '{"sweep": {"space": 3}}'
    for text in ("{", *objects, "7", deep, digits, "[" * 701 + "]" * 701):
        (tmp_path / "sweep.json").write_text(text)
        with pytest.raises(UserError, match="is damaged: delete it, and it is rebuil"):
            Plan(grid(), FLAG, (), tmp_path)


def test_a_narrower_sweep_is_refused_with_what_it_lacks(tmp_path):
    domains = {"model.width": log_uniform(0.5, 0.8), "model.kernel": choice(*KERNELS)}
    sweep = Sweep(space=domains, method="tpe", trials=9, seeds=(0, 1))
    Plan(sweep, FLAG, (), tmp_path).make_folder()
    Plan(sweep, FLAG, (), tmp_path).save()
    wide = {"model.width": log_uniform(0.3, 0.8), "model.kernel": choice(*KERNELS)}
    Plan(dataclasses.replace(sweep, space=wide, trials=10), FLAG, (), tmp_path)
    for fields, message in (
        ({"trials": 8}, "sweep.trials is 8: must be at least 9"),
        ({"seeds": (0, 2)}, "sweep.seeds lacks 1"),
        ({"space": domains | {"model.kernel": choice(*KERNELS[1:])}}, "lacks gaussian"),
        (
            {"space": domains | {"model.width": uniform(0.5, 0.8)}},
            "must be of the kind",
        ),
        ({"space": domains | {"model.width": log_uniform(0.6, 0.8)}}, "must contain"),
        ({"space": {"model.width": domains["model.width"]}}, "lacks model.kernel"),
    ):
        with pytest.raises(UserError, match=f"has another sweep: .*{message}"):
            Plan(dataclasses.replace(sweep, **fields), FLAG, (), tmp_path)
    joined = dataclasses.replace(sweep, trials=10)
    with pytest.raises(UserError, match="sweep.trials is 10: must be 9"):
        Plan(joined, FLAG, (), tmp_path, joins=True)


def test_a_run_that_was_planned_shorter_is_not_of_the_sweep(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    plan.make_folder()
    plan.save()
    run = plan.runs()[0]
    put(plan, run)
    path = run.folder / "config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"extended": [{"step": 3, "before": []}]}))
    with pytest.raises(UserError, match=r"not a run of this sweep \(config.extended"):
        plan.verify(run)


def test_a_run_is_verified_before_it_starts(tmp_path):
    plan, scheduler = (plan := Plan(grid(), FLAG, (), tmp_path)), Scheduler(plan)
    plan.make_folder()
    plan.save()
    other = Plan(grid(), FLAG, (), tmp_path).runs()[1]
    put(plan, plan.runs()[0]._replace(overrides=other.overrides))
    with pytest.raises(UserError, match="000.seed0 is not a run of this sweep"):
        scheduler.next()
    assert list(state.claimed(plan)) == []
    shutil.rmtree(tmp_path / "trials/000.seed0")
    (job,) = jobs(scheduler, 1)
    assert job.run.name == "000.seed0"
    Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path).save()
    with pytest.raises(UserError, match="has been given another sweep: start again"):
        scheduler.next()


def test_the_folder_of_a_sweep_is_neither_a_run_nor_in_use(tmp_path, monkeypatch):
    configuration.record(configuration.read(FLAG, ()), tmp_path / "run")
    with pytest.raises(UserError, match="run is a run directory: take another folder"):
        Plan(grid(), FLAG, (), tmp_path / "run")
    command = sweep_command(tmp_path / "s")
    first = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    while not sweep_storm.processes(tmp_path / "s"):
        assert first.poll() is None
        time.sleep(0.1)
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    first.send_signal(signal.SIGINT)
    assert first.wait() == 130
    assert second.returncode == 1 and second.stderr.count("\n") == 1
    assert f"s is in use: process {first.pid} on host" in second.stderr


@pytest.mark.parametrize(
    ("overrides", "flags", "message"),
    [
        (["seed=5"], ["model.kernel=gaussian"], "--config.seed: seeds are replicates"),
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
        Plan(main.read_grid(flags), FLAG, overrides, tmp_path)


def test_suggestions_are_checked_by_value_and_condition(tmp_path):
    widths = {"model.width": choice(0.5, -1.0).only_if("model.kernel", "gaussian")}
    for domains, message in (
        ({"model.kernel": choice("boxcar", "gaussian")} | widths, "model.width is -1"),
        ({"data.points": uniform(11, 20)}, "data.points is '14.33': must be a whole"),
        (
            {
                "model.kernel": choice("gaussian", "boxcar"),
                "model.learned": choice(True, False),
            },
            "model.kernel=boxcar model.learned=true",
        ),
    ):
        sweep = Sweep(space=domains, method="tpe", trials=3)
        given = ["model.learned=False"] if widths.items() <= domains.items() else []
        with pytest.raises(UserError, match=message):
            Plan(sweep, FLAG, given, tmp_path).check()


# States


def test_progress_is_read_from_the_run_directory(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run, other = plan.runs()[:2]
    assert state.progress(plan, run) == state.Progress(0, {}, 0.0, None, ())
    assert state.target(run) == 0
    put(plan, run, [2.0, 1.5], steps=3)
    assert state.progress(plan, run) == state.Progress(
        6, {3: 2.0, 6: 1.5}, 0.0, None, ()
    )
    assert state.target(run) == 3
    put(plan, other, [2.0], score=1.25)
    assert state.progress(plan, other).score == 1.25
    (other.folder / "eval_validation.json").write_text('{"step": 6, "bits": 7.0}')
    with pytest.raises(KeyError, match="bits"):
        state.progress(plan, other)


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
    state.add_death(plan, run, "killed")
    assert state.progress(plan, run).deaths == ("killed",)
    put(plan, run, [7.0, 5.0], score=3.5)
    assert state.progress(plan, run).score == 3.5
    assert len(calls) == 4


def test_deaths_without_progress_are_counted(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run = plan.runs()[0]
    state.add_death(plan, run, "a")
    # Of a process that was killed while it saved.
    (run.folder / "checkpoints" / "2.orbax-checkpoint-tmp").mkdir(parents=True)
    state.add_death(plan, run, "b\nc")
    assert state.deaths(plan, run) == ("a", "b c")
    (run.folder / "checkpoints" / "3").mkdir()
    state.add_death(plan, run, "d")
    assert state.deaths(plan, run) == ("d",)  # after a checkpoint


def test_three_errors_or_ten_kills_are_a_failure():
    error, kill = "out of memory (status 1)", "step 7 (signal 9)"
    assert not state.has_failed([error, kill, kill, error, *[kill] * 5])
    assert state.has_failed([error, kill, error, error])
    assert state.has_failed([kill] * 10)


def test_a_claim_is_exclusive_until_its_owner_is_gone(tmp_path, monkeypatch):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run = plan.runs()[0]
    first, second = state.Claim(plan, run), state.Claim(plan, run)
    assert first.acquire() and not second.acquire()
    assert list(state.claimed(plan)) == [run.name]
    first.release()
    assert list(state.claimed(plan)) == []
    assert second.acquire()
    folder = tmp_path / "claims" / run.name
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    owner = f"{socket.gethostname()} {process.pid}"
    (folder / "owner").write_text(owner)  # a dead process of this host
    third = state.Claim(plan, run)
    assert third.acquire()
    (folder / "owner").write_text(f"elsewhere {process.pid}")
    assert not state.Claim(plan, run).acquire()
    old = time.time() - 121
    os.utime(folder, (old, old))
    fourth = state.Claim(plan, run)
    assert fourth.acquire()
    fourth.release()


def test_taking_a_claim_over_waits_for_its_process(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    run = plan.runs()[0]
    claim = state.Claim(plan, run)
    assert claim.acquire()
    saving = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.7)"])
    claim.started(saving.pid)
    (tmp_path / "claims" / run.name / "owner").write_text(
        f"{socket.gethostname()} {2**22 - 1}"
    )
    assert saving.poll() is None
    assert state.Claim(plan, run).acquire()
    assert not state.started(saving.pid)
    assert saving.wait() == 0
    # Another process with the number of a dead one, such as after a reboot.
    for name in ("owner", "process"):
        path = tmp_path / "claims" / run.name / name
        path.write_text(f"{socket.gethostname()} {os.getpid()} 1")
    assert state.Claim(plan, run).acquire()


# Schedules


def jobs(scheduler, count=1000):
    """The jobs that can be done at the same time now; releases their claims."""
    taken = list(itertools.islice(iter(scheduler.next, None), count))
    for job in taken:
        job.claim.release()
    return taken


def test_runs_that_are_scored_or_failed_are_not_run_again(tmp_path):
    plan = Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path)
    runs = plan.runs()
    put(plan, runs[2], [2.0, 1.5], score=1.0)
    put(plan, runs[3], [2.0, 1.5])  # trained, not evaluated
    put(plan, runs[4], [2.0])  # stopped half-way
    for _ in range(state.MAX_ERRORS):
        state.add_death(plan, runs[5], "killed")
    scheduler = Scheduler(plan)
    names = [job.run.name for job in jobs(scheduler)]
    assert names == [run.name for run in runs if run not in (runs[2], runs[5])]
    assert all(job.steps == 6 and job.final for job in jobs(scheduler))
    assert not scheduler.is_done()
    for run in runs:
        put(plan, run, score=1.0)
    assert scheduler.next() is None and scheduler.is_done()


def test_fields_that_a_resumed_run_may_change_are_swept_too(tmp_path):
    domains = {"train_steps": choice("5", "3"), "non_finite": choice("stop", "skip")}
    plan = Plan(Sweep(space=domains), FLAG, (), tmp_path)
    assert [plan.steps(trial) for trial in plan.trials] == [5, 5, 3, 3]
    assert [(job.steps, job.final) for job in jobs(Scheduler(plan))] == [
        (5, True),
        (5, True),
        (3, True),
        (3, True),
    ]
    # A run is scored when its own number of steps is done.
    for run, steps in zip(plan.runs(), (5, 5, 3, 3), strict=True):
        put(plan, run, [2.0], score=1.0, steps=steps)
    path = plan.runs()[1].folder / "eval_validation.json"
    path.write_text(json.dumps({"step": 3, plan.sweep.metric: 1.0}))
    assert [job.run.trial.number for job in jobs(Scheduler(plan))] == [1]
    again = Plan(Sweep(space=domains), FLAG, (), tmp_path)
    assert again.trials == plan.trials


def test_a_claimed_run_is_left_alone(tmp_path):
    plan = Plan(grid(), FLAG, (), tmp_path)
    claim = state.Claim(plan, plan.runs()[0])
    assert claim.acquire()
    taken = jobs(Scheduler(plan))
    assert [job.run for job in taken] == plan.runs()[1:]
    claim.release()


def test_the_best_third_goes_on_and_the_others_can_follow(tmp_path):
    domains = {"model.width": choice(*(0.1 * n for n in range(1, 8)))}
    sweep = Sweep(space=domains, prune=Prune(after=1, factor=3))
    plan = Plan(sweep, FLAG, ["train_steps=40", "eval_every=3"], tmp_path)
    scheduler, runs = Scheduler(plan), plan.runs()
    assert list(scheduler.rungs) == list(rungs(plan)) == [3, 9, 27]
    assert [(job.steps, job.final) for job in jobs(scheduler)] == [(3, False)] * 7
    values = [5.0, 3.0, 4.0, 7.0, 2.0, 6.0, 8.0]
    for run, value in zip(runs[:2], values[:2], strict=True):
        put(plan, run, [value], steps=3)
    assert {job.run.trial.number for job in jobs(scheduler)} == {2, 3, 4, 5, 6}
    put(plan, runs[2], [values[2]], steps=3)  # three are there: the best goes on
    first, *others = jobs(scheduler)
    assert (first.run, first.steps, first.final) == (runs[1], 9, False)
    assert [job.steps for job in others] == [3] * 4
    for run, value in zip(runs, values, strict=True):
        put(plan, run, [value], steps=3)
    best = {job.run.trial.number for job in jobs(scheduler)}
    assert best == {4, 1} and {job.steps for job in jobs(scheduler)} == {9}
    # A trial that has begun the next rung stays there, whatever comes later.
    put(plan, runs[2], [4.0, 3.9, 3.8], steps=9)
    put(plan, runs[1], [3.0, 2.9, 2.8], steps=9)
    assert [job.run.trial.number for job in jobs(scheduler)] == [4]
    put(plan, runs[4], [2.0, 1.9, 1.8], steps=9)
    (job,) = jobs(scheduler)
    assert job.run == runs[4] and job.steps == 27


def test_one_of_a_few_trials_is_trained_to_the_end(tmp_path):
    sweep = Sweep(space={"model.width": choice(0.5, 0.7)}, prune=Prune(after=1))
    plan = Plan(sweep, FLAG, (), tmp_path)
    first, second = plan.runs()
    put(plan, first, [2.0], steps=3)
    assert [job.run for job in jobs(Scheduler(plan))] == [second]
    put(plan, second, [1.0], steps=3)  # no third of two: the best goes on
    (job,) = jobs(Scheduler(plan))
    assert (job.run, job.steps, job.final) == (second, 6, True)
    put(plan, second, [1.0, 0.9], score=0.9)
    assert Scheduler(plan).is_done()
    table, row = report.write(plan)[1].read_text(), "| 0 | 0.5 | – (0 of 1 seeds)"
    assert f"{row} | 3 of 6 steps: 2 |" in table


def test_values_that_are_not_finite_are_last(tmp_path):
    sweep = Sweep(space={"model.width": choice(0.5, 0.7, 0.9)}, seeds=(0, 1))
    plan = Plan(sweep, FLAG, (), tmp_path)
    scores = (math.nan, 1.0, 2.0, 2.0, math.inf, 1.0)
    for run, score in zip(plan.runs(), scores, strict=True):
        put(plan, run, [score, score], score=score)
    report.write(plan)
    assert [row.trial.number for row in report.rows(plan)] == [1, 0, 2]
    assert Scheduler(plan).is_done()
    study = tpe.study(plan, {0: {6: math.nan}, 1: {6: 2.0}, 2: {6: math.inf}})
    assert [trial.value for trial in study.trials] == [None, 2.0, None]


def test_pruning_and_suggestions_need_a_metric_of_the_evaluation(tmp_path):
    for fields in ({"prune": Prune()}, {"method": "tpe", "trials": 2}):
        sweep = grid(metric="bleu", goal="max", **fields)
        plan = Plan(sweep, FLAG, (), tmp_path / fields.get("method", "grid"))
        run = plan.run(plan.trials[0] if plan.trials else plan.add(space.points(
            grid())[0]), 0)  # fmt: skip
        put(plan, run, [1.0], steps=3)
        log = run.folder / "metrics.jsonl"
        log.write_text(log.read_text().replace("bleu", "mse"))
        with pytest.raises(
            UserError, match="^sweep.metric is bleu: must be one of mse"
        ):
            Scheduler(plan).next()


def test_a_trial_is_pruned_by_its_mean_over_seeds(tmp_path):
    domains = {"model.width": choice(0.5, 0.7)}
    sweep = Sweep(space=domains, seeds=(0, 1), prune=Prune(after=1, factor=2))
    plan = Plan(sweep, FLAG, (), tmp_path)
    values = {"000.seed0": 1.0, "000.seed1": 9.0, "001.seed0": 4.0, "001.seed1": 4.0}
    for run in plan.runs()[:3]:
        put(plan, run, [values[run.name]], steps=3)
    assert [job.run.name for job in jobs(Scheduler(plan))] == ["001.seed1"]
    put(plan, plan.runs()[3], [4.0], steps=3)
    taken = jobs(Scheduler(plan))
    assert [(job.run.name, job.steps, job.final) for job in taken] == [
        ("001.seed0", 6, True),
        ("001.seed1", 6, True),
    ]
    with pytest.raises(UserError, match="sweep.prune.after is 2: must be below 2"):
        late = dataclasses.replace(sweep, prune=Prune(after=2))
        rungs(Plan(late, FLAG, (), tmp_path / "late"))


def test_a_metric_that_the_task_lacks_is_refused_with_its_metrics(tmp_path):
    plan = Plan(grid(metric="bleu", goal="max"), FLAG, (), tmp_path)
    run = plan.runs()[0]
    put(plan, run)
    (run.folder / "eval_validation.json").write_text('{"step": 6, "mse": 7.0}')
    with pytest.raises(UserError, match="^sweep.metric is bleu: must be one of mse$"):
        Scheduler(plan).next()


def test_a_metric_that_does_not_select_checkpoints_needs_a_goal(tmp_path):
    with pytest.raises(UserError, match="^sweep.goal is missing: the metric bleu"):
        Plan(grid(metric="bleu"), FLAG, (), tmp_path)
    named = Plan(grid(metric="mse"), FLAG, (), tmp_path)
    assert named.sweep.goal == "min"


# Suggestions


def tpe_sweep(**fields):
    domains = {
        "model.kernel": choice(*KERNELS),
        "optimizer.learning_rate": log_uniform(1e-3, 1e-1),
        "data.points": integers(11, 53).only_if("model.kernel", "gaussian"),
    }
    return Sweep(space=domains, method="tpe", **fields)


def test_suggestions_are_rebuilt_from_the_runs_alone(tmp_path):
    plan = Plan(tpe_sweep(trials=31), FLAG, (), tmp_path)
    scheduler, points, values = Scheduler(plan), [], []
    while (job := scheduler.next()) is not None:
        point = job.run.trial.point
        points.append(point)
        rate = point["optimizer.learning_rate"]
        value = abs(np.log10(rate) + 2.5) + (point["model.kernel"] != "triangular")
        values.append(value)
        put(plan, job.run, [value, value], score=value)
        job.claim.release()
        if len(points) == 13:  # as if it had been killed here
            plan = Plan(tpe_sweep(trials=31), FLAG, (), tmp_path)
            scheduler = Scheduler(plan)
            assert [trial.point for trial in plan.trials] == points
    assert len(points) == 31 and scheduler.is_done()
    assert all(
        ("data.points" in x) == (x["model.kernel"] == "gaussian") for x in points
    )
    undisturbed = Plan(tpe_sweep(trials=31), FLAG, (), tmp_path / "other")
    scheduler = Scheduler(undisturbed)
    for point, value in zip(points, values, strict=True):
        job = scheduler.next()
        assert job.run.trial.point == point
        put(undisturbed, job.run, [value, value], score=value)
        job.claim.release()
    # The first ten are random.
    assert np.mean(values[20:]) < np.mean(values[:10]) - 0.2


def test_a_running_trial_is_not_suggested_again(tmp_path):
    plan = Plan(tpe_sweep(trials=3), FLAG, (), tmp_path)
    taken = [Scheduler(plan).next() for _ in range(3)]
    assert len({repr(job.run.trial.point) for job in taken}) == 3
    assert Scheduler(plan).next() is None
    study = tpe.study(plan, {0: {6: 2.0}})
    assert [trial.state.name for trial in study.trials] == [
        "COMPLETE",
        "RUNNING",
        "RUNNING",
    ]
    for job in taken:
        job.claim.release()


def test_a_stopped_trial_is_told_to_optuna_as_pruned_at_its_step(tmp_path):
    sweep = tpe_sweep(trials=7, prune=Prune(after=1, factor=2))
    plan = Plan(sweep, FLAG, (), tmp_path)
    for _ in range(4):
        tpe.suggest(plan, {})
    study = tpe.study(plan, {0: {3: 2.0, 6: 1.0}, 1: {3: 0.5}, 2: {3: math.nan}})
    assert [trial.state.name for trial in study.trials] == [
        "COMPLETE",
        "PRUNED",
        "FAIL",
        "RUNNING",
    ]
    assert study.trials[1].intermediate_values == {3: 0.5}
    assert study.best_trial.number == 0  # not the early value


def test_suggestions_rank_early_values_below_final_ones(tmp_path):
    """Early values of trials that were stopped are lower than all final ones."""
    sweep = tpe_sweep(trials=40, prune=Prune(after=1, factor=2))
    plan = Plan(sweep, FLAG, (), tmp_path)
    values = {}
    while len(plan.trials) < 36:
        trial = tpe.suggest(plan, values)
        distance = abs(np.log10(trial.point["optimizer.learning_rate"]) + 2.5)
        near = distance < 0.25  # a quarter; the others are stopped
        values[trial.number] = {3: 0.0} | ({6: 1 + distance} if near else {})
    late = plan.trials[12:]
    chosen = [len(values[trial.number]) == 2 for trial in late]
    assert np.mean(chosen) > 0.4, chosen


# Tables


def test_the_tables_have_the_mean_and_spread_over_seeds(tmp_path):
    plan = Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path)
    plan.save()
    for i, run in enumerate(plan.runs()[:5]):
        put(plan, run, [4.0, 3.0 + i], score=10.0 - i**2)
    assert {path.name for path in report.write(plan)} >= {"table.csv", "table.md"}
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["1", "0", "2", "3", "4", "5"]
    scores = [float(rows[0][f"mse_seed{seed}"]) for seed in (0, 1)]
    assert scores == [6.0, 1.0] and float(rows[0]["mse"]) == 3.5
    assert float(rows[0]["mse_sd"]) == statistics.stdev(scores)
    assert rows[2]["mse"] == "" and rows[2]["mse_seed0"] == "-6.0"
    text = (tmp_path / "table.md").read_text()
    assert "| 1 | gaussian | 0.7 | 3.5 ± 3.5 |  |" in text
    assert "| 2 | triangular | 0.5 | -6 (1 of 2 seeds) |" in text
    assert (tmp_path / "plots" / "learning_curves.png").stat().st_size > 1000


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
    assert state.started(child)
    outer.kill()
    outer.wait()
    for _ in range(100):
        if not state.started(child):
            break
        time.sleep(0.1)
    assert not state.started(child)


GRID_FLAGS = "--grid=model.kernel=gaussian,triangular", "--grid=seed=0,1"


def sweep_command(workdir, *flags):
    return sweep_storm.command(workdir, *GRID_FLAGS, *flags)


def test_mistakes_in_flags_are_one_line(tmp_path):
    for flags, message in (
        (["--grid=model.kernle=a"], "did you mean config.model.kernel"),
        (["--sweep=configs/sweeps/nothing.py"], "must have either --sweep"),
        (["--workers=1000"], "--workers is 1000: must be at least 1"),
        (["--worker"], "has no sweep.json: start the sweep first"),
    ):
        done = subprocess.run(
            sweep_command(tmp_path / "s", *flags),
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert message in done.stderr
    assert not (tmp_path / "s").exists()


class Silent:
    """A display that shows nothing."""

    def update(self, plan): ...


@pytest.mark.parametrize("fail_fast", [False, True])
def test_a_run_that_dies_three_times_has_failed(tmp_path, monkeypatch, fail_fast):
    plan = Plan(grid(seeds=(0, 1)), FLAG, (), tmp_path)
    plan.save()
    calls = []

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
    trials = runner.Runner(plan, fail_fast=fail_fast)
    status = trials.run([workers.Share()], Silent())
    message = r"^1 of 12 runs failed \(001.seed0\): error: no luck \(status 3\)"
    with pytest.raises(UserError, match=message):
        trials.check_failures()
    assert calls.count(("train.py", "001.seed0")) == 3
    done = [run.name for run in plan.runs() if state.progress(plan, run).score]
    if fail_fast:
        assert status == 143 and done == ["000.seed0", "000.seed1"]
    else:
        assert status == 0 and len(done) == 11
    assert calls.count(("eval.py", "000.seed0")) == 1
    assert list(state.claimed(plan)) == []


def test_a_stopped_sweep_says_how_to_go_on(tmp_path):
    command = sweep_command(tmp_path / "s")
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not sweep_storm.processes(tmp_path / "s"):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate()
    assert process.returncode == 130
    line = "stopped: 0 of 4 runs are done; the same command continues"
    assert output.splitlines()[-1] == line


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_table(tmp_path):
    """Kills of the coordinator and of runs; the table equals an undisturbed one."""
    command = sweep_command(tmp_path / "calm")
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
        rows = [
            json.loads(line)
            for line in (tmp_path / "storm" / "trials" / name / "metrics.jsonl")
            .read_text()
            .splitlines()
        ]
        steps = [row["step"] for row in rows if row["split"] == "validation"]
        assert steps == sorted(set(steps))
    assert not re.search("Traceback", (tmp_path / "storm" / "table.md").read_text())
