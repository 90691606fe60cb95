"""Tables of the pages, the records and the reported runs agree."""

import functools
import importlib
import json
import math
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from scipy import stats

from base import storage
from base.errors import UserError
from benchmarks import floors
from benchmarks.__main__ import NAMES
from benchmarks.table import BENCHMARKS
from configs import lstmn_language
from figures import canvas, charts
from results import (
    families,
    make,
    markdown,
    pages,
    records,
    schema,
    significance,
    tables,
    timings,
)
from results.families import FIGURES, HEADLINES, TABLES
from results.schema import Chart, Run, Table, recorded
from sweeps import workers
from tasks.language import agreement_data as agreement
from training import configuration, encoding

RUNS = [*dict.fromkeys(run for table in TABLES.values() for run in table.runs)]
PAGES = pages.read()
RESULTS = [page for page in PAGES if page.startswith("docs/results/")]
read_runs = functools.cache(records.read_runs)


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


def put(folder, *values, file="runs.jsonl"):
    for value in values:
        records.write(folder / file, value)


def put_floors(folder, **floors):
    (folder / records.FLOORS).write_text(json.dumps(floors))


def show(folder, name, *runs):
    """A table of the records in a folder, as Markdown."""
    return tables.tables(folder)[name](runs)


def test_the_pages_show_the_records():
    assert tables.filled() == PAGES, "run: python -m results.tables"


def decimals(text):
    return {*re.findall(r"(?<![\d.,])\d[\d,]*\.\d+(?!\d|\.\d)", text)}


def numbers(value):
    """The numbers in a record, or in a part of it."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [number for each in inner for number in numbers(each)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize("page", RESULTS)
def test_decimals_in_prose_are_in_the_tables_or_records_of_the_page(page):
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", "", PAGES[page])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    floors = records.read_json(records.FLOORS)
    values, measured = [], decimals("\n".join(rows))
    measured |= {"0.05", "2.3"}  # the level of significance; millions of products
    for block in pages.blocks(page, text):
        if table := TABLES.get(block.table):
            for row in recorded(table, read_runs()):
                values += numbers([x["metrics"] for x in row.records])
                settings = numbers([x["settings"] for x in row.records])
                measured |= {str(value) for value in settings}
            values += numbers(floors.get(block.table, {}))
    measured |= {f"{value:,.{n}f}" for value in values for n in (1, 2, 3)}
    assert decimals("\n".join(prose)) - measured == set()


def test_names_of_runs_are_unique_and_claims_and_headlines_name_runs():
    names = [run.name for run in RUNS]
    assert len(set(names)) == len(names)
    headlines = [headline.run for headline in HEADLINES]
    assert set(headlines) <= set(names) and len(set(headlines)) == len(headlines)
    for table in TABLES.values():
        for claim in table.claims:
            assert set(claim.runs) <= {run.name for run in table.runs}
            assert claim.better not in claim.than
            assert claim.rate or table.rate  # how the learning rates were chosen


def test_runs_that_share_a_training_differ_only_in_their_evaluation():
    runs = {run.name: run for run in RUNS}
    for run in RUNS:
        trained, count = runs[run.training], len(runs[run.training].overrides)
        assert not trained.trained and trained.seeds == run.seeds
        assert trained.config == run.config
        assert run.overrides[:count] == trained.overrides
        assert all(x.startswith("evaluation.") for x in run.overrides[count:])


def test_the_lines_of_figures_are_reported_runs():
    lines = {line for figure in FIGURES for line in figure.lines.values()}
    sources = {run.name for run in RUNS}
    sources |= {  # or another metric of its table
        f"{run.name}:{metric}"
        for table in TABLES.values()
        for run in table.runs
        for metric in table.metrics.values()
    }
    assert lines <= sources


def test_every_record_is_reported_and_complete():
    wanted = {(run.name, seed) for run in RUNS for seed in run.seeds}
    configs = {run.name: make._identity(run, run.seeds[0]) for run in RUNS}
    for path in records.FOLDER.glob("*.jsonl"):
        for saved in records.read(path):
            name, seed = saved["name"], saved.get("seed")
            if path.name == records.BENCHMARKS:
                assert name in timings.BENCHMARKS
            elif saved["system"] == records.OURS:
                assert set(record()) <= set(saved), name
                assert (name, seed) in wanted, f"{name} is not in families/"
                assert families.FAMILY[name] == path.stem
                config = configs[name] | {"seed": seed}
                assert records.identity(saved["settings"]) == config, (name, seed)
            else:
                assert set(record()) - {"overrides", "commands"} <= set(saved), name
                assert saved["config"] in {run.config for run in RUNS}, name


WRITER = """
import sys
from pathlib import Path
from results import records

for seed in range(20):
    record = {"name": sys.argv[2], "seed": seed, "settings": {"x": sys.argv[2]}}
    records.write(Path(sys.argv[1]), record)
