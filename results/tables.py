"""Writes the tables of README.md and docs/, and draws figures, from the records.

    python -m results.tables

See `results.pages` for the marks around a table.
"""

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from base.errors import UserError
from figures import canvas, charts, drawings
from results import cells, claim_tables, curves, figures, markdown, pages, timings
from results.families import FIGURES, HEADLINES, TABLES
from results.records import (
    BENCHMARKS,
    FLOORS,
    FOLDER,
    INITIAL_ENTROPY,
    OURS,
    ROOT,
    Record,
    read,
    read_json,
    read_runs,
)
from results.schema import Curves, Figure, Run, Table

_MAX_COLUMNS = 8  # maximum number of columns of the learning curves
_EMPTY = "Not measured yet."

Floors = Mapping[str, Mapping[str, float]]  # metrics by name of the floor


class Row(NamedTuple):
    """A row of a table: a run of this project, or None for another system."""

    run: Run | None
    records: list[Record]  # one per seed


def names() -> list[str]:
    """Returns the names of all tables."""
    return list(tables())


def tables(
    folder: Path = FOLDER, homes: Mapping[str, str] = MappingProxyType({})
) -> dict[str, pages.Show]:
    """Returns the function that writes each table, by name.

    Args:
        folder: the folder of the records.
        homes: the page of each table, which the table of headline results links to.

    Returns:
        Functions that take names of runs (all if empty) and return Markdown, or raise a
        `UserError` for a run that is not in the table.
    """
    records, all_floors = read_runs(folder), read_json(FLOORS, folder)
    shows: dict[str, pages.Show] = {}
    for name, table in TABLES.items():
        rows, floors = _rows(table, records), all_floors.get(name, {})
        shows[name] = functools.partial(_results, name, table, rows, floors)
        if table.curves:
            shows[f"{name}_curves"] = functools.partial(
                _learning_curves, name, table, rows
            )
        if table.claims:
            shows[f"{name}_claims"] = functools.partial(
                _claims, name, table, rows, floors, folder, records
            )
    for figure in FIGURES:
        numbers = _by_training if isinstance(figure, Curves) else _by_length
        name = Path(figure.file).stem
        shows[name] = functools.partial(
            _whole, name, lambda f=figure, n=numbers: n(f, records)
        )
    shows["claims"] = functools.partial(
        _whole, "claims", lambda: _all_claims(records, all_floors, homes, folder)
    )
    shows["seeds"] = functools.partial(
        _whole, "seeds", lambda: claim_tables.seeds(TABLES, records, homes)
    )
    benchmarks = read(folder / BENCHMARKS)
    for name in dict.fromkeys(each.page for each in timings.BENCHMARKS.values()):
        shows[name] = functools.partial(
            _whole, name, lambda n=name: timings.render(benchmarks, n) or _EMPTY
        )
    entropies = read_json(INITIAL_ENTROPY, folder)
    shows["initial_entropy"] = functools.partial(
        _whole, "initial_entropy", lambda: _initial_entropy(entropies)
    )
    shows["headline"] = functools.partial(
        _whole, "headline", lambda: _headline(records, all_floors, homes)
    )
    return shows


def filled(root: Path = ROOT) -> dict[str, str]:
    """Returns the text of every page with its tables, by the page's name.

    Raises:
        UserError: for a misplaced mark, an unknown table or run, or a table that is not
            shown in full on exactly one page.
    """
    texts = pages.read(root)
    shows = tables(homes=pages.homes(texts, names()))
    return {page: pages.fill(page, text, shows) for page, text in texts.items()}


def draw(folder: Path = FOLDER, root: Path = ROOT) -> list[Path]:
    """Draws the figures of docs/; none without matplotlib.

    Those of results need the records of all their runs, the others their arrays, see
    `results.figures`.

    Raises:
        UserError: if a figure's runs were not evaluated on the same sentences.
    """
    if not canvas.available():
        return []
    with drawings.recorded():
        return _draw_results(folder, root) + figures.redraw(root)


def _draw_results(folder: Path, root: Path) -> list[Path]:
    """Draws the figures of results."""
    records, paths = read_runs(folder), []
    for figure in FIGURES:
        if isinstance(figure, Curves):
            series = curves.series_of(figure, records)
            titles = {"axis_title": curves.axis_title(figure)}
            titles |= {"value_title": figure.value_title}
        else:
            series, sentences = _length_series(figure, records)
            titles = {"axis_title": "words in the source", "value_title": "BLEU"}
            notes = {group: f"n = {n:,}" for group, n in sentences.items()}
            titles |= {"notes": notes, "intervals": _intervals(figure, records)}
        if len(series) == len(figure.lines):
            path = root / figure.file
            paths.append(charts.lines(series, figure.title, path, **titles))
    return paths


def write() -> None:
    """Writes the tables into the pages, and draws their figures."""
    pages.write(filled())
    draw()


