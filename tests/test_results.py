"""The README's tables, the records and the list of reported runs say the same."""

import dataclasses
import importlib
import json
import os
import threading
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.__main__ import QUESTIONS
from errors import UserError
from figures import canvas, charts
from results import make, records, tables, timings
from results.families import FIGURES, TABLES
from results.schema import Claim, Curves, Figure, Run, Table
from training import compatibility, configuration

RUNS = [run for table in TABLES.values() for run in table.runs]


def record(name="transformer_nmt", system=records.OURS, **fields):
    return {
        "name": name,
        "system": system,
        "config": "transformer_nmt",
        "overrides": [],
        "seed": 0,
        "settings": {},
        "commands": [],
        "metrics": {"bleu": 21.04, "bleu_signature": "nrefs:1", "chrf": 43.0},
        "steps": 1700,
        "minutes": 13.0,
        "curve": [[1.5, 3.0], [5.9, 11.0], [13.0, 20.0]],
        "device": "CPU, 2 cores",
        "versions": {"jax": "0.0.1"},
        "commit": "abcdef",
    } | fields


def by_length(*scores, sentences=(7, 3)):
    return {
        group: {"sentences": count, "bleu": score}
        for group, count, score in zip(("1-5", "6-10"), sentences, scores, strict=True)
    }


def put(folder, **records):
    for name, value in records.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


def test_the_readme_shows_the_records():
    text = tables.README.read_text("utf-8")
    assert tables.replace(text, tables.render()) == text, (
        "run: python -m results.tables"
    )


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_reported_run_has_a_config(run, monkeypatch):
    monkeypatch.chdir(make.ROOT)
    flag = make.commands(run, 0)[0].split("--config=")[1].split()[0]
    assert configuration.read(flag, run.overrides)


def test_the_names_of_reported_runs_differ():
    assert len({run.name for run in RUNS}) == len(RUNS)


def test_the_lines_of_figures_are_reported_runs():
    shown = {line for figure in FIGURES for line in figure.lines.values()}
    there = {run.name for run in RUNS}
    there |= {  # or of another metric, among those of its table
        f"{run.name}:{metric}"
        for table in TABLES.values()
        for run in table.runs
        for metric in table.metrics.values()
    }
    assert shown <= there


def test_every_record_is_reported_and_whole():
    wanted = {}
    for run in RUNS:
        for seed in run.seeds:
            wanted[make.record_path(run, seed).name] = (run, seed)
    configs = {run.config for run in RUNS}
    for path in records.RESULTS.glob("*.json"):
        found = json.loads(path.read_text("utf-8"))
        if path.name.startswith("bench_"):
            assert found["question"] in timings.BENCHMARKS, path.name
            assert path.stem == f"bench_{found['question']}"
        elif found["system"] == records.OURS:
            assert set(record()) <= set(found), path.name
            assert path.name in wanted, f"{path.name} is of no run in families/"
            assert make.is_current(*wanted[path.name]), path.name
        else:
            needed = set(record()) - {"overrides", "commands"}
            assert needed <= set(found), path.name
            assert found["config"] in configs, path.name


def test_runs_stand_beside_another_system(tmp_path):
    put(
        tmp_path,
        a=record(system="Other 1.0", metrics={"bleu": 11.7}, name="other"),
        b=record(),
    )
    lines = tables.render(tmp_path)["translation"].splitlines()
    assert lines[2].startswith(
        "| [`transformer_nmt`](configs/transformer_nmt.py) | 21.0"
    )
    assert lines[3].startswith("| Other 1.0 | 11.7 | – | – | 1,700 | 13.0 |")
    assert lines[-1] == "Test split; signatures: BLEU `nrefs:1`."


def test_a_row_shows_the_mean_and_spread_over_seeds(tmp_path):
    for seed, bleu in enumerate((19.0, 20.0, 24.0)):
        put(tmp_path, **{f"s{seed}": record(seed=seed, metrics={"bleu": bleu})})
    text = tables.render(tmp_path)["translation"]
    assert "(3 seeds) | 21.0 ± 2.6 |" in text