"""


def test_processes_that_write_at_the_same_time_lose_no_record(tmp_path):
    path = tmp_path / "runs.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, name], cwd=records.ROOT) for name in ("a", "b")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    keys = [(saved["name"], saved["seed"]) for saved in records.read(path)]
    assert keys == [(name, seed) for name in "ab" for seed in range(20)]


def test_a_record_is_one_line_and_shares_its_settings(tmp_path):
    path = tmp_path / "runs.jsonl"
    saved = [
        record(seed=seed, settings={"seed": seed, "depth": depth})
        for seed, depth in ((0, 3), (1, 3), (2, 5))
    ]
    put(tmp_path, *saved[::-1])
    assert records.read(path) == saved
    lines = path.read_text().splitlines()
    assert len(lines) == 2 + 1 + 3  # settings, versions, records
    saved[2]["settings"]["depth"] = 3
    put(tmp_path, saved[2])
    again = path.read_text().splitlines()
    assert records.read(path) == saved and len(again) == 1 + 1 + 3
    assert lines[3:5] == again[2:4]
    path.write_text("\n".join([*again, *lines]))  # as a merge of two branches
    with pytest.raises(UserError, match=r":11: transformer_nmt, seed 2 has two recor"):
        records.read(path)
    path.write_text("\n".join(again[1:]))
    with pytest.raises(UserError, match="the .* of transformer_nmt, seed 0 are missi"):
        records.read(path)
    path.write_text("{")
    with pytest.raises(UserError, match=r"runs\.jsonl:1 is damaged"):
        records.read(path)
    saved[2]["commands"] = ["python predict.py --text='a\u2028b'"]
    path.unlink()
    put(tmp_path, *saved)
    assert records.read(path) == saved


def test_another_system_follows_the_run_with_its_config(tmp_path):
    put(
        tmp_path,
        record(system="Other 1.0", metrics={"bleu": 11.7}, name="other"),
        record(),
    )
    lines = show(tmp_path, "translation").splitlines()
    assert lines[2].startswith(
        "| [`transformer_nmt`](configs/transformer_nmt.py) | 21.0"
    )
    assert lines[3] == "| Other 1.0 | 11.7 | – | – | – | – | – |  |"
    assert lines[-5].startswith("| Other 1.0 | 1,700 |")
    assert lines[-1] == "Test split. sacreBLEU: BLEU `nrefs:1`."


def test_columns_of_the_records_follow_the_metrics(tmp_path, monkeypatch):
    table = Table(
        metrics={"BLEU": "bleu"},
        runs=schema.runs("x transformer_nmt | Luong, general, local-p"),
        columns=schema.fields("steps/s: steps_per_second | best: min_validation"),
    )
    monkeypatch.setattr(tables, "TABLES", {"t": table})
    put(
        tmp_path,
        record(name="x", steps_per_second=5.21, curve=[[0, 9.0], [1, 4.5], [2, 7.0]]),
        record(name="x", steps_per_second=5.27, curve=[[0, 5.5], [1, 8.0]], seed=1),
        record(system="Other"),  # without a rate
    )
    lines = show(tmp_path, "t").splitlines()
    assert lines[0] == "| run | BLEU | best | paper |"
    title = "[Luong, general, local-p](configs/transformer_nmt.py) (2 seeds)"
    assert lines[2] == f"| {title} | 21.0 ± 0.0 | 5 |  |"
    assert lines[3] == "| Other | 21.0 | 3 |  |"
    assert lines[7] == "| run | steps/s | steps | minutes | device | commit |"
    assert lines[9].startswith(f"| {title} | 5.24 | 1,700 |")
    assert lines[10].startswith("| Other | – | 1,700 |")
    figures = {Path(figure.file).stem for figure in FIGURES}
    blocks = {"benchmarks", "benchmark_summary", "claims", "facts", "headline"}
    blocks |= {"initial_entropy", "scaling", "seeds"}
    assert set(tables.tables()) == blocks | {"t"} | figures  # no t_curves


def test_columns_that_are_not_visible_are_in_a_second_table():
    titles, rows = (
        ["run", "a", "x < y", "b"],
        [["r", "1", "–", "2"], ["s", "3", "4", ""]],
    )
    assert markdown.folded(titles, rows, titles[:]) == storage.markdown_table(
        titles, rows
    )
    visible, summary, more, end = markdown.folded(titles, rows, "a run".split()).split(
        "\n\n"
    )
    assert visible == storage.markdown_table(["run", "a"], [["r", "1"], ["s", "3"]])
    assert summary == "<details><summary>More columns: x &lt; y; b</summary>"
    assert more == storage.markdown_table(
        ["run", *titles[2:]], [["r", "–", "2"], ["s", "4", ""]]
    )
    assert end == "</details>"
    without = markdown.folded(titles, [["r", "1", "–", ""], rows[1]], ["run", "a"])
    assert [line[:3] for line in without.splitlines()[-3:]] == ["| s", "", "</d"]


def test_no_table_of_results_is_wide_and_no_visible_one_has_a_column_of_the_machine():
    machine = {"minutes", "device", "commit", "steps/s", "audio, s/s"}
    for page in RESULTS:
        for header in re.findall(r"^\| (.*) \|\n\| ---", PAGES[page], re.M):
            assert len(header.split(" | ")) <= markdown.MAX_COLUMNS, (page, header)
        text = re.sub(r"<details>.*?</details>", "", PAGES[page], flags=re.S)
        for header in re.findall(r"^\| (.*) \|\n\| ---", text, re.MULTILINE):
            assert machine.isdisjoint(header.split(" | ")), (page, header)


def test_a_label_replaces_config_and_overrides():
    run, labelled = schema.runs("x lstm:base model.heads=2\ny lstm:base a=2 | two")
    default = "[`lstm:base`](configs/lstm.py) `model.heads=2`"
    assert tables._title(run, [record()]) == default
    assert tables._title(labelled, [record()]) == "[two](configs/lstm.py)"


@pytest.fixture
def drawn(monkeypatch):
    """The arguments of the charts that are drawn."""
    calls = []
    monkeypatch.setattr(canvas, "available", lambda: True)
    monkeypatch.setattr(charts, "lines", lambda *args, **of: calls.append((args, of)))
    return calls


@pytest.fixture
def figure(monkeypatch, drawn):
    """Makes a figure of two runs the only one; returns the list of drawn charts."""
    lines = {"with": "a", "without": "b"}
    figure = Chart(
        file="docs/x.png",
        title="BLEU by length",
        value_title="BLEU",
        lines=lines,
        by_length=True,
    )
    monkeypatch.setattr(tables, "FIGURES", (figure,))
    return drawn


def put_scored(folder):
    """Records of two seeds of one run, one of another, and one of another system."""
    put(
        folder,
        record(name="a", by_length=by_length(5.0, 3.0)),
        record(name="a", seed=1, by_length=by_length(7.0, 2.0)),
        record(name="b", by_length=by_length(4.0, 1.0)),
        record(name="c", system="Other", by_length=by_length(9.0, 9.0)),
    )


def test_a_figure_and_its_table_have_a_line_per_run_of_all_seeds(tmp_path, figure):
    put_scored(tmp_path)
    tables.draw(tmp_path, tmp_path)
    (((series, title, path), of),) = figure
    assert list(series) == ["with", "without"]
    assert series["with"] == {"1-5": [5.0, 7.0], "6-10": [3.0, 2.0]}
    assert series["without"] == {"1-5": [4.0], "6-10": [1.0]}
    assert (title, path) == ("BLEU by length", tmp_path / "docs/x.png")
    assert of["notes"] == {"1-5": "n = 7", "6-10": "n = 3"}
    lines = show(tmp_path, "x").splitlines()
    assert lines[0].endswith("| 1-5 (7) | 6-10 (3) |")
    assert lines[2:] == ["| with | 6.0 | 2.5 |", "| without | 4.0 | 1.0 |"]


def test_a_line_of_a_single_run_has_its_intervals(tmp_path, figure):
    scored = by_length(5.0, 3.0)
    scored["1-5"] |= {"bleu_low": 4.0, "bleu_high": 6.5}
    put_scored(tmp_path)
    put(tmp_path, record(name="b", by_length=scored))
    tables.draw(tmp_path, tmp_path)
    ((_, of),) = figure
    assert of["intervals"] == {"without": {"1-5": (4.0, 6.5)}}


def test_a_figure_needs_all_records_and_matplotlib(tmp_path, figure, monkeypatch):
    scored = by_length(5.0, 3.0)
    put(tmp_path, record(name="a", by_length=scored), record(name="b"))
    assert tables.draw(tmp_path, tmp_path) == []
    put(tmp_path, record(name="b", by_length=scored))
    monkeypatch.setattr(canvas, "available", lambda: False)
    assert tables.draw(tmp_path, tmp_path) == []
    assert figure == []


def test_all_runs_of_a_figure_use_the_same_test_split(tmp_path, figure):
    put(
        tmp_path,
        record(name="a", by_length=by_length(5.0, 3.0)),
        record(name="b", by_length=by_length(5.0, 3.0, sentences=(7, 4))),
    )
    with pytest.raises(UserError, match=r"docs/x\.png: b has .*'6-10': 4"):
        tables.draw(tmp_path, tmp_path)


def test_curves_are_drawn_and_tabulated_by_examples(tmp_path, monkeypatch, drawn):
    figure = Chart(
        file="docs/y.png",
        title="Copying",
        value_title="bits",
        lines={"with": "a", "without": "b", "wrong": "a:wrong"},
    )
    monkeypatch.setattr(tables, "FIGURES", (figure,))
    curve = {"examples": [3200, 16_000], "curve": [[0.5, 8.0], [1.5, 0.25]]}
    put(tmp_path, record(name="a", **curve, curves={"wrong": [9.0, 1.0]}))
    assert tables.draw(tmp_path, tmp_path) == []
    other = {"examples": [3200], "curve": [[0.5, 6.0]]}
    more = record(name="a", seed=1, **other, curves={"wrong": [7.0]})
    put(tmp_path, more, record(name="b", **other))
    assert len(tables.draw(tmp_path, tmp_path)) == 1
    (((series, title, path), of),) = drawn
    assert series["with"] == {"3.2": [8.0, 6.0], "16": [0.25]}
    assert (title, path) == ("Copying", tmp_path / "docs/y.png")
    assert (of["axis_title"], of["value_title"]) == ("thousand examples seen", "bits")
    head, _, *lines = show(tmp_path, "y").splitlines()
    assert head == "| bits by thousand examples seen | 3.2 | 16 |"
    assert lines == ["| with | 7 | 0.25 |", "| without | 6 |  |", "| wrong | 8 | 1 |"]


def test_the_loss_is_drawn_and_tabulated_by_steps(tmp_path, monkeypatch, drawn):
    figure = Chart(
        file="docs/y.png",
        title="",
        value_title="loss",
        lines={"A": "a"},
        loss_every=200,
    )
    monkeypatch.setattr(tables, "FIGURES", (figure,))
    put(
        tmp_path,
        record(name="a", training_loss=[[200, 5.0], [400, 3.0]]),
        record(name="a", seed=1, training_loss=[[200, 6.0], [400, 3.5]]),
    )
    assert len(tables.draw(tmp_path, tmp_path)) == 1
    (((series, _, _), of),) = drawn
    assert series == {"A": {"200": [5.0, 6.0], "400": [3.0, 3.5]}}
    assert of["axis_title"] == "steps"
    head, _, *lines = show(tmp_path, "y").splitlines()
    assert (head, lines) == ("| loss by steps | 200 | 400 |", ["| A | 5.5 | 3.25 |"])


def put_claim(folder, monkeypatch, scores, *, metric="bleu", floor=None, **fields):
    """Records of runs a, b and c, and a table that claims that A is best."""
    runs = schema.runs("\n".join(f"{x} transformer_nmt | {x.upper()}" for x in "abc"))
    stated = schema.claims("a > b c | A is best | Doe (2015)\na > d")  # d: no run
    values = {"metrics": {"M": metric}, "runs": runs, "claims": stated}
    table = Table(**values | fields)
    monkeypatch.setattr(tables, "TABLES", {"t": table})
    for name, values in scores.items():
        for seed, value in enumerate(values):
            put(folder, record(name=name, seed=seed, metrics={metric: value}))
    if floor is not None:
        put_floors(folder, t={"copy": {metric: floor}, "other": {metric: 1e9}})
    return show(folder, "t_claims").splitlines()[-1]


def claim_cells(folder):
    """The last claim's cells in the table of all claims, visible and folded."""
    lines = show(folder, "claims").splitlines()
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("|")]
    return rows[len(rows) // 2 - 1], rows[-1]


def test_the_models_of_a_run_are_the_values_of_a_claim(tmp_path, monkeypatch):
    fields = {"metrics": {"best": "best", "mean": "error"}, "repeated": "error"}
    fields |= {"lower": True}
    put_claim(tmp_path, monkeypatch, {}, **fields)
    for name, errors in {"a": (1, 2, 3), "b": (7, 8, 9), "c": (11, 12, 13)}.items():
        metrics = {f"repeat_{n}": float(error) for n, error in enumerate(errors)}
        metrics |= {"error": float(errors[1]), "best": 50.0 - errors[0]}
        put(tmp_path, record(name=name, metrics=metrics))
    line = show(tmp_path, "t_claims").splitlines()[-1]
    assert "A: 2.0 | B: 8.0" in line and line.endswith("| holds |")
    cells, more = claim_cells(tmp_path)
    assert cells[2] == "mean" and "Welch, 3 models" in more


@pytest.mark.parametrize(
    ("scores", "rival", "verdict"),
    [
        ({"a": (30.0, 30.5, 31.0), "b": (20, 21, 22), "c": (19, 20, 21)}, "B", "holds"),
        # Ahead of the best rival, but not surely of the other.
        (
            {"a": (30.0, 30.5, 31.0), "b": (20, 21, 22), "c": (1, 15, 31)},
            "B",
            "inconclusive",
        ),
        (
            {"a": (20, 21, 22), "b": (30.0, 30.5, 31.0), "c": (1, 15, 31)},
            "B",
            "does not hold here",
        ),
        # p = 0.03 for one rival is too much for two.
        (
            {"a": (20, 21, 22), "b": (22.4, 23.1, 23.8), "c": (1, 15, 31)},
            "B",
            "inconclusive",
        ),
    ],
)
def test_a_claim_is_tested_against_all_rivals(
    tmp_path, monkeypatch, scores, rival, verdict
):
    line = put_claim(tmp_path, monkeypatch, scores)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:2] == ["A is best", "Doe (2015)"]
    assert cells[2].startswith("A: ") and cells[3].startswith(f"{rival}: ")
    assert cells[-1] == verdict
    assert (float(cells[-2].removeprefix("< ")) < 0.05) == (verdict != "inconclusive")


