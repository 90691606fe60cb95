"""Writes the README's tables and draws its figures from the records beside this file.

    python -m results.tables

A table stands between `<!-- results:begin NAME -->` and `<!-- results:end NAME -->`.
"""

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from errors import UserError
from results.reported import FIGURES, TABLES, Curves, Figure, Run, Table
from training import plots

RESULTS = Path(__file__).parent
README = RESULTS.parent / "README.md"
OURS = "this project"
_COLUMNS = 8  # at most, of the learning curves
_EMPTY = "Not measured yet."
_EXAMPLES = "thousand examples seen"

# By name of the record: what it shows, and its columns.
BENCHMARKS = {
    "transformer_step": (
        "Training step: 11.7M parameters, 64 × (32 + 32) tokens, float32",
        {"ms a step": "median_ms", "tokens/s": "rate", "of matmul rate": "share"},
    ),
    "decoding": (
        "Beam search: the same model, beam 4, 64 sentences to 32 tokens",
        {"ms a batch": "median_ms", "sentences/s": "rate"},
    ),
    "tokens": (
        "Training on the default corpus, batches of 2048 target tokens",
        {"real target tokens/s": "rate", "ms a step": "median_ms"}
        | {"padding": "padding"},
    ),
    "transformer_base": (
        "Training step: Transformer-base, 63M parameters, 32 × (64 + 64) tokens",
        {"ms a step": "median_ms", "tokens/s": "rate", "of matmul rate": "share"},
    ),
    "recurrent_step": (
        "Training step: recurrent, states of 512, 64 × (32 + 32) tokens, float32",
        {"ms a step": "median_ms", "tokens/s": "rate", "of matmul rate": "share"}
        | {"compile s": "compile_s"},
    ),
    "recurrent_decoding": (
        "Beam search: the recurrent models, beam 4, 64 sentences to 32 tokens",
        {"ms a batch": "median_ms", "sentences/s": "rate", "compile s": "compile_s"},
    ),
    "ntm_step": (
        "Training step: NTM, LSTM of 100, memory 128 × 20, copies of 20 vectors",
        {"ms a step": "median_ms", "sequences/s": "rate", "of matmul rate": "share"}
        | {"compile s": "compile_s"},
    ),
    "pointer_step": (
        "Training step: pointer network, states of 256, 128 sets of 10 points",
        {"ms a step": "median_ms", "steps/s": "rate", "of matmul rate": "share"}
        | {"compile s": "compile_s"},
    ),
    "caption_step": (
        "Training step: captioner, 32 maps of 14 × 14, 20 words, states of 512",
        {"ms a step": "median_ms", "steps/s": "rate", "of matmul rate": "share"}
        | {"compile s": "compile_s"},
    ),
    "sagan_step": (
        "Step of both networks: SAGAN, 16 pictures of 64 pixels",
        {"ms a step": "median_ms", "steps/s": "rate", "of matmul rate": "share"}
        | {"compile s": "compile_s"},
    ),
}
_FACTS = {  # of a benchmark, below its table
    "ratio": "{:.2f} times the rate of the fastest other library",
    "ratio_same_malloc": "{:.2f} times when that one is given the same malloc",
    **{
        f"{name}_{key}": f"{model}: {{:.2f}} times {than}"
        for key, model, peer in (
            ("bahdanau", "Bahdanau", "JoeyNMT's"),
            ("same", "Bahdanau as JoeyNMT has it", "JoeyNMT's"),
            ("luong", "Luong", "JoeyNMT's"),
            ("rows_1", "batch 1", "the other's"),
            ("rows_32", "batch 32", "the other's"),
        )
        for name, than in {
            "ratio": f"{peer} rate",
            "ratio_same_malloc": "with the same malloc",
        }.items()
    },
    "product_gflop_a_second": "matrix products alone: {:.0f} GFLOP/s",
}

Record = dict[str, Any]