def test_a_column_of_the_records_stands_after_the_metrics(tmp_path, monkeypatch):
    run = Run(name="x", config="transformer_nmt", label="Luong, general, local-p")
    table = Table(
        metrics={"BLEU": "bleu"},
        runs=(run,),
        columns={"steps/s": "steps_per_second"},
        curves=False,
    )
    monkeypatch.setattr(tables, "TABLES", {"t": table})
    put(
        tmp_path,
        x=record(name="x", steps_per_second=5.21),
        y=record(name="x", steps_per_second=5.27),
        other=record(system="Other"),  # whose rate nobody took
    )
    found = tables.render(tmp_path)
    lines = found["t"].splitlines()
    assert lines[0].startswith("| run | BLEU | steps/s | steps | minutes |")
    title = "[Luong, general, local-p](configs/transformer_nmt.py) (2 seeds)"
    assert lines[2].startswith(f"| {title} | 21.0 ± 0.0 | 5.24 | 1,700 |")
    assert lines[3].startswith("| Other | 21.0 | – | 1,700 |")
    figures = {Path(figure.file).stem for figure in FIGURES}
    assert set(found) == {"benchmarks", "t"} | figures  # no t_curves


def test_a_label_takes_the_place_of_config_and_overrides():
    run = Run(name="x", config="transformer_nmt:base", overrides=("model.heads=2",))
    link = "(configs/transformer_nmt.py)"
    default = f"[`transformer_nmt:base`]{link} `model.heads=2`"
    assert tables._title(run, [record()]) == default
    labelled = dataclasses.replace(run, label="two")
    assert tables._title(labelled, [record()]) == f"[two]{link}"


@pytest.fixture
def figure(monkeypatch):
    """A figure of two runs, and what is drawn of it."""
    figure = Figure(
        file="docs/x.png",
        title="BLEU by length",
        lines={"with": "a", "without": "b"},
    )
    monkeypatch.setattr(tables, "FIGURES", (figure,))
    drawn = []
    monkeypatch.setattr(canvas, "available", lambda: True)
    monkeypatch.setattr(charts, "lines", lambda *args, **of: drawn.append((args, of)))
    return drawn


def put_scored(folder):
    """Two seeds of one run, one of another, and what another system did."""
    put(
        folder,
        a=record(name="a", by_length=by_length(5.0, 3.0)),
        a1=record(name="a", by_length=by_length(7.0, 2.0)),
        b=record(name="b", by_length=by_length(4.0, 1.0)),
        c=record(name="b", system="Other", by_length=by_length(9.0, 9.0)),
    )


def test_a_figure_has_a_line_a_run_with_the_values_of_its_seeds(tmp_path, figure):
    put_scored(tmp_path)
    tables.draw(tmp_path, tmp_path)
    (((series, title, path), of),) = figure
    assert list(series) == ["with", "without"]
    assert series["with"] == {"1-5": [5.0, 7.0], "6-10": [3.0, 2.0]}
    assert series["without"] == {"1-5": [4.0], "6-10": [1.0]}
    assert (title, path) == ("BLEU by length", tmp_path / "docs/x.png")
    assert of["notes"] == {"1-5": "n = 7", "6-10": "n = 3"}


def test_a_figure_has_a_table_of_its_numbers(tmp_path, figure):
    put_scored(tmp_path)
    lines = tables.render(tmp_path)["x"].splitlines()
    assert lines[0].endswith("| 1-5 (7) | 6-10 (3) |")
    assert lines[2:] == ["| with | 6.0 | 2.5 |", "| without | 4.0 | 1.0 |"]


def test_a_figure_is_left_out_where_something_is_missing(tmp_path, figure, monkeypatch):
    scored = by_length(5.0, 3.0)
    put(tmp_path, a=record(name="a", by_length=scored), b=record(name="b"))
    assert tables.draw(tmp_path, tmp_path) == []
    put(tmp_path, b=record(name="b", by_length=scored))
    monkeypatch.setattr(canvas, "available", lambda: False)
    assert tables.draw(tmp_path, tmp_path) == []
    assert figure == []


def test_a_figure_is_of_one_test_split(tmp_path, figure):
    put(
        tmp_path,
        a=record(name="a", by_length=by_length(5.0, 3.0)),
        b=record(name="b", by_length=by_length(5.0, 3.0, sentences=(7, 4))),
    )
    with pytest.raises(UserError, match=r"docs/x\.png: b has .*'6-10': 4"):
        tables.draw(tmp_path, tmp_path)


