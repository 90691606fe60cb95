"""Types of the tables and charts that `families/` declares, with their records."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from base.errors import UserError
from results.records import OURS, Record

SEEDS = 5  # of each run that a claim compares, if its table plans no other number


def rows(text: str) -> Iterator[list[str]]:
    """Yields the cells of each row of a text, "" for those that are missing.

    Args:
        text: a row per line, of four cells at most between bars; a line that begins
            with a bar continues the last one.
    """
    for line in re.sub(r"\n +\|", " |", text.strip()).splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        yield [*cells, *[""] * (4 - len(cells))]


def fields(text: str) -> dict[str, str]:
    """Returns fields of records by column title: "TITLE: FIELD", with bars between."""
    pairs = (pair.rpartition(":") for pair in re.split(r"[|\n]", text.strip()))
    return {title.strip(): field.strip() for title, _, field in pairs}


def config_file(config: str) -> str:
    """Returns "configs/NAME.py:VARIANT" of "NAME:VARIANT", or without a variant."""
    name, colon, variant = config.partition(":")
    return f"configs/{name}.py{colon}{variant}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A reported experiment, one row of a table or of several.

    Attributes:
        name: name of its record and of its folder under `runs/`.
        config: "NAME" or "NAME:VARIANT" in `configs/`.
        label: title of the row; by default the config and its overrides.
        paper: the number in the paper, with its data set.
        overrides: "FIELD=VALUE" of the config.
        seeds: one training per seed; the row shows the mean and standard deviation. A
            run that a claim compares has as many as its table plans.
        trained: name of the run that is evaluated, if this one differs from it only in
            fields of `evaluation`; "" to train.
    """

    name: str
    config: str
    label: str = ""
    paper: str = ""
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    trained: str = ""

    @property
    def training(self) -> str:
        """Name of the run whose training is evaluated, usually this one."""
        return self.trained or self.name


def runs(text: str, trained: str = "") -> tuple[Run, ...]:
    """Returns the runs of a text, see `rows`.

    Args:
        text: name, config and overrides; label; number in the paper; number of seeds
            if it is not one:

                short_bahdanau_dot bahdanau_nmt:short model.score=dot
                    | Bahdanau, dot, global | 18.6 (WMT14) | 3
        trained: name of the run that they evaluate, see `Run`.
    """
    return tuple(
        Run(
            name=name,
            config=config,
            label=label,
            paper=paper,
            overrides=tuple(overrides),
            seeds=tuple(range(int(seeds or 1))),
            trained=trained,
        )
        for words, label, paper, seeds in rows(text)
        for name, config, *overrides in [words.split()]
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A paper's claim that one run beats others of the same table.

    Attributes:
        text: the claim.
        paper: its source.
        better: name of the preferred run.
        than: names of its rivals; the best of them is compared.
        ranked: whether ranks are compared instead of means: for runs of which some
            seeds learn the task and others do not.
        rate: how the learning rates were chosen, if not as in the rest of the table.
    """

    text: str
    paper: str
    better: str
    than: tuple[str, ...]
    ranked: bool = False
    rate: str = ""

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the compared runs."""
        return self.better, *self.than


def claims(text: str) -> tuple[Claim, ...]:
    """Returns the claims of a text, see `rows`.

    Args:
        text: the preferred run and its rivals, after ">>" if ranks are compared; the
            claim; its source; any `Claim.rate`:

                britz > britz_rnn
                    | gated cells beat the vanilla cell | Britz et al. (2017)
    """
    return tuple(
        Claim(
            text=claim,
            paper=paper,
            better=better,
            than=tuple(than),
            ranked=sign == ">>",
            rate=rate,
        )
        for words, claim, paper, rate in rows(text)
        for better, sign, *than in [words.split()]
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table of runs, with optional tables of claims and learning curves.

    Attributes:
        metrics: test metrics by column title; learning curves and claims use the
            first.
        runs: the rows.
        columns: further fields of the records by column title.
        claims: claims about the runs, tested in a second table.
        curves: whether to add a table of learning curves by minutes.
        digits: decimals of the metrics.
        lower: whether a lower value of the first metric is better.
        repeated: metric of the claims if a run trains several models; the values of a
            record are its fields `repeat_<number>`.
        cited: metrics that others report, by title of the row.
        seeds: number of seeds of each run that a claim compares, fixed before training;
            fewer than `SEEDS` if those would take more than ten core-hours.
        rate: how the learning rates of runs that claims compare were chosen.
    """

    metrics: Mapping[str, str]
    runs: tuple[Run, ...]
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    curves: bool = False
    digits: int = 1
    lower: bool = False
    repeated: str = ""
    cited: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    seeds: int = SEEDS
    rate: str = ""

    @property
    def tested_metric(self) -> tuple[str, str]:
        """Title and field of the metric of the claims."""
        items = self.metrics.items()
        return next(x for x in items if not self.repeated or x[1] == self.repeated)


class Headline(NamedTuple):
    """A row of the README's table: the first metric of one run.

    Attributes:
        run: name of the run.
        system: the model.
        task: its task; the text of the link to the page of the run's table.
        paper: the paper's value of this metric; "" for that of the run.
    """

    run: str
    system: str
    task: str
    paper: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with one line per run, and its table.

    Attributes:
        file: path of the PNG from the root; its stem is the name of the table.
        title: title of the chart.
        value_title: title of the vertical axis.
        lines: names of runs by label; "NAME:METRIC" for a metric other than the first.
        by_length: whether the chart shows BLEU by source length, and not a metric
            during training.
        loss_every: number of steps from one point to the next, for the training loss by
            steps; 0 for the validation metric by examples seen.
    """

    file: str
    title: str
    value_title: str
    lines: Mapping[str, str]
    by_length: bool = False
    loss_every: int = 0


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
        floors: metrics of its floors by name.
    """

    name: str
    table: Table
    rows: list[Row]
    floors: Mapping[str, Mapping[str, float]]

    def select(self, runs: Sequence[str]) -> list[Row]:
        """Returns the rows of the named runs; all rows if none is named.

        Raises:
            UserError: for a run that is not in the table.
        """
        for run in runs:
            if run not in [run.name for run in self.table.runs]:
                raise UserError(f"the table {self.name} has no run {run}")
        return [x for x in self.rows if not runs or (x.run and x.run.name in runs)]

    def floor(self, metric: str) -> float | None:
        """Returns a metric of the first floor."""
        return next(iter(self.floors.values()), {}).get(metric)


def recorded(table: Table, records: Sequence[Record]) -> list[Row]:
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