def test_the_table_of_all_claims_shows_test_floor_and_work(tmp_path, monkeypatch):
    scores = {"a": (30.0, 30.5, 31.0), "b": (20.0, 21.0), "c": (19.0, 20.0)}
    put_claim(tmp_path, monkeypatch, scores, floor=14.1)
    cells, more = claim_cells(tmp_path)
    names = ["A: 30.5 ± 0.5", "B: 20.5 ± 0.7"]
    assert cells[:6] == ["A is best", "Doe (2015)", "M", *names, "14.1"]
    assert len(cells) == markdown.MAX_COLUMNS and cells[-1] == "holds"
    assert more[:2] == ["A is best", "1,700 steps"]
    assert more[2:5] == ["–", "–", "Welch, 2 and 3 seeds"]
    settings = {"data": {"batch_size": 7}, "optimizer": {"learning_rate": 0.003}}
    more = {"metrics": {"bleu": 25.0}, "settings": settings}
    for name, value in {"a": 5_000_000, "b": 5_010_000, "c": 0}.items():
        fields = more | {"tokens": value} if value else more
        for seed in range(3):
            saved = record(name=name, seed=seed, parameters=seed * 10**6, **fields)
            put(tmp_path, saved)
    _, more = claim_cells(tmp_path)
    expected = ["5M tokens / 5.01M tokens", "1M", "0.003", "Welch, 3 seeds"]
    assert more[1:5] == expected
    put_claim(tmp_path, monkeypatch, {}, claims=schema.claims("a > c"))
    _, more = claim_cells(tmp_path)
    assert more[1] == "5M tokens / 11,900 examples"  # 1,700 steps of 7


def test_a_single_run_shows_its_confidence_interval(tmp_path):
    metrics = {"bleu": 21.04, "bleu_low": 19.96, "bleu_high": 22.5}
    put(tmp_path, record(metrics=metrics, parameters=2_345_678, tokens=999_900))
    assert "| 21.0 [20.0, 22.5] | – |" in show(tmp_path, "translation")
    assert "| 2.35M | 1M |" in show(tmp_path, "translation")
    put(tmp_path, record(metrics=metrics, seed=1))
    assert "| 21.0 ± 0.0 | – |" in show(tmp_path, "translation")


def read_config(name, *overrides):
    return configuration.read(str(records.ROOT / f"configs/{name}"), overrides)


def test_the_work_of_a_run_is_its_parameters_and_real_tokens(tmp_path, monkeypatch):
    config = read_config("seq2seq_nmt.py:smoke", "train_steps=7")
    configuration.record(config, tmp_path)
    work = make.work(tmp_path)
    assets = config.task.prepare(config, tmp_path, training=True)
    state = config.task(config, assets).objective.init(jax.random.key(0))
    params = sum(len(x.ravel()) for x in jax.tree.leaves(state.params))
    tokens = sum((assets.batches[i]["target"] > 0).sum() for i in range(7))
    padded = sum(assets.batches[i]["target"].size for i in range(7))
    assert work == {"parameters": params, "tokens": tokens} and tokens < padded