def _length_series(
    figure: Figure, records: list[Record]
) -> tuple[dict[str, dict[str, list[float]]], dict[str, int]]:
    """BLEU of each recorded line, and the number of sentences, by source length."""
    series, sentences = {}, {}
    for label, name in figure.lines.items():
        for record in records:
            is_ours = record["system"] == OURS and record["name"] == name
            if not is_ours or "by_length" not in record:
                continue
            by_length = record["by_length"]
            counts = {group: x["sentences"] for group, x in by_length.items()}
            sentences = sentences or counts
            if counts != sentences:
                raise UserError(
                    f"{figure.file}: {name} has {counts} sentences by length, other "
                    f"runs {sentences}: all must use the same test split"
                )
            for group, values in by_length.items():
                line = series.setdefault(label, defaultdict(list))
                line[group].append(values["bleu"])
    return series, sentences


def _intervals(
    figure: Figure, records: list[Record]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Bootstrap intervals of the lines with a single seed, by source length."""
    runs = {
        label: [r for r in records if r["system"] == OURS and r["name"] == name]
        for label, name in figure.lines.items()
    }
    return {
        label: {
            group: (values["bleu_low"], values["bleu_high"])
            for group, values in of[0].get("by_length", {}).items()
            if "bleu_low" in values
        }
        for label, of in runs.items()
        if len(of) == 1
    }


def _by_length(figure: Figure, records: list[Record]) -> str:
    """The table of a figure of BLEU by source length."""
    series, sentences = _length_series(figure, records)
    if not series:
        return _EMPTY
    lines = [
        [label, *(f"{statistics.mean(line[group]):.1f}" for group in sentences)]
        for label, line in series.items()
    ]
    groups = [f"{group} ({n:,})" for group, n in sentences.items()]
    return markdown.table(["BLEU by words in the source (sentences)", *groups], lines)


def _by_training(figure: Curves, records: list[Record]) -> str:
    return curves.table(figure, records) or _EMPTY


def _rows(table: Table, records: list[Record]) -> list[Row]:
    """The recorded rows: each run, followed by other systems with its config."""
    ours, others = defaultdict(list), defaultdict(list)
    for record in records:
        if record["system"] == OURS:
            ours[record["name"]].append(record)
        else:
            others[record["config"]].append(record)
    rows = []
    for run in table.runs:
        rows.append(Row(run, ours[run.name]))
        rows += [Row(None, [record]) for record in others.pop(run.config, [])]
    return [row for row in rows if row.records]


def _whole(name: str, show: Callable[[], str], runs: Sequence[str]) -> str:
    """Shows a table that has no rows to select."""
    if runs:
        raise UserError(
            f"the table {name} has no runs to select: remove {', '.join(runs)}"
        )
    return show()


def _select(name: str, table: Table, rows: list[Row], runs: Sequence[str]) -> list[Row]:
    """The rows of the named runs; all rows if none is named."""
    names = [run.name for run in table.runs]
    for run in runs:
        if run not in names:
            raise UserError(f"the table {name} has no run {run}")
    return [row for row in rows if not runs or (row.run and row.run.name in runs)]


def _results(
    name: str, table: Table, rows: list[Row], floors: Floors, runs: Sequence[str]
) -> str:
    """The table of the metrics, with the floors in its last rows."""
    rows = _select(name, table, rows, runs)
    if not rows:
        return _EMPTY
    titles = ["run", *table.metrics, *table.columns]
    titles += ["steps", "minutes", "device", "commit", "paper"]
    lines, signatures = [], []
    for run, records in rows:
        for record in records:
            values = record["metrics"]
            for title, metric in table.metrics.items():
                signature = values.get(f"{metric}_signature")
                signatures += [f"{title} `{signature}`"] if signature else []
        lines.append(
            [
                _title(run, records) + _seeds(run, records),
                *(
                    cells.mean(records, metric, table.digits)
                    for metric in table.metrics.values()
                ),
                *(cells.mean_field(records, field) for field in table.columns.values()),
                f"{records[0]['steps']:,}",
                cells.minutes(records),
                records[0]["device"],
                ", ".join(dict.fromkeys(f"`{r['commit']}`" for r in records)),
                run.paper if run else "",
            ]
        )
    for title, scores in (floors | table.cited).items():
        metrics = [
            f"{scores[metric]:.{table.digits}f}" if metric in scores else "–"
            for metric in table.metrics.values()
        ]
        lines.append([f"*{title}*", *metrics, *[""] * (len(titles) - len(metrics) - 1)])
    note = f"Test split. sacreBLEU: {', '.join(dict.fromkeys(signatures))}."
    return markdown.table(titles, lines) + (f"\n\n{note}" if signatures else "")


def _title(run: Run | None, records: list[Record]) -> str:
    if run is None:
        return records[0]["system"]
    file = run.config.partition(":")[0]
    parts = [f"[{run.label or f'`{run.config}`'}](configs/{file}.py)"]
    parts += [f"`{override}`" for override in run.overrides if not run.label]
    return " ".join(parts)


def _seeds(run: Run | None, records: list[Record]) -> str:
    """The number of seeds of a row, and of those planned if some have no record."""
    if run and len(records) < len(run.seeds):
        return f" ({len(records)} of {len(run.seeds)} seeds)"
    return f" ({len(records)} seeds)" if run and len(records) > 1 else ""


def _tested(
    table: Table, rows: list[Row], floors: Floors, folder: Path
) -> list[claim_tables.Tested]:
    """The recorded claims of a table, tested."""
    records = {run.name: records for run, records in rows if run}
    _, metric = table.tested_metric
    return claim_tables.tested(table, records, _floor(metric, floors), folder)


def _initial_entropy(entropies: Mapping[str, Mapping[str, list[float]]]) -> str:
    """The table of the mean entropies of untrained attention, by score and width."""
    if not entropies:
        return _EMPTY
    widths = list(next(iter(entropies.values())))
    lines = [
        [f"`{score}`", *(f"{statistics.mean(shares[w]):.1%}" for w in widths)]
        for score, shares in entropies.items()
    ]
    return markdown.table(["score", *(f"width {w}" for w in widths)], lines)


def _floor(metric: str, floors: Floors) -> float | None:
    """A metric of the first floor of a table."""
    return next(iter(floors.values()), {}).get(metric)


def _claims(
    name: str,
    table: Table,
    rows: list[Row],
    floors: Floors,
    folder: Path,
    records: list[Record],
    runs: Sequence[str],
) -> str:
    """Tests the recorded claims; with `runs`, only claims that compare one of them."""
    _select(name, table, rows, runs)
    lines = [
        row
        for row in _tested(table, rows, floors, folder)
        if not runs or not {row.claim.better, row.verdict.rival}.isdisjoint(runs)
    ]
    return claim_tables.of_table(table, lines, records) if lines else _EMPTY


def _all_claims(
    records: list[Record],
    all_floors: Mapping[str, Floors],
    homes: Mapping[str, str],
    folder: Path,
) -> str:
    """The table of all claims."""
    groups, floors = {}, {}
    for name, table in TABLES.items():
        given = all_floors.get(name, {})
        rows = _tested(table, _rows(table, records), given, folder)
        _, metric = table.tested_metric
        groups[name], floors[name] = (table, rows), _floor(metric, given)
    return claim_tables.of_all(groups, floors, homes)


def _headline(
    records: list[Record], all_floors: Mapping[str, Floors], homes: Mapping[str, str]
) -> str:
    """The table of headline results: the first metric of one run per system."""
    lines = []
    for headline in HEADLINES:
        name, table, run = next(
            (name, table, run)
            for name, table in TABLES.items()
            for run in table.runs
            if run.name == headline.run
        )
        rows = [row.records for row in _rows(table, records) if row.run is run]
        if not rows:
            continue
        title, metric = next(iter(table.metrics.items()))
        home, floor = homes.get(name), _floor(metric, all_floors.get(name, {}))
        lines.append(
            [
                headline.system,
                f"[{headline.task}]({home})" if home else headline.task,
                title,
                cells.mean(rows[0], metric, table.digits),
                "–" if floor is None else f"{floor:.{table.digits}f}",
                headline.paper or run.paper or "–",
                cells.trained_on(rows[0]),
            ]
        )
    titles = ["system", "task", "metric", "here", "floor", "paper", "trained on"]
    return markdown.table(titles, lines, right_aligned=4) if lines else _EMPTY


def _learning_curves(
    name: str, table: Table, rows: list[Row], runs: Sequence[str]
) -> str:
    """The table of the first metric by minutes of training, for the first seed."""
    rows = _select(name, table, rows, runs)
    rows = [row for row in rows if row.records[0]["curve"]]
    if not rows:
        return _EMPTY
    minutes = _minutes(max(records[0]["curve"][-1][0] for _, records in rows))
    lines = [
        [
            _title(run, records),
            *(_reached(records[0]["curve"], m, minutes.step) for m in minutes),
        ]
        for run, records in rows
    ]
    title = f"validation {next(iter(table.metrics))} by minutes of training"
    return markdown.table([title, *map(str, minutes)], lines)


def _minutes(last: float) -> range:
    """At most `_MAX_COLUMNS` round numbers, up to at least `last`."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    step = next(step for step in steps if last <= step * _MAX_COLUMNS)
    return range(step, step * math.ceil(last / step) + 1, step)


def _reached(curve: Sequence[Sequence[float]], minute: int, step: int) -> str:
    """The last value by a minute; empty if the run ended `step` minutes before it."""
    if curve[-1][0] <= minute - step:
        return ""
    values = [value for at, value in curve if at <= minute]
    return f"{values[-1]:.1f}" if values else "–"


if __name__ == "__main__":
    write()