def records(pattern: str, folder: Path = RESULTS) -> list[Record]:
    """Returns the records whose file names match, in the names' order."""
    return [json.loads(p.read_text("utf-8")) for p in sorted(folder.glob(pattern))]


def runs(folder: Path = RESULTS) -> list[Record]:
    """Returns the records of runs."""
    return [record for record in records("*.json", folder) if "question" not in record]


def render(folder: Path = RESULTS) -> dict[str, str]:
    """Returns the text of every table, by name."""
    found = runs(folder)
    texts = {}
    for name, table in TABLES.items():
        rows = _rows(table, found)
        texts[name] = _results(table, rows)
        if table.curves:
            texts[f"{name}_curves"] = _curves(table, rows)
        if table.claims:
            texts[f"{name}_claims"] = _claims(table, rows)
    for figure in FIGURES:
        of = _by_examples if isinstance(figure, Curves) else _by_length
        texts[Path(figure.file).stem] = of(figure, found)
    return texts | {"benchmarks": _benchmarks(records("bench_*.json", folder))}


def replace(text: str, tables: dict[str, str]) -> str:
    """Returns `text` with the tables between their marks.

    Raises:
        UserError: for a table without marks, or marks without a table.
    """
    marks = re.compile(
        r"(<!-- results:begin (\w+) -->\n).*?(<!-- results:end \2 -->)", re.DOTALL
    )
    there = [match[2] for match in marks.finditer(text)]
    if sorted(there) != sorted(tables):
        raise UserError(
            f"README.md has marks for {', '.join(there) or 'no table'}; "
            f"the tables are {', '.join(tables)}"
        )
    return marks.sub(lambda m: f"{m[1]}\n{tables[m[2]]}\n\n{m[3]}", text)


def draw(folder: Path = RESULTS, root: Path = README.parent) -> list[Path]:
    """Draws the figures whose lines all have records; none without matplotlib.

    Raises:
        UserError: if a figure's runs were not scored on the same sentences.
    """
    if not plots.available():
        return []
    found, drawn = runs(folder), []
    for figure in FIGURES:
        if isinstance(figure, Curves):
            series = _curve_series(figure, found)
            titles = {"axis_title": _EXAMPLES, "value_title": figure.value_title}
        else:
            series, sentences = _series(figure, found)
            titles = {"axis_title": "words in the source", "value_title": "BLEU"}
            notes = {group: f"n = {n:,}" for group, n in sentences.items()}
            titles |= {"notes": notes}
        if len(series) == len(figure.lines):
            path = root / figure.file
            drawn.append(plots.lines(series, figure.title, path, **titles))
    return drawn


def write() -> None:
    """Writes the tables into the README, and draws its figures."""
    README.write_text(replace(README.read_text("utf-8"), render()), "utf-8")
    draw()


def _series(
    figure: Figure, found: list[Record]
) -> tuple[dict[str, dict[str, list[float]]], dict[str, int]]:
    """Returns the BLEU of each line that has records, and the sentences, by length."""
    series, sentences = {}, {}
    for label, name in figure.lines.items():
        for record in found:
            own = record["system"] == OURS and record["name"] == name
            if not own or "by_length" not in record:
                continue
            by_length = record["by_length"]
            counts = {group: x["sentences"] for group, x in by_length.items()}
            sentences = sentences or counts
            if counts != sentences:
                raise UserError(
                    f"{figure.file}: {name} has {counts} sentences by length, the runs "
                    f"before it {sentences}: they must be of one test split"
                )
            for group, values in by_length.items():
                line = series.setdefault(label, defaultdict(list))
                line[group].append(values["bleu"])
    return series, sentences


def _by_length(figure: Figure, found: list[Record]) -> str:
    """The numbers of a figure."""
    series, sentences = _series(figure, found)
    if not series:
        return _EMPTY
    lines = [
        [label, *(f"{statistics.mean(line[group]):.1f}" for group in sentences)]
        for label, line in series.items()
    ]
    groups = [f"{group} ({n:,})" for group, n in sentences.items()]
    return _table(["BLEU by words in the source (sentences)", *groups], lines)