def test_the_work_of_a_language_model_is_the_tokens_of_its_text(tmp_path):
    config = read_config("lstmn_text.py:digits", "train_steps=3", "data.tokens=7")
    config.data.batch_size = 5
    configuration.record(config, tmp_path)
    assert make.work(tmp_path)["tokens"] == 3 * 5 * 7


@pytest.mark.parametrize(
    ("floor", "lower", "verdict"),
    [
        (19.5, False, "holds"),  # only the weaker rival is below the floor
        (30.4, False, "holds (rival below the floor)"),
        (30.6, False, "below the floor"),
        (30.6, True, "does not hold here"),
        (30.4, True, "below the floor"),  # though its rival is above it
    ],
)
def test_an_expected_winner_below_the_floor_decides_nothing(
    tmp_path, monkeypatch, floor, lower, verdict
):
    scores = {"a": (30.0, 30.5, 31.0), "b": (20, 21, 22), "c": (40, 41, 42)}
    if not lower:
        scores["c"] = (19, 20, 21)
    line = put_claim(tmp_path, monkeypatch, scores, floor=floor, lower=lower)
    assert line.endswith(f"| {verdict} |")


def test_tests_of_samples_that_do_not_vary_or_are_too_small():
    a, b = (3.0, 5.0, 7.5, 4.0, 2.0), (6.0, 9.5, 8.0)
    expected = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert significance.welch(a, b) == pytest.approx(expected)
    assert math.isnan(significance.welch(a, (6.0,)))
    assert significance.welch((2.0, 2.0), (2.0, 2.0)) == 1.0
    assert significance.welch((2.0, 2.0), (3.0, 3.0)) == 0.0
    assert math.isnan(significance.paired_t({0: 1.0, 1: 2.0}, {0: 3.0, 2: 4.0}))
    assert significance.paired_t({0: 1.0, 1: 4.0}, {0: 1.0, 1: 4.0}) == 1.0
    assert significance.paired_t({0: 1.0, 1: 4.0}, {0: 1.5, 1: 4.5}) == 0.0


def test_the_paired_test_is_that_of_the_differences_of_shared_seeds():
    a = {0: 27.2, 1: 28.1, 2: 26.9, 7: 90.0}
    b = {2: 25.3, 0: 25.6, 1: 26.4, 5: 10.0}
    p = stats.ttest_rel([27.2, 28.1, 26.9], [25.6, 26.4, 25.3]).pvalue
    assert significance.paired_t(a, b) == pytest.approx(p)
    assert p < significance.welch(tuple(a.values()), tuple(b.values()))


@pytest.mark.parametrize(
    ("a", "b", "extreme"),  # choices of values with a rank sum at least as extreme
    [
        ((5.0, 6.0, 7.0), (1.0, 2.0), 2 / 10),
        ((1.0, 7.0, 8.0), (2.0, 3.0, 4.0), 14 / 20),
        ((2.0, 2.0), (2.0, 2.0, 2.0), 1),
        ((9.0, 9.0, 9.0, 1.0), (2.0, 3.0, 4.0, 5.0), 22 / 70),
    ],
)
def test_the_rank_test_counts_all_choices_of_the_values(a, b, extreme):
    p = significance.mann_whitney(a, b)
    assert significance.mann_whitney(b, a) == pytest.approx(p)
    assert p == pytest.approx(extreme)


def test_a_ranked_claim_counts_the_seeds_that_are_ahead(tmp_path, monkeypatch):
    scores = {
        "a": (90.0, 0.5, 80, 70, 60),
        "b": (1, 2, 3, 4, 5),
        "c": (0, 0, 0, 0, 0.1),
    }
    assert "seeds ahead" not in put_claim(tmp_path, monkeypatch, scores)
    ranked = schema.claims("a >> b c")
    line = put_claim(tmp_path, monkeypatch, scores, claims=ranked)
    assert "(4 of 5 seeds ahead of every rival's)" in line
    p = significance.mann_whitney(scores["a"], scores["b"])
    assert line.endswith(f"| {p:.2g} | inconclusive |")
    assert "| rank test, 5 seeds |" in show(tmp_path, "claims")


def test_rows_that_evaluate_the_same_models_are_paired(tmp_path, monkeypatch):
    scores = {"a": (27.2, 28.1, 26.9), "b": (26.6, 27.6, 26.35), "c": (1, 2, 3)}
    assert "| inconclusive |" in put_claim(tmp_path, monkeypatch, scores)
    fields = {"claims": schema.claims("b > a")}
    fields["runs"] = schema.runs("a x") + schema.runs("b x", trained="a")
    line = put_claim(tmp_path, monkeypatch, scores, **fields)
    by_seed = (dict(enumerate(scores[name])) for name in "ba")
    p = significance.p_text(significance.paired_t(*by_seed))
    assert line.endswith(f"| {p} | does not hold here |")
    assert "| paired t, 3 seeds |" in show(tmp_path, "claims")


def test_p_values_are_corrected_for_the_claims_of_their_table():
    p = (0.02, 0.001, math.nan, 0.04, 0.013)
    texts = (
        significance.HOLDS,
        significance.FAILS,
        significance.INCONCLUSIVE,
        significance.BELOW,
        significance.HOLDS,
    )
    verdicts = [significance.Verdict("x", *of) for of in zip(p, texts, strict=True)]
    corrected = significance.holm(verdicts)
    values = [x.p for x in corrected]
    assert values == pytest.approx([0.04, 0.004, math.nan, 0.04, 0.039], nan_ok=True)
    assert [x.text for x in corrected] == list(texts)
    corrected = significance.holm(
        [*verdicts, significance.Verdict("x", 0.045, significance.HOLDS)]
    )
    assert [x.text for x in corrected] == [
        significance.INCONCLUSIVE,  # 3 x 0.02
        significance.FAILS,
        significance.INCONCLUSIVE,
        significance.BELOW,  # is no verdict on the claim
        significance.INCONCLUSIVE,  # 4 x 0.013
        significance.INCONCLUSIVE,
    ]
    assert significance.holm([]) == []


def test_a_claim_with_missing_seeds_is_provisional(tmp_path, monkeypatch):
    scores = {"a": (30.0, 30.5, 31.0), "b": (20, 21), "c": (19, 20, 21)}
    put_claim(tmp_path, monkeypatch, scores, claims=schema.claims("a > b c"))
    plan = families.planned(tables.TABLES)
    monkeypatch.setattr(tables, "TABLES", plan)
    assert [run.seeds for run in plan["t"].runs] == [(0, 1, 2, 3, 4)] * 3
    line = show(tmp_path, "t_claims").splitlines()[-1]
    assert line.endswith("| holds; provisional, 2 of 5 seeds |")
    assert "(2 of 5 seeds) | 20.5 ± 0.7 |" in show(tmp_path, "t")
    assert "Of 1 tested claims, 1 hold" in show(tmp_path, "claims")
    assert "1 of the 1 results are provisional" in show(tmp_path, "claims")
    # Seven trainings of 13 minutes on two cores.
    cells = show(tmp_path, "seeds").splitlines()[-1].split(" | ")
    assert cells[1:] == ["1", "5", "7", f"{7 * 26 / 60:.1f}", "– |"]


