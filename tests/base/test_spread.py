"""Tests of evaluation that is spread over the processes of a job."""

import json
import shutil
import threading

import jobs
import numpy as np
import pytest
import smoke

from base import spread
from training import trained
from training.cluster.job import CRASH
from training.evaluate import evaluate as evaluate_task
from training.log import read_rows

# Overrides with which an evaluation has several batches.
SYSTEMS = {
    "transformer_nmt": ("--config.evaluation.batch_size=16",),
    "captioning": ("--config.evaluation.batch_size=3",),
    "pointer_hull": ("--config.evaluation.instances=40",),
    "ntm_copy": ("--config.evaluation.sequences=250",),
    "sagan": ("--config.evaluation.images=250",),
    "ff_attention": (),
    "memory_network_qa": (),
    "las_digits": (),
}


def evaluate(config, workdir, *, processes, failing="none"):
    """Starts eval.py on a copy of the smoke run of a config, without evaluations."""
    evaluations = shutil.ignore_patterns("eval_*.json", "*_test.*")
    shutil.copytree(smoke.run(config), workdir, ignore=evaluations)
    return jobs.start(
        "tests/shares.py",
        f"{workdir}.shares",
        failing,
        "eval.py",
        f"--workdir={workdir}",
        "--figures=false",
        *SYSTEMS[config],
        processes=processes,
        devices=1,
        logs=workdir.with_suffix(".logs"),
    )


def shares(workdir):
    """The records of each process, see `shares`."""
    paths = sorted(workdir.parent.glob(f"{workdir.name}.shares.*"))
    return [[json.loads(x) for x in path.read_text().splitlines()] for path in paths]


def marks(config):
    """A system that slow tests train is one; captioning downloads its drawings."""
    network = [pytest.mark.network] * (config == "captioning")
    slow = pytest.mark.slow if config == "pointer_hull" else pytest.mark.jobs
    return [slow, *network]


@pytest.mark.parametrize(
    "config", [pytest.param(config, marks=marks(config)) for config in SYSTEMS]
)
def test_two_processes_evaluate_as_one_does_each_its_share(config, tmp_path):
    workdirs = [tmp_path / f"{n}" for n in (1, 2)]
    for processes, workdir in enumerate(workdirs, 1):
        started = evaluate(config, workdir, processes=processes)
        assert jobs.finish(started) == [0] * processes, jobs.output(
            workdir.with_suffix(".logs")
        )
    alone, shared = (
        {path.name: path.read_bytes() for path in workdir.iterdir() if path.is_file()}
        for workdir in workdirs
    )
    assert "eval_test.json" in alone and alone == shared
    assert not shares(workdirs[0])
    first, second = shares(workdirs[1])
    assert len(first) == len(second) and any(count > 1 for _, count in first)
    for (even, count), (odd, same) in zip(first, second, strict=True):
        assert same == count
        assert even == [*range(0, count, 2)] and odd == [*range(1, count, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_of_one_process_ends_the_evaluation_of_all(tmp_path, failing):
    workdir = tmp_path / "run"
    started = evaluate("pointer_hull", workdir, processes=2, failing=str(failing))
    assert jobs.finish(started, timeout=100) == [CRASH, CRASH]
    texts = jobs.output(workdir.with_suffix(".logs"))
    reason = f"process {failing} of the job has failed: ValueError: this item fails"
    assert texts[1 - failing].splitlines()[-1] == f"error: {reason}"
    assert "Traceback" not in texts[1 - failing]
    assert "ValueError: this item fails" in texts[failing]
    assert not (workdir / "eval_test.json").exists()


@pytest.mark.slow
def test_sharded_training_logs_the_scores_of_the_whole_state(tmp_path):
    workdir = tmp_path / "run"
    jobs.run(
        "tests/shares.py",
        f"{workdir}.shares",
        "none",
        "train.py",
        "--config=configs/ff_attention.py:smoke",
        f"--workdir={workdir}",
        "--config.mesh.data=1",
        "--config.mesh.fsdp=4",
        processes=2,
        devices=2,
        logs=tmp_path / "logs",
    )
    for share in shares(workdir):
        assert [(len(items), count) for items, count in share] == [(5, 10)] * 2
    row = [x for x in read_rows(workdir / "metrics.jsonl") if "accuracy" in x][-1]
    run = trained.load(workdir, "last")
    for name, score in evaluate_task(run.task, run.state, "validation").scores.items():
        np.testing.assert_allclose(row[name], score, rtol=1e-5)


def test_a_process_on_its_own_computes_each_item_in_order():
    computed = []

    def square(x):
        computed.append(x)
        return x * x

    with spread.over_processes():
        assert spread.each(square, iter(range(5))) == [0, 1, 4, 9, 16]
    assert computed == [0, 1, 2, 3, 4]


@pytest.fixture
def three(monkeypatch):
    """Replaces the processes of a job by three threads."""
    threads, barrier = threading.local(), threading.Barrier(3)
    contents = [None] * 3

    def gather(array):
        contents[threads.number] = array
        barrier.wait()
        gathered = np.stack(contents)
        barrier.wait()
        return gathered

    monkeypatch.setattr(spread.jax, "process_count", lambda: 3)
    monkeypatch.setattr(spread.jax, "process_index", lambda: threads.number)
    monkeypatch.setattr(spread.multihost_utils, "process_allgather", gather)

    def run(function):
        """Calls function(number) in each process; returns results and exceptions."""

        def call(number):
            threads.number = number
            return function(number)

        return jobs.in_threads(call)

    return run


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 5003])
def test_results_are_gathered_in_order(three, monkeypatch, count, size):
    monkeypatch.setattr(spread, "_PART", 2**13)  # so that some take several parts
    computed = [[] for _ in range(3)]

    def work(number):
        def function(item):
            computed[number].append(item)
            return {"text": f"é{item}", "array": np.full(size * (item + 1), item)}

        with spread.over_processes():
            return spread.each(function, range(count))

    for results in three(work):
        assert [x["text"] for x in results] == [f"é{i}" for i in range(count)]
        for i, x in enumerate(results):
            np.testing.assert_array_equal(x["array"], np.full(size * (i + 1), i))
    assert computed == [[*range(n, count, 3)] for n in range(3)]


def test_a_call_within_an_item_or_outside_of_the_block_is_not_spread(three):
    def work(number):
        def inner(item):
            return spread.each(lambda x: [number, x], range(item))

        before = spread.each(lambda x: [number, x], range(2))
        with spread.over_processes():
            items = spread.each(inner, range(3))
        return before, items

    for number, (before, items) in enumerate(three(work)):
        assert before == [[number, 0], [number, 1]]
        assert items == [[[n, x] for x in range(n)] for n in range(3)]


def test_tuples_become_lists_in_one_process_and_in_several(three):
    def pair(x):
        return {"pair": (x, [None, (2.5,)])}

    def work(number):
        with spread.over_processes():
            return spread.each(pair, range(4))

    expected = [{"pair": [x, [None, [2.5]]]} for x in range(4)]
    assert three(work) == [expected] * 3
    assert spread.each(pair, range(4)) == expected


@pytest.mark.parametrize("place", ["before", "item", "after"])
def test_a_failure_anywhere_in_the_block_reaches_all(three, place):
    def work(number):
        def fail(here):
            if number == 1 and here == place:
                raise ValueError("no reason")

        with spread.over_processes():
            fail("before")
            spread.each(lambda item: fail("item"), range(3))
            fail("after")

    first, second, third = three(work)
    assert isinstance(second, ValueError)
    for error in (first, third):
        assert str(error) == ("process 1 of the job has failed: ValueError: no reason")