def test_curves_are_drawn_and_told_by_the_examples_seen(tmp_path, monkeypatch):
    figure = Curves(
        file="docs/y.png",
        title="Copying",
        value_title="bits",
        lines={"with": "a", "without": "b", "wrong": "a:wrong"},
    )
    monkeypatch.setattr(tables, "FIGURES", (figure,))
    drawn = []
    monkeypatch.setattr(canvas, "available", lambda: True)
    monkeypatch.setattr(charts, "lines", lambda *args, **of: drawn.append((args, of)))
    curve = {"examples": [3200, 16_000], "curve": [[0.5, 8.0], [1.5, 0.25]]}
    put(tmp_path, a=record(name="a", **curve, curves={"wrong": [9.0, 1.0]}))
    assert tables.draw(tmp_path, tmp_path) == []
    other = {"examples": [3200], "curve": [[0.5, 6.0]]}
    more = record(name="a", **other, curves={"wrong": [7.0]})
    put(tmp_path, a1=more, b=record(name="b", **other))
    assert len(tables.draw(tmp_path, tmp_path)) == 1
    (((series, title, path), of),) = drawn
    assert series["with"] == {"3.2": [8.0, 6.0], "16": [0.25]}
    assert (title, path) == ("Copying", tmp_path / "docs/y.png")
    assert (of["axis_title"], of["value_title"]) == ("thousand examples seen", "bits")
    head, _, *lines = tables.render(tmp_path)["y"].splitlines()
    assert head == "| bits, thousand examples seen | 3.2 | 16 |"
    assert lines == ["| with | 7 | 0.25 |", "| without | 6 |  |", "| wrong | 8 | 1 |"]


def test_where_lower_is_better_the_claim_is_held_against_the_lowest(
    tmp_path, monkeypatch
):
    runs = tuple(Run(name=x, config="transformer_nmt", label=x.upper()) for x in "abc")
    claim = Claim(text="A is best", paper="Doe (2015)", better="a", than=("b", "c"))
    table = Table(
        metrics={"bits": "bits"}, runs=runs, claims=(claim,), curves=False, lower=True
    )
    monkeypatch.setattr(tables, "TABLES", {"t": table})

    def line(**bits):
        for name, value in bits.items():
            put(tmp_path, **{name: record(name=name, metrics={"bits": value})})
        return tables.render(tmp_path)["t_claims"].splitlines()[-1]

    assert line(a=1.0, b=2.0, c=3.0).endswith("| A: 1.0 | B: 2.0 | yes |")
    assert line(a=2.5, b=3.0, c=2.0).endswith("| A: 2.5 | C: 2.0 | no |")


@pytest.mark.parametrize(
    ("scores", "holds"),
    [
        ({"a": (20.0, 22.0), "b": (17.0, 17.0), "c": (19.0, 19.0)}, "yes"),
        ({"a": (20.0, 22.0), "b": (17.0, 17.0), "c": (20.0, 20.0)}, "inconclusive"),
        ({"a": (20.0, 22.0), "b": (22.0, 23.0), "c": (30.0, 1.0)}, "inconclusive"),
        ({"a": (20.0, 22.0), "b": (22.0, 24.0), "c": (25.0, 25.0)}, "no"),
    ],
)
def test_a_claim_is_held_against_the_best_other_run(
    tmp_path, monkeypatch, scores, holds
):
    runs = tuple(Run(name=x, config="transformer_nmt", label=x.upper()) for x in "abc")
    claims = (
        Claim(text="A is best", paper="Doe (2015)", better="a", than=("b", "c")),
        Claim(text="A beats D", paper="", better="a", than=("d",)),  # not measured
    )
    table = Table(metrics={"BLEU": "bleu"}, runs=runs, claims=claims, curves=False)
    monkeypatch.setattr(tables, "TABLES", {"t": table})
    assert tables.render(tmp_path)["t_claims"] == "Not measured yet."
    for name, values in scores.items():
        for seed, bleu in enumerate(values):
            one = record(name=name, seed=seed, metrics={"bleu": bleu})
            put(tmp_path, **{f"{name}{seed}": one})
    title, ruler, *lines = tables.render(tmp_path)["t_claims"].splitlines()
    assert title.startswith("| claim | by | BLEU of the preferred |")
    assert ruler.endswith("| --- | ---: |")
    best = max("bc", key=lambda name: sum(scores[name]))
    (line,) = lines
    assert line.startswith("| A is best | Doe (2015) | A: 21.0 ± 1.4 | ")
    assert f" | {best.upper()}: " in line and line.endswith(f" | {holds} |")