def test_a_table_can_plan_fewer_seeds_at_a_price(tmp_path, monkeypatch):
    scores = {"a": (30.0, 30.5, 31.0), "b": (20, 21, 22), "c": (19, 20, 21)}
    put_claim(tmp_path, monkeypatch, scores, claims=schema.claims("a > b c"), seeds=3)
    monkeypatch.setattr(tables, "TABLES", families.planned(tables.TABLES))
    table, _, note = show(tmp_path, "t_claims").rpartition("\n\n")
    hours = f"{15 * 26 / 60:.1f}"
    assert table.endswith("| holds |")
    planned = "Three seeds are planned for each run"
    assert note == f"{planned}; five would take {hours} core-hours."
    assert show(tmp_path, "seeds").endswith(f"| 3 | 0 | – | {hours} |")


def test_runs_of_one_training_have_the_seeds_of_its_claims():
    table = Table(
        metrics={},
        runs=schema.runs("x a | | | 2\ny a | | | 2\nz a | | | 2")
        + schema.runs("beam a\nwide a", trained="x"),
        claims=schema.claims("beam > y"),
        seeds=3,
    )
    (planned,) = families.planned({"t": table}).values()
    counts = {run.name: len(run.seeds) for run in planned.runs}
    assert counts == {"x": 3, "y": 3, "z": 2, "beam": 3, "wide": 3}


def test_floors_are_the_last_rows_of_a_table(tmp_path):
    put(tmp_path, record())
    put_floors(tmp_path, translation={"copy": {"bleu": 14.079}})
    lines = show(tmp_path, "translation").splitlines()
    assert lines[3].startswith("| *copy* | 14.1 | – | – |")
    assert lines[3].count("|") == lines[2].count("|")


def test_floors_have_tables_and_their_first_metrics():
    saved = records.read_json(records.FLOORS)
    assert set(saved) == set(floors.FLOORS)
    for name, values in saved.items():
        title, first = next(iter(values.items()))
        assert next(iter(TABLES[name].metrics.values())) in first
        assert not title.startswith("bound")  # no threshold of claims


@pytest.mark.parametrize(
    "name",
    [
        "ntm_recall",
        "pointer_tsp",
        "ff_attention",
        "kernels",
        "memory_networks",
        "sentences_entailment",
    ],
)
def test_recorded_floors_are_those_that_the_code_computes(name):
    computed = floors.FLOORS[name](floors.config(name))
    for title, scores in records.read_json(records.FLOORS)[name].items():
        assert computed[title] == pytest.approx(scores, abs=1e-3)


def test_a_look_up_answers_unknown_keys_by_the_most_frequent_answer():
    train = [("a", "x"), ("a", "x"), ("a", "y"), ("b", "y"), ("c", "y")]
    test = [("a", "x"), ("a", "y"), ("b", "y"), ("d", "y"), ("d", "x")]
    assert floors.looked_up(train, test) == pytest.approx(60)
    without_keys = ([(None, answer) for _, answer in pairs] for pairs in (train, test))
    assert floors.looked_up(*without_keys) == pytest.approx(60)  # always "y"


def test_a_test_sentence_is_seen_if_it_is_in_training_word_for_word():
    config = lstmn_language.get_config("smoke")
    config.evaluation.sentences = 103
    share = floors.seen_in_training(config)
    train = agreement.batches("agreement", 1, batch_size=config.data.batch_size, seed=0)
    rows = [tuple(x) for i in range(config.train_steps) for x in train[i]["tokens"]]
    test, _ = agreement.held_out("agreement", "test", 1, 103)
    count = sum(tuple(x) in rows for x in test["tokens"])
    assert share == pytest.approx(100 * count / 103)
    config.train_steps = 300
    assert floors.seen_in_training(config) > share


def test_the_nearest_training_pair_shares_the_most_trigrams():
    pairs = [("Turn on the light", "a"), ("Restart the server", "b"), ("Lights", "c")]
    texts = ["turn on the lights", "the server restarts", "Lightning", "xyz"]
    nearest = floors.nearest_pairs(texts, pairs)
    assert [target for _, target in nearest][:3] == ["a", "b", "c"]


def test_the_rates_of_a_claim_are_shown_with_how_they_were_chosen(
    tmp_path, monkeypatch
):
    for name, rate in {"a": 0.01, "b": 0.005, "c": 0.005}.items():
        settings = {"optimizer": {"learning_rate": rate}}
        put(tmp_path, record(name=name, settings=settings))
    put_claim(tmp_path, monkeypatch, {}, rate="one for all rows")
    assert "| 0.01 / 0.005 (one for all rows) |" in show(tmp_path, "claims")
    fields = {"claims": schema.claims("a > b c | | | searched for A")}
    put_claim(tmp_path, monkeypatch, {}, rate="one for all rows", **fields)
    assert "| 0.01 / 0.005 (searched for A) |" in show(tmp_path, "claims")


def test_a_curve_shows_the_last_value_by_each_minute(tmp_path):
    put(tmp_path, record(), record("other", "Other", curve=[[7.0, 5.0]]))
    lines = show(tmp_path, "translation_curves").splitlines()
    columns = [cell.strip() for cell in lines[0].split("|")[2:-1]]
    assert columns == ["2", "4", "6", "8", "10", "12", "14"]
    assert lines[2].endswith("| 3.0 | 3.0 | 11.0 | 11.0 | 11.0 | 11.0 | 20.0 |")
    assert lines[3].endswith("| – | – | – | 5.0 |  |  |  |")  # ended after 7


def test_the_minutes_of_curves_are_few_and_reach_the_end():
    for last in (0.05, 1.0, 7.9, 8.1, 15.0, 61.0, 4321.0):
        minutes = tables._minutes(last)
        assert len(minutes) < markdown.MAX_COLUMNS
        assert minutes[-1] >= last > minutes[-1] - minutes[0]


def measured(name, rates, **fields):
    """The record of a benchmark of systems with these rates."""
    systems = {system: {"rate": rate} for system, rate in rates.items()}
    record = {"name": name, "systems": systems, "device": "some CPU", "commit": None}
    return record | fields


def test_a_benchmark_shows_systems_and_ratio(tmp_path):
    rates = {records.OURS: 13151.0, "Other": 6398.0, "Slow": 5.0}
    step = measured("transformer_step", rates)
    step["systems"][records.OURS] |= {"median_ms": 311.5, "peak_mb": 1900}
    step["systems"]["Other"] |= {"median_ms": 640.25, "share": 0.336}
    put(tmp_path, step, file=records.BENCHMARKS)
    text = show(tmp_path, "benchmarks")
    assert "| this project | 312 | 13,151 | – | 1,900 |" in text
    assert "| Other | 640 | 6,398 | 34% | – |" in text
    assert text.endswith(
        "\nThis project is 2.06 times as fast as Other. "
        "Measured on some CPU, commit `unknown`."
    )