def _curve_series(
    figure: Curves, found: list[Record]
) -> dict[str, dict[str, list[float]]]:
    """The metric of each line that has records, by thousands of examples."""
    series = {}
    for label, shown in figure.lines.items():
        name, _, metric = shown.partition(":")
        for record in found:
            if record["system"] == OURS and record["name"] == name:
                line = series.setdefault(label, defaultdict(list))
                values = [value for _, value in record["curve"]]
                values = record["curves"][metric] if metric else values
                for count, value in zip(record["examples"], values, strict=True):
                    line[f"{count / 1e3:.3g}"].append(value)
    return series


def _by_examples(figure: Curves, found: list[Record]) -> str:
    """The numbers of a figure of curves."""
    series = _curve_series(figure, found)
    if not series:
        return _EMPTY
    groups = sorted({group for line in series.values() for group in line}, key=float)
    lines = [
        [
            label,
            *(
                f"{statistics.mean(line[group]):.3g}" if group in line else ""
                for group in groups
            ),
        ]
        for label, line in series.items()
    ]
    return _table([f"{figure.value_title}, {_EXAMPLES}", *groups], lines)


def _rows(table: Table, found: list[Record]) -> list[tuple[Run | None, list[Record]]]:
    """Returns the rows that have records: our runs, each followed by other systems'."""
    ours, others = defaultdict(list), defaultdict(list)
    for record in found:
        if record["system"] == OURS:
            ours[record["name"]].append(record)
        else:
            others[record["config"]].append(record)
    rows = []
    for run in table.runs:
        rows.append((run, ours[run.name]))
        rows += [(None, [record]) for record in others.pop(run.config, [])]
    return [row for row in rows if row[1]]


def _results(table: Table, rows: list[tuple[Run | None, list[Record]]]) -> str:
    if not rows:
        return _EMPTY
    titles = ["run", *table.metrics, *table.columns]
    titles += ["steps", "minutes", "device", "commit", "paper"]
    lines, signatures = [], []
    for run, group in rows:
        for record in group:
            values = record["metrics"]
            for title, metric in table.metrics.items():
                signature = values.get(f"{metric}_signature")
                signatures += [f"{title} `{signature}`"] if signature else []
        lines.append(
            [
                _title(run, group),
                *(
                    _mean(group, metric, table.digits)
                    for metric in table.metrics.values()
                ),
                *(_field(group, field) for field in table.columns.values()),
                f"{group[0]['steps']:,}",
                f"{statistics.mean(record['minutes'] for record in group):.1f}",
                group[0]["device"],
                ", ".join(dict.fromkeys(f"`{r['commit']}`" for r in group)),
                run.paper if run else "",
            ]
        )
    below = "Test split; signatures: " + ", ".join(dict.fromkeys(signatures)) + "."
    return _table(titles, lines) + (f"\n\n{below}" if signatures else "")


def _title(run: Run | None, group: list[Record]) -> str:
    if run is None:
        return group[0]["system"]
    file = run.config.partition(":")[0]
    parts = [f"[{run.label or f'`{run.config}`'}](configs/{file}.py)"]
    parts += [f"`{override}`" for override in run.overrides if not run.label]
    parts += [f"({len(group)} seeds)"] if len(group) > 1 else []
    return " ".join(parts)


def _mean(group: list[Record], metric: str, digits: int) -> str:
    values = [r["metrics"][metric] for r in group if metric in r["metrics"]]
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def _field(group: list[Record], field: str) -> str:
    values = [record[field] for record in group if field in record]
    whole = len(values) == len(group)  # else the mean is of the best seeds
    return _figure({field: statistics.mean(values)} if whole else {}, field)