def test_the_runs_of_claims_stand_in_their_table():
    for table in TABLES.values():
        names = {run.name for run in table.runs}
        for claim in table.claims:
            assert {claim.better, *claim.than} <= names
            assert claim.better not in claim.than


def test_a_curve_shows_the_last_value_by_each_minute(tmp_path):
    put(tmp_path, a=record(), b=record(system="Other", curve=[[7.0, 5.0]]))
    lines = tables.render(tmp_path)["translation_curves"].splitlines()
    columns = [cell.strip() for cell in lines[0].split("|")[2:-1]]
    assert columns == ["2", "4", "6", "8", "10", "12", "14"]
    assert lines[2].endswith("| 3.0 | 3.0 | 11.0 | 11.0 | 11.0 | 11.0 | 20.0 |")
    assert lines[3].endswith("| – | – | – | 5.0 |  |  |  |")  # it ended after 7


@pytest.mark.parametrize("last", [0.05, 1.0, 7.9, 8.1, 15.0, 61.0, 4321.0])
def test_the_minutes_of_curves_are_few_and_reach_the_end(last):
    minutes = tables._minutes(last)
    assert (
        len(minutes) <= tables._MAX_COLUMNS
        and minutes[-1] >= last > minutes[-1] - (minutes[0])
    )


def test_a_benchmark_shows_systems_and_ratio(tmp_path):
    systems = {
        records.OURS: {"median_ms": 311.5, "rate": 13151.0, "peak_mb": 1900},
        "Other": {"median_ms": 640.25, "rate": 6398.0, "share": 0.336},
    }
    put(
        tmp_path,
        bench_transformer_step={
            "question": "transformer_step",
            "systems": systems,
            "ratio": 2.056,
            "ratio_same_malloc": None,
            "device": "some CPU, 2 threads",
            "commit": None,
        },
    )
    text = tables.render(tmp_path)["benchmarks"]
    assert "| this project | 312 | 13,151 | – | 1,900 |" in text
    assert "| Other | 640 | 6,398 | 34% | – |" in text
    assert text.endswith(
        "2.06 times the rate of the fastest other library; "
        "some CPU, 2 threads, commit `unknown`."
    )


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_timing_question_has_a_table_that_tells_its_ratios(question):
    assert question in timings.BENCHMARKS
    module = importlib.import_module(f"benchmarks.{question}")
    systems = getattr(module, "SYSTEMS", [])
    assert len({system.name for system in systems}) == len(systems)
    measured = {system.name: {"rate": 2.0} for system in systems}
    found = harness.ratios(measured, systems) if systems else {}
    assert set(found) <= set(timings.FACTS)
    assert set(found.values()) <= {1.0}


def test_tables_are_written_between_their_marks():
    text = "a\n<!-- results:begin x -->\nold\n<!-- results:end x -->\nb\n"
    once = tables.replace(text, {"x": "| new |"})
    assert once == text.replace("old", "\n| new |\n")
    assert tables.replace(once, {"x": "| new |"}) == once
    with pytest.raises(UserError, match="marks for x; the tables are y"):
        tables.replace(text, {"y": ""})


@pytest.fixture
def workdir(tmp_path):
    """A run directory, as far as results are taken from it."""
    config = configuration.read(str(make.ROOT / "configs/transformer_nmt.py"))
    configuration.record(config, tmp_path)
    (tmp_path / "checkpoints" / "100").mkdir(parents=True)
    rows = [
        {"step": 25, "split": "train", "seconds": 5.0, "steps_per_second": 4.0},
        {"step": 50, "split": "train", "seconds": 9.0, "steps_per_second": 6.5},
        {"step": 75, "split": "train", "seconds": 20.0, "steps_per_second": 5.1234},
        {"step": 100, "split": "validation", "seconds": 30.0, "bleu": 7.12345},
        {"step": config.train_steps, "split": "validation", "seconds": 90, "bleu": 9.0},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "metrics.jsonl").write_text(lines)
    environment = {
        "versions": {"jax": "0.0.1"},
        "backend": "cpu",
        "devices": ["cpu"],
        "cpus": 2,
        "commit": "0123456789+changes",
    }
    (tmp_path / "environment.json").write_text(json.dumps(environment))
    scores = {"checkpoint": "best", "step": 100, "bleu": 21.04321}
    scores["signatures"] = {"bleu": "nrefs:1"}
    scores["by_length"] = by_length(5.12345, 3.0)
    (tmp_path / "eval_test.json").write_text(json.dumps(scores))
    return tmp_path