def test_the_summary_has_the_lowest_ratio_of_each_benchmark(tmp_path):
    step = {
        "this project, Bahdanau": 30.0,
        "this project, Bahdanau as JoeyNMT has it": 28.0,
        "this project, Luong": 24.0,
        "JoeyNMT, Bahdanau": 20.0,
        "JoeyNMT, Luong": 15.0,
        "JoeyNMT, Luong, same malloc": 40.0,
    }
    decoding = {name: rate for name, rate in step.items() if "malloc" not in name}
    put(
        tmp_path,
        measured("recurrent_step", step),
        measured("recurrent_decoding", decoding),
        measured("ram_step", {"this project": 9.0, "A": 2.0, "B": 3.0}),
        # Without another system.
        measured("fast_forms", {"this project": 9.0}),
        measured("sweep_trials", {"this project": 9.0}, ratio_half_sum=1.1),
        # Without a measurement of the other system.
        measured("sagan_step", {"this project": 9.0}),
        file=records.BENCHMARKS,
    )
    text = show(tmp_path, "benchmark_summary")
    rows = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", line) for line in text.splitlines()]
    assert [row.strip("| ").split(" | ") for row in rows[2:]] == [
        "Training step: recurrent models, Luong | JoeyNMT | some CPU | "
        "target tokens/s | 24 | 15 | 1.60 | 0.60".split(" | "),
        "Beam search: the recurrent models, JoeyNMT's variant of Bahdanau | JoeyNMT | "
        "some CPU | sentences/s | 28 | 20 | 1.40 | –".split(" | "),
        "Training step: RAM | B | some CPU | steps/s | 9 | 3 | 3.00 | –".split(" | "),
    ]
    # The ratios of two training steps with the same malloc: 24 / 40 and 16 / 4.
    put(
        tmp_path,
        measured("lstmn_step", {"this project": 16.0, "A": 8.0, "A, same malloc": 4.0}),
        file=records.BENCHMARKS,
    )
    words = show(tmp_path, "facts")
    assert (
        "0.60 times (recurrent models, against JoeyNMT) to 4 times (LSTMN, against A)"
        in words
    )
    assert "the median of 2 models is 2.3 times" in words


def test_the_summary_of_no_record_is_no_table(tmp_path):
    put(tmp_path, measured("fast_forms", {}), file=records.BENCHMARKS)
    assert show(tmp_path, "benchmark_summary") == markdown.EMPTY


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_has_a_table_with_its_ratios(name):
    assert name in timings.BENCHMARKS
    systems = BENCHMARKS[name].systems if name in BENCHMARKS else []
    # Powers of two: a ratio tells which systems it compares.
    rates = {system.name: {"rate": 2.0**-i} for i, system in enumerate(systems)}
    assert len(rates) == len(systems)
    compared = timings.comparisons(rates)
    for each in compared:
        ratio = rates[each.system]["rate"] / rates[each.other]["rate"]
        assert each.ratio == round(ratio, 2)
    ours = [x.name for x in systems if x.module == "ours" and "malloc" not in x.name]
    assert [each.system for each in compared] == ours


TEXT = """a
<!-- results:begin x -->
old
<!-- results:end x -->
b
<!-- results:begin y: one two -->
<!-- results:end y -->
"""


def test_tables_are_written_between_their_marks():
    shows = {"x": lambda runs: f"| new {runs} |", "y": lambda runs: f"| {runs} |"}
    once = pages.fill("README.md", TEXT, shows)
    expected = TEXT.replace("old\n", "\n| new () |\n\n")
    assert once == expected.replace(
        "one two -->\n", "one two -->\n\n| ('one', 'two') |\n\n"
    )
    assert pages.fill("README.md", once, shows) == once


def test_links_of_tables_are_relative_to_the_page():
    shows = {"x": lambda runs: "[a](configs/a.py) [b](docs/results/b.md)"}
    text = TEXT.partition("<!-- results:begin y")[0]
    assert "\n[a](../../configs/a.py) [b](b.md)\n" in pages.fill(
        "docs/results/c.md", text, shows
    )
    assert "\n[a](configs/a.py) [b](docs/results/b.md)\n" in pages.fill(
        "README.md", text, shows
    )


@pytest.mark.parametrize(
    ("texts", "names", "message"),
    [
        ({"a.md": TEXT}, ["x"], "a.md: no table is called y"),
        (
            {"a.md": TEXT, "b.md": TEXT},
            ["x", "y"],
            "b.md: the table x is on a.md already",
        ),
        (
            {"a.md": TEXT},
            ["x", "y"],
            "no page shows the table y: put its marks on a page of docs/",
        ),
        (
            {"a.md": "<!-- results:begin x -->"},
            ["x"],
            "a.md: the table x has no end mark",
        ),
        (
            {"a.md": TEXT.replace("end y", "end x")},
            ["x", "y"],
            "a.md: the mark <!-- results:end x --> is misplaced or misspelt",
        ),
        (
            {"a.md": TEXT.replace("begin x", "begn x")},
            ["x", "y"],
            "a.md: the mark <!-- results:begn x --> is misplaced or misspelt",
        ),
    ],
)
def test_a_table_is_whole_on_exactly_one_page(texts, names, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        pages.homes(texts, names)


def test_a_page_can_include_a_source_file():
    text = "<!-- source:begin base/errors.py -->\n<!-- source:end base/errors.py -->\n"
    included = pages.fill("docs/a.md", text, {})
    source = (records.ROOT / "base/errors.py").read_text("utf-8")
    assert f"-->\n\n```py\n{source}```\n\n<!--" in included
    assert pages.fill("docs/a.md", included, {}) == included
    with pytest.raises(UserError, match=r"^docs/a.md: there is no file nothing\.py$"):
        pages.fill("docs/a.md", text.replace("base/errors.py", "nothing.py"), {})


def test_a_page_can_show_a_selection_of_rows_and_claims(tmp_path, monkeypatch):
    lines = (f"{x} transformer_nmt | {x * 2}" for x in "abcd")
    runs = schema.runs("\n".join(lines))
    claims = schema.claims("a > b c | a is best\nc > d | c beats d")
    table = Table(metrics={"BLEU": "bleu"}, runs=runs, claims=claims, curves=True)
    monkeypatch.setattr(tables, "TABLES", {"t": table})
    for run, bleu in zip(runs, (5.0, 2.0, 3.0, 4.0), strict=True):
        put(tmp_path, record(name=run.name, metrics={"bleu": bleu}))
    put(tmp_path, record(system="Other", name="e"))

    def first_cells(name, *selected):
        lines = show(tmp_path, name, *selected).partition("\n\n")[0].splitlines()
        return [line.split("|")[1].strip() for line in lines[2:]]

    link = "](configs/transformer_nmt.py)"
    assert first_cells("t", "d", "b") == [f"[bb{link}", f"[dd{link}"]
    assert first_cells("t")[1] == "Other" and len(first_cells("t")) == 5
    assert show(tmp_path, "t", "d").startswith("| run | BLEU | paper |\n")
    assert first_cells("t_curves", "c") == [f"[cc{link}"]
    assert first_cells("t_claims", "a") == ["a is best"]
    assert show(tmp_path, "t_claims", "b") == "Not measured yet."  # no best rival
    assert first_cells("t_claims", "d") == ["c beats d"]
    assert first_cells("t_claims", "c") == ["a is best", "c beats d"]
    assert first_cells("t_claims") == ["a is best", "c beats d"]
    in_words = show(tmp_path, "t_in_words", "d")
    assert in_words.startswith('- "C beats d": **')
    assert in_words.endswith("BLEU: 3.0 (*cc*), 4.0 (*dd*).")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alignments", "the table alignments has no run x"),
        ("alignments_claims", "the table alignments has no run x"),
        ("benchmarks", "the table benchmarks has no runs to select: remove x"),
    ],
)
def test_a_selection_names_runs_of_its_table(name, message, tmp_path):
    with pytest.raises(UserError, match=f"^{message}$"):
        show(tmp_path, name, "x")


