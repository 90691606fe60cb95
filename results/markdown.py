"""Markdown tables with folded columns, and their cells: numbers, means over seeds."""

import html
import statistics
from collections.abc import Collection, Mapping, Sequence

from base.storage import markdown_table
from results.records import Record

EMPTY = "Not measured yet."
MAX_COLUMNS = 8  # maximum number of columns of a table
_PERCENT = {"share": 0, "padding": 0, "waiting": 1, "overhead": 1}  # decimals, by field
_MILLIONS = ("parameters", "tokens")


def folded(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    visible: Collection[str],
    right_aligned: int | None = None,
) -> str:
    """Returns a table of the visible columns, and below it a block with the others.

    The block has tables of at most `MAX_COLUMNS` columns.

    Args:
        titles: distinct column titles; the first column is in both tables.
        rows: rows of one cell per title; the block leaves out those without a value.
        visible: titles of the visible columns.
        right_aligned: see `markdown_table`.
    """
    front = [x for x, title in enumerate(titles) if title in visible]
    back = [x for x in range(len(titles)) if x not in front]
    header, *lines = ([row[x] for x in front] for row in (titles, *rows))
    text = markdown_table(header, lines, right_aligned)
    if not back:
        return text
    names = "; ".join(titles[x] for x in back)
    tables = [
        f"<details><summary>More columns: {html.escape(names, quote=False)}</summary>"
    ]
    for start in range(0, len(back), MAX_COLUMNS - 1):
        part = [0, *back[start : start + MAX_COLUMNS - 1]]
        header, *lines = ([row[x] for x in part] for row in (titles, *rows))
        lines = [line for line in lines if not {*line[1:]} <= {"", "–"}]
        tables.append(markdown_table(header, lines, right_aligned))
    # Without the blank lines, the tables in the block are not read as Markdown.
    return "\n\n".join([text, *tables, "</details>"])


def link(text: str, home: str | None) -> str:
    """Returns a link to the page of a table; the text alone without one."""
    return f"[{text}]({home})" if home else text


def number(values: Mapping[str, float | None], field: str) -> str:
    """Returns a field of a record to three digits, or a dash if it is missing."""
    value = values.get(field)
    if value is None:
        return "–"
    if field in _PERCENT:
        return f"{value:.{_PERCENT[field]}%}"
    if field in _MILLIONS:
        return f"{value / 1e6:.3g}M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def decimal(value: float | None, digits: int) -> str:
    """Returns a number with its decimals, or a dash if it is missing."""
    return "–" if value is None else f"{value:.{digits}f}"


def mean(records: Sequence[Record], metric: str, digits: int) -> str:
    """Returns the mean of a metric over seeds, with its standard deviation.

    A single run has instead, if its record has one, the standard deviation over its
    models or its confidence interval.
    """
    scores = [r["metrics"] for r in records if metric in r["metrics"]]
    if not scores:
        return "–"
    values, spread = [x[metric] for x in scores], ""
    if len(values) > 1:
        spread = f" ± {statistics.stdev(values):.{digits}f}"
    elif f"{metric}_deviation" in scores[0]:
        spread = f" ± {scores[0][f'{metric}_deviation']:.{digits}f}"
    elif f"{metric}_low" in scores[0]:
        low, high = (scores[0][f"{metric}_{end}"] for end in ("low", "high"))
        spread = f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{statistics.mean(values):.{digits}f}{spread}"


def mean_field(records: Sequence[Record], field: str) -> str:
    """Returns the mean of a field over seeds; a dash unless every seed has it.

    "min_validation" is the minimum of the validation metric in training.
    """
    if field == "min_validation":
        values = [min(value for _, value in record["curve"]) for record in records]
    else:
        values = [record[field] for record in records if field in record]
    complete = len(values) == len(records)  # a mean over some seeds is biased
    return number({field: statistics.mean(values)} if complete else {}, field)


def minutes(records: Sequence[Record]) -> str:
    """Returns the mean minutes of training over seeds."""
    value = statistics.mean(record["minutes"] for record in records)
    return "< 0.1" if value < 0.05 else f"{value:.1f}"


def trained_on(records: Sequence[Record]) -> str:
    """Returns the amount of training data: tokens without padding, or examples."""
    record = records[0]
    if "tokens" in record:
        return f"{mean_field(records, 'tokens')} tokens"
    if count := record["settings"].get("data", {}).get("batch_size"):
        return f"{record['steps'] * count:,} examples"
    return f"{record['steps']:,} steps"