def _claims(table: Table, rows: list[tuple[Run | None, list[Record]]]) -> str:
    """What is said of runs that are all there, and whether it holds.

    It does, or the opposite does, where the means differ by more than the standard
    deviations over the seeds add up to.
    """
    sign = -1 if table.lower else 1
    title, metric = next(iter(table.metrics.items()))
    groups = {run.name: group for run, group in rows if run}
    labels = {run.name: run.label or run.config for run, _ in rows if run}

    def values(name: str) -> list[float]:
        return [record["metrics"][metric] for record in groups[name]]

    def shown(name: str) -> str:
        return f"{labels[name]}: {_mean(groups[name], metric, table.digits)}"

    lines = []
    for claim in table.claims:
        if not {claim.better, *claim.than} <= set(groups):
            continue
        other = max(claim.than, key=lambda name: sign * statistics.mean(values(name)))
        pair = values(claim.better), values(other)
        ahead = sign * (statistics.mean(pair[0]) - statistics.mean(pair[1]))
        spread = sum(statistics.stdev(x) for x in pair if len(x) > 1)
        holds = "yes" if ahead > spread else "no" if ahead < -spread else "not told"
        lines.append(
            [claim.text, claim.paper, shown(claim.better), shown(other), holds]
        )
    titles = ["claim", "by", f"{title} of what it prefers", "of the best other one"]
    return _table([*titles, "holds here"], lines, figures=1) if lines else _EMPTY


def _curves(table: Table, rows: list[tuple[Run | None, list[Record]]]) -> str:
    rows = [(run, group) for run, group in rows if group[0]["curve"]]
    if not rows:
        return _EMPTY
    minutes = _minutes(max(group[0]["curve"][-1][0] for _, group in rows))
    lines = [
        [
            _title(run, group[:1]),
            *(_reached(group[0]["curve"], m, minutes.step) for m in minutes),
        ]
        for run, group in rows
    ]
    title = f"validation {next(iter(table.metrics))} after minutes"
    return _table([title, *map(str, minutes)], lines)


def _minutes(last: float) -> range:
    """Returns at most `_COLUMNS` round numbers that reach `last`."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    step = next(step for step in steps if last <= step * _COLUMNS)
    return range(step, step * math.ceil(last / step) + 1, step)


def _reached(curve: list[list[float]], minute: int, step: int) -> str:
    """Returns the last value by a minute; nothing `step` minutes after the end."""
    if curve[-1][0] <= minute - step:
        return ""
    values = [value for at, value in curve if at <= minute]
    return f"{values[-1]:.1f}" if values else "–"


def _benchmarks(found: list[Record]) -> str:
    known = {record["question"]: record for record in found}
    order = [name for name in BENCHMARKS if name in known]
    return "\n\n".join(_benchmark(known[name]) for name in order) or _EMPTY


def _benchmark(record: Record) -> str:
    name = record["question"]
    heading, columns = BENCHMARKS[name]
    columns = columns | {"peak MB": "peak_mb"}
    lines = [
        [system, *(_figure(values, field) for field in columns.values())]
        for system, values in record["systems"].items()
    ]
    facts = [
        text.format(record[fact])
        for fact, text in _FACTS.items()
        if record.get(fact) is not None
    ]
    facts += [f"{record['device']}, commit `{record['commit'] or 'unknown'}`"]
    return (
        f"**{heading}** (`python -m benchmarks.{name}`)\n\n"
        f"{_table(['', *columns], lines)}\n\n{'; '.join(facts)}."
    )


def _figure(values: Record, field: str) -> str:
    value = values.get(field)
    if value is None:
        return "–"
    if field in ("share", "padding"):
        return f"{value:.0%}"
    if field == "waiting":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], figures: int | None = None
) -> str:
    """Lays out a table, its last columns (by default all but one) to the right."""
    figures = len(titles) - 1 if figures is None else figures
    ruler = ["---"] * (len(titles) - figures) + ["---:"] * figures
    return "\n".join(f"| {' | '.join(row)} |" for row in [titles, ruler, *rows])


if __name__ == "__main__":
    write()
