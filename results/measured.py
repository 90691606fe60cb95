"""Tables with the records of their runs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from base.errors import UserError
from results.records import OURS, Record
from results.schema import Run, Table

Floors = Mapping[str, Mapping[str, float]]  # metrics by name of the floor


class Row(NamedTuple):
    """A row of a table: a run of this project, or None for another system."""

    run: Run | None
    records: list[Record]  # one per seed


class Measured(NamedTuple):
    """A table with its records.

    Attributes:
        name: name of the table.
        table: the table.
        rows: its recorded rows.
        floors: its floors.
        folder: the folder of the records.
    """

    name: str
    table: Table
    rows: list[Row]
    floors: Floors
    folder: Path

    def select(self, runs: Sequence[str]) -> list[Row]:
        """Returns the rows of the named runs; all rows if none is named.

        Raises:
            UserError: for a run that is not in the table.
        """
        names = [run.name for run in self.table.runs]
        for run in runs:
            if run not in names:
                raise UserError(f"the table {self.name} has no run {run}")
        return [x for x in self.rows if not runs or (x.run and x.run.name in runs)]

    @property
    def tested_floor(self) -> float | None:
        """The first floor's metric of the claims."""
        return self.floor(self.table.tested_metric[1])

    def floor(self, metric: str) -> float | None:
        """Returns a metric of the first floor."""
        return next(iter(self.floors.values()), {}).get(metric)


def rows(table: Table, records: list[Record]) -> list[Row]:
    """Returns the recorded rows: each run, then other systems with its config."""
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
