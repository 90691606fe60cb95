"""Curves of a metric during training, from the records: their values and tables."""

import statistics
from collections import defaultdict

from results import markdown
from results.records import OURS, Record
from results.schema import Curves

_EXAMPLES = "thousand examples seen"


def series_of(
    figure: Curves, records: list[Record]
) -> dict[str, dict[str, list[float]]]:
    """Returns the values of each recorded line, by steps or thousands of examples."""
    series = {}
    for label, source in figure.lines.items():
        name, _, metric = source.partition(":")
        for record in records:
            if record["system"] != OURS or record["name"] != name:
                continue
            line = series.setdefault(label, defaultdict(list))
            if figure.loss_every:
                for step, value in record["training_loss"]:
                    line[str(step)].append(value)
                continue
            values = [value for _, value in record["curve"]]
            values = record["curves"][metric] if metric else values
            for count, value in zip(record["examples"], values, strict=True):
                line[f"{count / 1e3:.3g}"].append(value)
    return series


def axis_title(figure: Curves) -> str:
    """Returns the title of the horizontal axis."""
    return "steps" if figure.loss_every else _EXAMPLES


def table(figure: Curves, records: list[Record]) -> str:
    """Returns the table of a figure; "" without records."""
    series = series_of(figure, records)
    if not series:
        return ""
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
    return markdown.table(
        [f"{figure.value_title} by {axis_title(figure)}", *groups], lines
    )