def test_a_record_is_taken_from_the_run_directory(workdir):
    found = make.collect(RUNS[0], 0, workdir)
    assert set(record()) <= set(found)
    assert found["metrics"] == {"bleu": 21.043, "bleu_signature": "nrefs:1"}
    assert found["curve"] == [[0.5, 7.123], [1.5, 9.0]]
    assert (found["minutes"], found["device"]) == (1.5, "CPU, 2 cores")
    assert found["commit"] == "0123456789+changes"
    assert found["by_length"] == by_length(5.123, 3.0)
    assert found["steps_per_second"] == 5.123  # the median
    assert "waiting" not in found and "examples" not in found
    (workdir / "eval_test.json").unlink()
    with pytest.raises(UserError, match=r"eval_test\.json is missing"):
        make.collect(RUNS[0], 0, workdir)


def test_a_record_of_generated_data_counts_examples_and_waiting(tmp_path, monkeypatch):
    figure = Curves(
        file="docs/z.png",
        title="",
        value_title="%",
        lines={"a": "x:wrong", "b": "y:other"},
    )
    monkeypatch.setattr(make, "FIGURES", (figure,))
    path = str(make.ROOT / "configs/ntm_copy.py")
    config = configuration.read(path, ["data.batch_size=7"])
    configuration.record(config, tmp_path)
    rows = [
        {"step": 10, "split": "train", "seconds": 1.0, "waiting": 0.01},
        {"step": 20, "split": "train", "seconds": 2.0, "waiting": 0.03},
        {"step": 30, "split": "train", "seconds": 3.0, "waiting": 0.5},
        {"step": 30, "split": "validation", "seconds": 4.0, "bits": 1.5},
    ]
    rows[-1]["wrong"] = 0.12345
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "metrics.jsonl").write_text(lines)
    environment = {"versions": {}, "backend": "cpu", "devices": ["cpu"]}
    environment |= {"cpus": 1, "commit": "0123456789"}
    (tmp_path / "environment.json").write_text(json.dumps(environment))
    scores = {"checkpoint": "last", "step": 30, "bits": 1.25}
    (tmp_path / "eval_test.json").write_text(json.dumps(scores))
    found = make.collect(Run(name="x", config="ntm_copy"), 0, tmp_path)
    assert (found["examples"], found["waiting"]) == ([210], 0.03)  # the median
    assert found["curve"] == [[0.07, 1.5]]
    assert found["curves"] == {"wrong": [0.1235]}


def test_a_record_tells_when_nothing_was_wrong_for_the_first_time(tmp_path):
    path = str(make.ROOT / "configs/pointer_sorting.py")
    configuration.record(configuration.read(path, ["data.batch_size=7"]), tmp_path)
    environment = {"versions": {}, "backend": "cpu", "devices": ["cpu"]}
    environment |= {"cpus": 1, "commit": "0123456789"}
    (tmp_path / "environment.json").write_text(json.dumps(environment))
    scores = {"checkpoint": "last", "step": 40, "accuracy": 99.0}
    (tmp_path / "eval_test.json").write_text(json.dumps(scores))

    def collect(*accuracies):
        rows = [
            {"step": 10 * i, "split": "validation", "seconds": 1.0, "accuracy": x}
            for i, x in enumerate(accuracies, 1)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "metrics.jsonl").write_text(lines)
        return make.collect(Run(name="x", config="pointer_sorting"), 0, tmp_path)

    assert collect(50.0, 100.0, 99.0, 100.0)["perfect_after"] == 140
    assert "perfect_after" not in collect(50.0, 99.9)


def test_a_run_is_done_when_its_last_step_is(workdir):
    assert make._is_done(RUNS[0], 0, workdir)
    (workdir / "metrics.jsonl").write_text('{"step": 99, "seconds": 1.0}\n')
    assert not make._is_done(RUNS[0], 0, workdir)
    with pytest.raises(UserError, match="config.seed: 0 there, 1 now"):
        make._is_done(RUNS[0], 1, workdir)


