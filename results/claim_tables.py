"""Tables of the papers' claims: one per table of results, and one of all claims."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from results import cells, claims, markdown
from results.claims import Verdict
from results.records import Record, read_translations
from results.schema import Claim, Table


class Tested(NamedTuple):
    """A claim whose runs have records.

    Attributes:
        claim: the claim.
        verdict: the result of its test.
        records: records of the expected winner and of its strongest rival.
        labels: labels of the two runs.
        test: name of the test; a dash if single runs cannot be compared.
    """

    claim: Claim
    verdict: Verdict
    records: tuple[Sequence[Record], Sequence[Record]]
    labels: tuple[str, str]
    test: str

    def scores(self, metric: str, digits: int) -> list[str]:
        """Returns the cells of the two runs, each a label and a mean."""
        return [
            f"{label}: {cells.mean(records, metric, digits)}"
            for label, records in zip(self.labels, self.records, strict=True)
        ]


def tested(
    table: Table,
    records: Mapping[str, Sequence[Record]],
    floor: float | None,
    folder: Path,
) -> Iterator[Tested]:
    """Tests the claims of a table whose runs all have records.

    Args:
        table: the table.
        records: one record per seed, by name of the run.
        floor: metric of the table's floor.
        folder: folder of the records.
    """
    labels = {
        run.name: run.label or " ".join([run.config, *run.overrides])
        for run in table.runs
    }
    for claim in table.claims:
        names = {claim.better, *claim.than}
        if not names <= set(records):
            continue
        values = {name: _values(table, records[name]) for name in names}
        single = any(len(x) == 1 for x in values.values())
        if single:  # compared by their first seeds
            values = {name: x[:1] for name, x in values.items()}
        verdict = claims.test(
            claim,
            values,
            lower=table.lower,
            floor=floor,
            compare=functools.partial(_bootstrap, folder) if single else None,
        )
        pair = claim.better, verdict.rival
        counts = sorted({len(values[name]) for name in pair})
        unit = "models" if table.repeats else "seeds"
        test = f"Welch, {' and '.join(map(str, counts))} {unit}"
        if single:
            test = "paired bootstrap"
        if math.isnan(verdict.p):
            test = "–"
        yield Tested(
            claim,
            verdict,
            (records[pair[0]], records[pair[1]]),
            (labels[pair[0]], labels[pair[1]]),
            test,
        )


def of_table(table: Table, rows: Sequence[Tested]) -> str:
    """Returns the claims of one table as Markdown."""
    title, metric = table.tested_metric
    lines = [
        [
            row.claim.text,
            row.claim.paper,
            *row.scores(metric, table.digits),
            row.verdict.p_text,
            row.verdict.text,
        ]
        for row in rows
    ]
    titles = ["claim", "paper", f"expected winner: {title}"]
    titles += [f"strongest rival: {title}", "p", "verdict"]
    return markdown.table(titles, lines, right_aligned=0)


def of_all(
    groups: Mapping[str, tuple[Table, Sequence[Tested]]],
    floors: Mapping[str, float | None],
    homes: Mapping[str, str],
) -> str:
    """Returns the claims of all tables as Markdown.

    Args:
        groups: table and its tested claims, by name of the table.
        floors: metric of each table's floor, by name of the table.
        homes: page of each table.
    """
    lines = []
    for name, (table, rows) in groups.items():
        title, metric = table.tested_metric
        floor = floors.get(name)
        for row in rows:
            text, home = row.claim.text, homes.get(name)
            lines.append(
                [
                    f"[{text}]({home})" if home else text,
                    row.claim.paper,
                    title,
                    *row.scores(metric, table.digits),
                    "–" if floor is None else f"{floor:.{table.digits}f}",
                    _both([cells.trained_on(x) for x in row.records]),
                    _both([cells.mean_field(x, "parameters") for x in row.records]),
                    row.test,
                    row.verdict.p_text,
                    row.verdict.text,
                ]
            )
    titles = ["claim", "paper", "metric", "expected winner", "strongest rival"]
    titles += ["floor", "trained on", "parameters", "test", "p", "verdict"]
    return markdown.table(titles, lines, right_aligned=0)


def _both(texts: Sequence[str]) -> str:
    """One text if two are equal, otherwise both."""
    return " / ".join(dict.fromkeys(texts))


def _values(table: Table, records: Sequence[Record]) -> list[float]:
    """The metric of each record, or of each model of the records."""
    _, metric = table.tested_metric
    return [
        value
        for record in records
        for name, value in record["metrics"].items()
        if (name.startswith(table.repeats) if table.repeats else name == metric)
    ]


@functools.cache
def _bootstrap(folder: Path, a: str, b: str) -> float:
    """The p-value of two runs' translations; nan if they are not kept for one set."""
    first, second = (read_translations(name, folder) for name in (a, b))
    if first is None or second is None or first[1] != second[1]:
        return math.nan
    return claims.paired_bootstrap(first[0], second[0], first[1])