def test_a_headline_is_the_first_metric_of_a_run_with_a_link(tmp_path, monkeypatch):
    headline = next(h for h in HEADLINES if h.run == "pointer_sorting_10_5_1")
    monkeypatch.setattr(tables, "HEADLINES", (headline, HEADLINES[0]))
    for seed, accuracy in enumerate((90.0, 92.0)):
        metrics = {"accuracy": accuracy, "accuracy_5": 1.0}
        saved = record(name=headline.run, seed=seed, metrics=metrics)
        put(tmp_path, saved)
    homes = {"pointer_sorting": "docs/results/pointing.md"}
    put_floors(tmp_path, pointer_sorting={"random": {"accuracy": 0.25}})
    lines = tables.tables(tmp_path, homes)["headline"](()).splitlines()
    assert lines[0] == "| system | task | metric | here | floor | paper | trained on |"
    trained_on = markdown.trained_on([saved])
    assert lines[2:] == [
        "| Pointer network, set encoder | "
        "[sorting 10 numbers](docs/results/pointing.md) | % exact | 91.0 ± 1.4 | "
        f"0.2 | 57 % | {trained_on} |"
    ]


def put_run(folder, config, rows, **scores):
    """The files of a run directory that records are collected from."""
    configuration.record(config, folder)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(lines)
    environment = {"versions": {"jax": "0.0.1"}, "backend": "cpu", "devices": ["cpu"]}
    environment |= {"cpus": 2, "commit": "0123456789+changes"}
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "eval_test.json").write_text(json.dumps(scores))


@pytest.fixture
def workdir(tmp_path):
    config = read_config("transformer_nmt.py")
    rows = [
        {"step": 25, "split": "train", "seconds": 5.0, "steps_per_second": 4.0},
        {"step": 50, "split": "train", "seconds": 9.0, "steps_per_second": 6.5},
        {"step": 75, "split": "train", "seconds": 20.0, "steps_per_second": 5.1234},
        {"step": 100, "split": "validation", "seconds": 30.0, "bleu": 7.12345},
        {"step": config.train_steps, "split": "validation", "seconds": 90, "bleu": 9.0},
    ]
    put_run(
        tmp_path,
        config,
        rows,
        checkpoint="best",
        step=100,
        bleu=21.04321,
        signatures={"bleu": "nrefs:1"},
        by_length=by_length(5.12345, 3.0),
    )
    (tmp_path / "checkpoints" / "100").mkdir(parents=True)
    return tmp_path


def test_a_record_is_collected_from_the_run_directory(workdir):
    saved = make.make_record(RUNS[0], 0, workdir)
    assert set(record()) <= set(saved)
    assert saved["metrics"] == {"bleu": 21.043, "bleu_signature": "nrefs:1"}
    assert saved["curve"] == [[0.5, 7.123], [1.5, 9.0]]
    assert (saved["minutes"], saved["device"]) == (1.5, "CPU, 2 cores")
    assert saved["commit"] == "0123456789+changes"
    assert saved["by_length"] == by_length(5.123, 3.0)
    assert saved["steps_per_second"] == 5.123  # the median
    assert "waiting" not in saved and "examples" not in saved
    settings = saved["settings"]
    assert settings == records.identity(settings)
    assert {"log_every", "mesh", "parallel"}.isdisjoint(settings)
    assert "files" not in settings["data"]
    assert settings["save_every"] == 100  # of the checkpoints that are averaged
    assert settings["architecture"] == "models.transformer:Transformer"
    (workdir / "eval_test.json").unlink()
    with pytest.raises(UserError, match=r"eval_test\.json is missing"):
        make.make_record(RUNS[0], 0, workdir)


def test_a_run_that_was_planned_shorter_is_no_record(workdir):
    extended = {"extended": [{"step": 7, "train_steps": 11}, {"step": 13}]}
    encoding.write_json(encoding.read_json(workdir) | extended, workdir)
    with pytest.raises(UserError, match="was planned shorter, up to step 13: a record"):
        make.make_record(RUNS[0], 0, workdir)


def test_a_record_of_generated_data_counts_examples_and_waiting(tmp_path, monkeypatch):
    figure = Chart(
        file="docs/z.png",
        title="",
        value_title="%",
        lines={"a": "x:wrong", "b": "y:other"},
    )
    loss = Chart(
        file="docs/l.png", title="", value_title="", lines={"a": "x"}, loss_every=20
    )
    monkeypatch.setattr(make, "FIGURES", (figure, loss))
    rows = [
        {"step": 10, "split": "train", "seconds": 1.0, "loss": 4.0, "waiting": 0.01},
        {"step": 20, "split": "train", "seconds": 2.0, "loss": 3.0, "waiting": 0.03},
        {"step": 30, "split": "train", "seconds": 3.0, "loss": 2.0, "waiting": 0.5},
        {"step": 30, "split": "validation", "seconds": 4.0, "bits": 1.5},
    ]
    rows[-1]["wrong"] = 0.12345
    config = read_config("ntm_copy.py", "data.batch_size=7")
    put_run(tmp_path, config, rows, checkpoint="last", step=30, bits=1.25)
    saved = make.make_record(Run(name="x", config="ntm_copy"), 0, tmp_path)
    assert (saved["examples"], saved["waiting"]) == ([210], 0.03)  # the median
    assert saved["curve"] == [[0.07, 1.5]]
    assert saved["curves"] == {"wrong": [0.1235]}
    assert saved["training_loss"] == [(20, 3.0)]


def test_a_record_has_the_examples_until_the_first_perfect_evaluation(tmp_path):
    config = read_config("pointer_sorting.py", "data.batch_size=7")

    def collect(*accuracies):
        rows = [
            {"step": 10 * i, "split": "validation", "seconds": 1.0, "accuracy": x}
            for i, x in enumerate(accuracies, 1)
        ]
        put_run(tmp_path, config, rows, checkpoint="last", step=40, accuracy=99.0)
        return make.make_record(Run(name="x", config="pointer_sorting"), 0, tmp_path)

    assert collect(50.0, 100.0, 99.0, 100.0)["perfect_after"] == 140
    assert "perfect_after" not in collect(50.0, 99.9)


def test_a_run_is_done_when_its_last_step_is(workdir):
    assert make._is_done(RUNS[0], 0, workdir)
    (workdir / "metrics.jsonl").write_text('{"step": 99, "seconds": 1.0}\n')
    assert not make._is_done(RUNS[0], 0, workdir)
    with pytest.raises(UserError, match="config.seed: 0 there, 1 now"):
        make._is_done(RUNS[0], 1, workdir)


def test_only_missing_runs_are_made(tmp_path, monkeypatch, capsys):
    (run,) = schema.runs("x transformer_nmt model.heads=2 | | | 2")
    settings = make._identity(run, 0)
    trained = []
    monkeypatch.setitem(families.FAMILY, "x", "runs")
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(make, "TABLES", {"t": Table(metrics={}, runs=(run,))})
    monkeypatch.setattr(make, "make", lambda run, seed, *_: trained.append(seed))
    monkeypatch.setattr(tables, "write", lambda: None)

    def train_missing(**fields):
        put(tmp_path, record(name="x", **fields))
        trained.clear()
        make.main([])
        return trained

    assert train_missing(settings=settings) == [1]
    assert train_missing(settings={}) == [0, 1]
    other = json.loads(json.dumps(settings))
    other["loss"]["smoothing"] = 0.0  # from an older config
    assert train_missing(settings=other) == [0, 1]
    put(tmp_path, record(name="x", settings=settings))
    capsys.readouterr()
    assert train_missing(seed=1, settings=make._identity(run, 1)) == []
    assert "nothing is missing: all 2 trainings" in capsys.readouterr().out