def test_only_missing_runs_are_made(tmp_path, monkeypatch, capsys):
    run = Run(
        name="x",
        config="transformer_nmt",
        overrides=("model.heads=2",),
        seeds=(0, 1),
    )
    settings = make._identity(run, 0)
    put(tmp_path, x=record(name="x", settings=settings))
    made = []
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    monkeypatch.setattr(
        make, "TABLES", {"t": dataclasses.replace(TABLES["translation"], runs=(run,))}
    )
    monkeypatch.setattr(
        make, "make", lambda run, seed, _: made.append((run.name, seed))
    )
    monkeypatch.setattr(tables, "write", lambda: None)
    make.main([])
    assert made == [("x", 1)]
    assert "nothing is missing" not in capsys.readouterr().out
    put(tmp_path, x=record(name="x"))  # of other settings
    make.main([])
    assert made[1:] == [("x", 0), ("x", 1)]
    settings["loss"]["smoothing"] = 0.0  # of the config as it was
    put(tmp_path, x=record(name="x", settings=settings))
    make.main([])
    assert made[3:] == [("x", 0), ("x", 1)]


def test_it_is_said_that_nothing_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(make, "is_current", lambda run, seed: True)
    monkeypatch.setattr(make, "make", lambda *_: pytest.fail("nothing is to be run"))
    monkeypatch.setattr(tables, "write", lambda: None)
    make.main([])
    count = sum(len(run.seeds) for run in RUNS)
    assert f"nothing is missing: all {count} trainings" in capsys.readouterr().out


# One of each architecture, of each task, and those whose checkpoints are averaged.
KINDS = [
    "transformer_nmt",
    "short_bahdanau",
    "ntm_copy",
    "ntm_copy_lstm",
    "pointer_hull_10",
    "captioning_soft",
    "sagan_attention",
    "ff_add_50",
    "kernels_learned",
]


@pytest.fixture(params=KINDS)
def recorded(request, monkeypatch):
    """A run that has a record, and a function that changes its config of today."""
    (run,) = (run for run in RUNS if run.name == request.param)
    assert make.is_current(run, 0)
    read = configuration.read

    def change(name, value, groups=("",)):
        def read_changed(*args):
            config = read(*args).unlock()
            for group in groups:
                parent = config
                for part in filter(None, group.split(".")):
                    parent = parent.get(part, {})
                parent[name] = value
            return config.lock()

        monkeypatch.setattr(configuration, "read", read_changed)

    return run, change


OPTIMIZERS = ("optimizer", "generator", "discriminator")


def test_a_record_outlives_a_new_field_that_changes_nothing(recorded, monkeypatch):
    run, change = recorded
    change("unheard_of", 0.25, groups=OPTIMIZERS)
    assert not make.is_current(run, 0)
    added = {"optimizer|generator|discriminator.unheard_of": 0.25}
    monkeypatch.setattr(compatibility, "ADDED", compatibility.ADDED | added)
    assert make.is_current(run, 0)
    change("unheard_of", 0.5, groups=OPTIMIZERS)
    assert not make.is_current(run, 0)


def test_every_record_outlives_a_new_field_of_the_evaluation(monkeypatch):
    read = configuration.read

    def read_with_new_field(*args):
        config = read(*args).unlock()
        config.evaluation.unheard_of = (2, 3)
        return config.lock()

    monkeypatch.setattr(configuration, "read", read_with_new_field)
    trainings = [
        (run, seed)
        for run in RUNS
        for seed in run.seeds
        if make.record_path(run, seed).exists()
    ]
    assert not any(make.is_current(*training) for training in trainings)
    added = compatibility.ADDED | {"evaluation.unheard_of": [2, 3]}
    monkeypatch.setattr(compatibility, "ADDED", added)
    assert all(make.is_current(*training) for training in trainings)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("", "log_every", 7),
        ("", "parallel", "pmap"),
        ("mesh", "data", 5),
        ("mesh", "fsdp", 7),
        ("data", "folder", "elsewhere"),
        ("data", "files", {"train": "elsewhere"}),
        ("evaluation", "figures", 11),
    ],
)
def test_a_record_outlives_a_change_of_what_changes_no_number(
    recorded, group, name, value
):
    run, change = recorded
    change(name, value, groups=(group,))
    assert make.is_current(run, 0)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [("", "train_steps", 7), ("", "seed", 7), ("", "eval_every", 7)],
)
def test_a_record_does_not_outlive_a_change_of_the_training(
    recorded, group, name, value
):
    run, change = recorded
    change(name, value, groups=(group,))
    assert not make.is_current(run, 0)


