"""Line charts of records, and their tables: BLEU by source length, and training."""

import math
import statistics
from pathlib import Path
from typing import Any

from base.errors import UserError
from figures import charts
from results import markdown
from results.records import OURS, Record
from results.schema import Chart

_Series = dict[str, dict[str, list[float]]]  # values of the seeds by group, by label


def table(figure: Chart, records: list[Record]) -> str:
    """Returns the table of a chart: the mean of each line in each group."""
    if not (series := _series(figure, records)):
        return markdown.EMPTY
    if figure.by_length:
        title, digits = "BLEU by words in the source (sentences)", ".1f"
        counts = _sentences(figure, records)
        titles = {group: f"{group} ({count:,})" for group, count in counts.items()}
    else:
        title, digits = f"{figure.value_title} by {_axis_title(figure)}", ".3g"
        groups = {group for line in series.values() for group in line}
        titles = {group: group for group in sorted(groups, key=float)}
    rows = []
    for label, line in series.items():
        means = {group: statistics.mean(line[group]) for group in line}
        cells = [f"{means[x]:{digits}}" if x in means else "" for x in titles]
        rows.append([label, *cells])
    names = [*titles.values()]
    every = math.ceil(len(names) / (markdown.MAX_COLUMNS - 1))
    visible = {title, *names[::-every]}  # with the last one
    return markdown.folded([title, *names], rows, visible)


def draw(figure: Chart, records: list[Record], root: Path) -> list[Path]:
    """Draws a chart, unless a line has no record; returns its path.

    Raises:
        UserError: if the runs were not evaluated on the same sentences.
    """
    series = _series(figure, records)
    if len(series) < len(figure.lines):
        return []
    texts: dict[str, Any] = {"axis_title": _axis_title(figure)}
    if figure.by_length:
        counts = _sentences(figure, records)
        texts["notes"] = {group: f"n = {count:,}" for group, count in counts.items()}
        texts["intervals"] = _intervals(figure, records)
    path, values = root / figure.file, figure.value_title
    return [charts.lines(series, figure.title, path, value_title=values, **texts)]


def _axis_title(figure: Chart) -> str:
    if figure.by_length:
        return "words in the source"
    return "steps" if figure.loss_every else "thousand examples seen"


def _series(figure: Chart, records: list[Record]) -> _Series:
    """The values of each recorded line by length, steps or thousands of examples."""
    series: _Series = {}
    for label, line in _lines(figure, records).items():
        _, _, metric = figure.lines[label].partition(":")
        for group, value in (x for each in line for x in _points(figure, each, metric)):
            series.setdefault(label, {}).setdefault(group, []).append(value)
    return series


def _lines(figure: Chart, records: list[Record]) -> dict[str, list[Record]]:
    """The records of each line by label."""
    names = {label: text.partition(":")[0] for label, text in figure.lines.items()}
    ours = [record for record in records if record["system"] == OURS]
    return {label: [x for x in ours if x["name"] == names[label]] for label in names}


def _points(figure: Chart, record: Record, metric: str) -> list[tuple[str, float]]:
    """The groups and values of a record."""
    if figure.by_length:
        return [(group, x["bleu"]) for group, x in record.get("by_length", {}).items()]
    if figure.loss_every:
        return [(str(step), loss) for step, loss in record["training_loss"]]
    curve = record["curves"][metric] if metric else [x for _, x in record["curve"]]
    thousands = [f"{count / 1e3:.3g}" for count in record["examples"]]
    return list(zip(thousands, curve, strict=True))


def _sentences(figure: Chart, records: list[Record]) -> dict[str, int]:
    """The number of sentences by source length.

    Raises:
        UserError: if it is not the same for all runs.
    """
    sentences: dict[str, int] = {}
    for record in (x for line in _lines(figure, records).values() for x in line):
        by_length = record.get("by_length", {})
        counts = {group: x["sentences"] for group, x in by_length.items()}
        sentences = sentences or counts
        if counts and counts != sentences:
            raise UserError(
                f"{figure.file}: {record['name']} has {counts} sentences by length, "
                f"other runs {sentences}: all must use the same test split"
            )
    return sentences


def _intervals(figure: Chart, records: list[Record]) -> dict[str, dict]:
    """Bootstrap intervals of the lines with a single seed, by source length."""
    return {
        label: {
            group: (values["bleu_low"], values["bleu_high"])
            for group, values in line[0]["by_length"].items()
            if "bleu_low" in values
        }
        for label, line in _lines(figure, records).items()
        if len(line) == 1
    }