def test_a_run_that_a_sweep_has_trained_is_only_evaluated(tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(records.ROOT / "configs")
    monkeypatch.setattr(make, "ROOT", tmp_path)
    run = Run(name="x", config="kernel_regression:smoke", overrides=("model.width=2",))
    folder = tmp_path / "sweeps/kernels/trials/003.seed1"
    configuration.record(make._config(run, 1), folder)
    (folder / "metrics.jsonl").write_text('{"step": 6, "split": "train", "seconds": 1}')
    folders = [tmp_path / f"runs/{make._label(run, seed)}" for seed in (0, 1)]
    assert [make._folder(run, seed) for seed in (0, 1)] == [folders[0], folder]
    evaluate = make.commands(run, 1, folder.relative_to(tmp_path))[1]
    assert "--workdir=sweeps/kernels/trials/003.seed1 --split=test" in evaluate
    assert f"--workdir=runs/{folders[1].name}" in make.commands(run, 1)[0]
    folders[1].mkdir(parents=True)
    assert make._folder(run, 1) == folders[1]


WITHOUT_EFFECT = {
    **{"log_every": 7, "parallel": "pmap", "evaluation.figures": 11},
    **{"mesh.data": 5, "mesh.fsdp": 7, "mesh.tensor": 3},
    **{"data.folder": "elsewhere", "data.files": {"train": "elsewhere"}},
}
AVERAGED = dict.fromkeys(("save_every", "checkpoints.keep", "evaluation.average"), 7)
EFFECTIVE = dict.fromkeys(("train_steps", "seed", "eval_every"), 7)


@pytest.mark.parametrize(
    ("name", "averages"),
    [("transformer_nmt", True), ("ntm_copy", False), ("sagan_attention", False)],
)
def test_a_record_is_valid_until_a_field_with_an_effect_changes(
    name, averages, monkeypatch
):
    (run,) = (run for run in RUNS if run.name == name)
    assert make.is_current(run, 0)
    read = make._config
    assert (read(run, 0).evaluation.checkpoint == "average") == averages
    changed = set()
    for field, value in (WITHOUT_EFFECT | AVERAGED | EFFECTIVE).items():
        config = read(run, 0).unlock()
        *groups, last = field.split(".")
        functools.reduce(lambda x, name: x.get(name, {}), groups, config)[last] = value
        monkeypatch.setattr(make, "_config", lambda *_, config=config: config)
        changed |= set() if make.is_current(run, 0) else {field}
    assert changed == {*EFFECTIVE, *(AVERAGED if averages else ())}


def test_an_emptied_group_is_not_part_of_the_identity():
    settings = {"data": {"files": {"train": ""}}, "checkpoints": {"keep": 1}, "seed": 2}
    assert records.identity(settings) == records.identity({"seed": 2})
    assert not {"data", "checkpoints"} & set(records.identity(settings))
    assert settings["checkpoints"] == {"keep": 1}


def test_only_the_runs_of_tables_that_are_named_are_made(monkeypatch):
    chosen = {
        name: Table(metrics={}, runs=schema.runs(f"{name * 2} transformer_nmt"))
        for name in "abc"
    }
    trained = []
    monkeypatch.setattr(make, "TABLES", chosen)
    monkeypatch.setattr(make, "is_current", lambda run, seed: False)
    monkeypatch.setattr(make, "make", lambda run, *_: trained.append(run.name))
    monkeypatch.setattr(tables, "write", lambda: trained.append("written"))
    make.main(["c", "a"])
    with pytest.raises(UserError, match="^table d: must be one of a, b, c$"):
        make.main(["a", "d"])
    assert trained == ["cc", "aa", "written"]


def test_a_command_of_a_run_is_called_with_its_words(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "ROOT", tmp_path)
    processes = workers.Processes()
    (tmp_path / "z.py").write_text("import sys; open('words', 'w').write(sys.argv[1])")
    make._call("python z.py \"--a=('b c',)\"", workers.Share(), processes)
    assert (tmp_path / "words").read_text() == "--a=('b c',)"
    with pytest.raises(UserError, match="^python y.py exited with status 2$"):
        make._call("python y.py", workers.Share(), processes)


def test_the_commands_of_a_run_carry_what_differs():
    (run,) = schema.runs("x transformer_nmt:sinusoidal model.heads=2 | | | 2")
    assert make.commands(run, 1) == [
        "python train.py --config=configs/transformer_nmt.py:sinusoidal "
        "--workdir=runs/x.seed1 --config.model.heads=2 --config.seed=1",
        "python eval.py --workdir=runs/x.seed1 --split=test",
    ]
    assert make.commands(run, 0)[1] == "python eval.py --workdir=runs/x --split=test"
    run = Run(name="x", config="sagan", overrides=("model.x=($HOME, 'a b')",))
    assert f"--config.{run.overrides[0]}" in shlex.split(make.commands(run, 0)[0])


def test_the_commands_of_the_records_are_quoted_for_a_shell():
    commands = [x for each in read_runs() for x in each["commands"]]
    assert len(commands) > 500
    assert [x for x in commands if shlex.join(shlex.split(x)) != x] == []


@pytest.mark.parametrize(
    ("config", "run", "metric", "digits"),
    [
        ("ntm_copy", "ntm_copy", "bits", 2),
        ("ntm_copy", "ntm_copy", "bits_120", 2),
        ("ntm_ngrams", "ntm_ngrams", "bits", 1),
        ("ntm_recall", "ntm_recall", "bits", 2),
        ("ntm_recall", "ntm_recall", "bits_15", 2),
        ("pointer_sorting", "pointer_sorting_10_lstm_1", "accuracy", 1),
        ("pointer_hull", "pointer_hull_10", "accuracy", 1),
        ("captioning", "captioning_soft", "bleu_4", 1),
        ("sagan", "sagan_attention", "frechet", 2),
        ("kernel_regression", "kernels_learned", "mse", 2),
        ("las_digits", "las_digits", "wer", 1),
        ("lstmn_sentences", "reviews", "accuracy", 1),
        ("lstmn_sentences", "pairs_entailment", "accuracy", 1),
    ],
)
def test_the_docstring_of_a_config_quotes_the_mean_of_its_records(
    config, run, metric, digits
):
    docstring = importlib.import_module(f"configs.{config}").__doc__
    values = [r["metrics"][metric] for r in read_runs() if r["name"] == run]
    mean = re.escape(f"{statistics.mean(values):.{digits}f}")
    assert re.search(rf"(?<![\d.]){mean}(?![\d.]*\d)", docstring)


def test_the_readme_states_the_default_without_near_duplicates():
    (run,) = (r for r in read_runs() if r["name"] == "transformer_nmt")
    assert f"{run['metrics']['bleu_new']:.1f} BLEU" in PAGES["README.md"]


def test_a_run_that_evaluates_another_shares_its_directory(monkeypatch):
    config = "luong_nmt:smoke model.layers=1"
    first, beam = (
        *schema.runs(f"x {config}"),
        *schema.runs(f"y {config} evaluation.beam=7", trained="x"),
    )
    table = Table(metrics={"BLEU": "bleu"}, runs=(first, beam))
    monkeypatch.setattr(make, "TABLES", {"t": table})
    train, evaluate = make.commands(beam, 0)
    assert train == make.commands(first, 0)[0]
    assert evaluate == make.commands(first, 0)[1] + " --config.evaluation.beam=7"
