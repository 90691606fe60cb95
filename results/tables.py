"""Writes the tables of README.md and docs/, and draws figures, from the records.

    python -m results.tables

See `results.pages` for the marks around a table.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from base.errors import UserError
from base.storage import markdown_table
from figures import canvas, drawings
from results import claims, figures, line_charts, markdown, pages, records, timings
from results.families import FIGURES, HEADLINES, TABLES
from results.records import FLOORS, FOLDER, ROOT, Record
from results.schema import Measured, Run, Table, recorded

_MAX_MINUTES = markdown.MAX_COLUMNS - 1  # columns of a learning curve
_SPEED = "steps_per_second", "audio_per_second", "waiting"  # differ by device


def tables(
    folder: Path = FOLDER, homes: Mapping[str, str] = MappingProxyType({})
) -> dict[str, pages.Show]:
    """Returns the function that writes each table, by name.

    `homes` are the pages of the tables, which other tables link to.

    Returns:
        Functions that take names of runs (all if empty) and return Markdown, or raise a
        `UserError` for a run that is not in the table.
    """
    all_records, floors = records.read_runs(folder), records.read_json(FLOORS, folder)
    benchmarks = records.read(folder / records.BENCHMARKS)
    entropies = records.read_json(records.INITIAL_ENTROPY, folder)
    measured = {
        name: Measured(name, table, recorded(table, all_records), floors.get(name, {}))
        for name, table in TABLES.items()
    }
    shows: dict[str, pages.Show] = {}
    for name, table in TABLES.items():
        shows[name] = partial(_results, measured[name])
        if table.curves:
            shows[f"{name}_curves"] = partial(_learning_curves, measured[name])
        if table.claims:
            as_table = partial(claims.of_table, records=all_records)
            shows[f"{name}_claims"] = partial(_claims, measured[name], as_table)
            in_words = partial(_claims, measured[name], claims.in_words)
            shows[f"{name}{pages.IN_WORDS}"] = in_words
    whole: dict[str, Callable[[], str]] = {
        "claims": partial(claims.of_all, measured, homes),
        "facts": lambda: f"{claims.counts(measured)} {timings.in_words(benchmarks)}",
        "seeds": partial(claims.seeds, TABLES, all_records, homes),
        "initial_entropy": partial(_initial_entropy, entropies),
        "headline": partial(_headline, measured, homes),
        "benchmark_summary": partial(timings.summary, benchmarks),
    }
    for figure in FIGURES:
        whole[Path(figure.file).stem] = partial(line_charts.table, figure, all_records)
    for page in {each.page for each in timings.BENCHMARKS.values()}:
        whole[page] = partial(timings.render, benchmarks, page)
    return shows | {name: partial(_whole, name, show) for name, show in whole.items()}


def filled() -> dict[str, str]:
    """Returns the text of every page with its tables, by the page's name.

    Raises:
        UserError: for a misplaced mark, an unknown table or run, or a table that is not
            shown in full on exactly one page.
    """
    texts = pages.read()
    shows = tables(homes=pages.homes(texts, tables()))
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
    runs = records.read_runs(folder)
    with drawings.recorded():
        paths = [x for each in FIGURES for x in line_charts.draw(each, runs, root)]
        return paths + figures.redraw(root)


def write() -> None:
    """Writes the tables into the pages, and draws their figures."""
    pages.write(filled())
    draw()


def _whole(name: str, show: Callable[[], str], runs: Sequence[str]) -> str:
    """Shows a table that has no rows to select."""
    if runs:
        raise UserError(
            f"the table {name} has no runs to select: remove {', '.join(runs)}"
        )
    return show()


def _results(measured: Measured, runs: Sequence[str]) -> str:
    """The table of the metrics, with the floors in its last rows.

    The first metrics and columns, without speeds, and the paper's result are visible,
    up to `MAX_COLUMNS` in all. The others are folded or, of selected runs, left out.
    """
    table, rows = measured.table, measured.select(runs)
    if not rows:
        return markdown.EMPTY
    titles = ["run", *table.metrics, *table.columns]
    titles += ["steps", "minutes", "device", "commit", "paper"]
    lines = [
        [
            _title(run, seeds) + _seeds(run, seeds),
            *(markdown.mean(seeds, x, table.digits) for x in table.metrics.values()),
            *(markdown.mean_field(seeds, x) for x in table.columns.values()),
            f"{seeds[0]['steps']:,}",
            markdown.minutes(seeds),
            seeds[0]["device"],
            ", ".join(dict.fromkeys(f"`{x['commit']}`" for x in seeds)),
            run.paper if run else "",
        ]
        for run, seeds in rows
    ]
    for title, scores in (measured.floors | table.cited).items():
        values = [scores.get(metric) for metric in table.metrics.values()]
        cells = [markdown.decimal(value, table.digits) for value in values]
        lines.append([f"*{title}*", *cells, *[""] * (len(titles) - len(cells) - 1)])
    comparable = [x for x, field in table.columns.items() if field not in _SPEED]
    first = [*table.metrics, *comparable][: markdown.MAX_COLUMNS - 2]
    visible = ["run", *first, "paper"]
    if runs:
        titles, *lines = (
            [row[x] for x in map(titles.index, visible)] for row in (titles, *lines)
        )
        lines = [row for row in lines if not {*row[1:-1]} <= {"", "–"}]
        return markdown_table(titles, lines)
    signatures = dict.fromkeys(
        f"{title} `{record['metrics'][f'{metric}_signature']}`"
        for _, seeds in rows
        for record in seeds
        for title, metric in table.metrics.items()
        if f"{metric}_signature" in record["metrics"]
    )
    note = f"\n\nTest split. sacreBLEU: {', '.join(signatures)}."
    return markdown.folded(titles, lines, visible) + note * bool(signatures)


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


def _initial_entropy(entropies: Mapping[str, Mapping[str, list[float]]]) -> str:
    """The table of the mean entropies of untrained attention, by score and width."""
    if not entropies:
        return markdown.EMPTY
    widths = list(next(iter(entropies.values())))
    lines = [
        [f"`{score}`", *(f"{statistics.mean(shares[w]):.1%}" for w in widths)]
        for score, shares in entropies.items()
    ]
    return markdown_table(["score", *(f"width {w}" for w in widths)], lines)


def _claims(
    measured: Measured,
    show: Callable[[Table, list[claims.Tested]], str],
    runs: Sequence[str],
) -> str:
    """Tests the recorded claims; with `runs`, only claims that compare one of them."""
    measured.select(runs)
    lines = [
        row
        for row in claims.tested(measured)
        if not runs or not {row.claim.better, row.verdict.rival}.isdisjoint(runs)
    ]
    return show(measured.table, lines) if lines else markdown.EMPTY


def _headline(measured: Mapping[str, Measured], homes: Mapping[str, str]) -> str:
    """The table of headline results: the first metric of one run per system."""
    rows = {
        row.run.name: (each, row.run, row.records)
        for each in reversed(measured.values())  # a run's first table is the last here
        for row in each.rows
        if row.run
    }
    lines = []
    for headline in (x for x in HEADLINES if x.run in rows):
        each, run, seeds = rows[headline.run]
        title, metric = next(iter(each.table.metrics.items()))
        digits = each.table.digits
        lines.append(
            [
                headline.system,
                markdown.link(headline.task, homes.get(each.name)),
                title,
                markdown.mean(seeds, metric, digits),
                markdown.decimal(each.floor(metric), digits),
                headline.paper or run.paper or "–",
                markdown.trained_on(seeds),
            ]
        )
    titles = ["system", "task", "metric", "here", "floor", "paper", "trained on"]
    return markdown_table(titles, lines, right_aligned=4) if lines else markdown.EMPTY


def _learning_curves(measured: Measured, runs: Sequence[str]) -> str:
    """The table of the first metric by minutes of training, for the first seed."""
    rows = [row for row in measured.select(runs) if row.records[0]["curve"]]
    if not rows:
        return markdown.EMPTY
    minutes = _minutes(max(seeds[0]["curve"][-1][0] for _, seeds in rows))
    lines = []
    for run, seeds in rows:
        curve = seeds[0]["curve"]
        reached = [_reached(curve, minute, minutes.step) for minute in minutes]
        lines.append([_title(run, seeds), *reached])
    title = f"validation {next(iter(measured.table.metrics))} by minutes of training"
    return markdown_table([title, *map(str, minutes)], lines)


def _minutes(last: float) -> range:
    """At most `_MAX_MINUTES` round numbers, up to at least `last`."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    step = next(step for step in steps if last <= step * _MAX_MINUTES)
    return range(step, step * math.ceil(last / step) + 1, step)


def _reached(curve: Sequence[Sequence[float]], minute: int, step: int) -> str:
    """The last value by a minute; empty if the run ended `step` minutes before it."""
    if curve[-1][0] <= minute - step:
        return ""
    values = [value for at, value in curve if at <= minute]
    return f"{values[-1]:.1f}" if values else "–"


if __name__ == "__main__":
    write()
