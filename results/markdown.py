"""Markdown tables, and numbers in their cells."""

from collections.abc import Iterable, Mapping, Sequence

_PERCENT = {"share": 0, "padding": 0, "waiting": 1, "overhead": 1}  # decimals, by field
_MILLIONS = ("parameters", "tokens")


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    right_aligned: int | None = None,
) -> str:
    """Returns a table as Markdown.

    Args:
        titles: column titles.
        rows: rows of one cell per title.
        right_aligned: number of columns at the end to align right; by default all but
            the first.
    """
    count = len(titles) - 1 if right_aligned is None else right_aligned
    ruler = ["---"] * (len(titles) - count) + ["---:"] * count
    return "\n".join(f"| {' | '.join(row)} |" for row in [titles, ruler, *rows])


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