@pytest.mark.parametrize(
    ("group", "name"),
    [("", "save_every"), ("checkpoints", "keep"), ("evaluation", "average")],
)
def test_the_checkpoints_that_are_kept_matter_to_their_average_alone(
    recorded, group, name
):
    run, change = recorded
    averages = make._config(run, 0).evaluation.checkpoint == "average"
    assert averages == run.config.startswith(("transformer_nmt", "bahdanau_nmt"))
    change(name, 7, groups=(group,))
    assert make.is_current(run, 0) is not averages


def test_a_record_outlives_a_class_that_moves(monkeypatch):
    run = Run(name="ntm_copy", config="ntm_copy")
    config = make._config(run, 0).unlock()
    config.architecture = type(
        "NeuralTuringMachine", (), {"__module__": "models.turing"}
    )
    monkeypatch.setattr(make, "_config", lambda run, seed: config)
    assert not make.is_current(run, 0)
    moved = {"models.ntm:NeuralTuringMachine": "models.turing:NeuralTuringMachine"}
    monkeypatch.setattr(compatibility, "MOVED", compatibility.MOVED | moved)
    assert make.is_current(run, 0)


def test_a_new_record_holds_its_identity(workdir):
    settings = make.collect(RUNS[0], 0, workdir)["settings"]
    assert settings == records.identity(settings)
    for name in ("log_every", "mesh", "parallel"):
        assert name not in settings
    assert "files" not in settings["data"]
    assert settings["save_every"] == 100  # of the checkpoints that are averaged
    assert settings["architecture"] == "models.transformer:Transformer"


def test_a_group_without_fields_that_count_is_no_part_of_the_identity():
    settings = {"data": {"files": {"train": ""}}, "checkpoints": {"keep": 1}, "seed": 2}
    assert records.identity(settings) == {"seed": 2}
    assert settings["checkpoints"] == {"keep": 1}


def test_only_the_runs_of_tables_that_are_named_are_made(monkeypatch):
    table = TABLES["translation"]
    known = {
        name: dataclasses.replace(
            table, runs=(Run(name=name * 2, config="transformer_nmt"),)
        )
        for name in "abc"
    }
    made = []
    monkeypatch.setattr(make, "TABLES", known)
    monkeypatch.setattr(make, "is_current", lambda run, seed: False)
    monkeypatch.setattr(make, "make", lambda run, seed, _: made.append(run.name))
    monkeypatch.setattr(tables, "write", lambda: made.append("written"))
    make.main(["c", "a"])
    assert made == ["cc", "aa", "written"]
    with pytest.raises(UserError, match="^no table is called d: there is a, b, c$"):
        make.main(["a", "d"])
    assert made == ["cc", "aa", "written"]


def test_jobs_share_the_cores_evenly(monkeypatch):
    monkeypatch.setattr(make.os, "sched_getaffinity", lambda _: {3, 5, 7, 9, 11})
    assert make.shares(1) == [[3, 5, 7, 9, 11]]
    assert make.shares(2) == [[3, 7, 11], [5, 9]]
    for jobs in (0, 6):
        with pytest.raises(UserError, match=f"--jobs is {jobs}: must be in 1..5"):
            make.shares(jobs)


def test_a_run_of_several_at_a_time_keeps_to_its_cores(tmp_path, monkeypatch):
    cores = sorted(os.sched_getaffinity(0))[:1]
    code = "import os; print(os.sched_getaffinity(0), file=open('found', 'w'))"
    (tmp_path / "x.py").write_text(code)
    monkeypatch.setattr(make, "ROOT", tmp_path)
    thread = threading.Thread(target=make._call, args=("python x.py", cores))
    thread.start()
    thread.join()
    assert (tmp_path / "found").read_text().strip() == str(set(cores))
    with pytest.raises(UserError, match="python y.py ended with status 2"):
        make._call("python y.py", [])


def test_the_commands_of_a_run_carry_what_differs():
    run = Run(
        name="x",
        config="transformer_nmt:relative",
        overrides=("model.heads=2",),
        seeds=(0, 1),
    )
    assert make.commands(run, 1) == [
        "python train.py --config=configs/transformer_nmt.py:relative "
        "--workdir=runs/x.seed1 --config.model.heads=2 --config.seed=1",
        "python eval.py --workdir=runs/x.seed1 --split=test",
    ]
    assert make.commands(run, 0)[1] == "python eval.py --workdir=runs/x --split=test"
