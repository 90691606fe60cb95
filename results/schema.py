"""Types for the tables and figures of results, which `families/` declares."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A reported experiment: a row of a table.

    Attributes:
        name: name of its records and of its folder under `runs/`.
        config: "NAME" or "NAME:VARIANT" in `configs/`.
        overrides: "FIELD=VALUE" of the config.
        seeds: one training each; the row shows their mean and standard deviation.
        label: title of the row; by default the config and the overrides.
        paper: the paper's number, and its data set.
    """

    name: str
    config: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    label: str = ""
    paper: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A paper's statement that one run is better than others of the same table.

    Attributes:
        text: the statement.
        paper: its source.
        better: name of the run that the paper prefers.
        than: names of the other runs; the best of them is compared with.
    """

    text: str
    paper: str
    better: str
    than: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table of runs, with a table of its claims and one of learning curves.

    Attributes:
        metrics: metrics of the test split by column title; learning curves and claims
            use the first.
        runs: the rows.
        columns: further fields of the records by column title.
        claims: statements tested in a table of their own.
        curves: whether to add a table of learning curves by minutes.
        digits: decimals of the metrics.
        lower: whether a lower value of the first metric is better.
    """

    metrics: Mapping[str, str]
    runs: tuple[Run, ...]
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    curves: bool = True
    digits: int = 1
    lower: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot of BLEU by source length, a line for each run, and its table.

    Attributes:
        file: the PNG, from the root of the repository; the table has its name.
        title: heading of the plot.
        lines: names of runs by label.
    """

    file: str
    title: str
    lines: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curves:
    """A plot of a validation metric by examples seen, a line for each run; its table.

    Attributes:
        file: the PNG, from the root of the repository; the table has its name.
        title: heading of the plot.
        value_title: title of the vertical axis.
        lines: names of runs by label; "NAME:METRIC" for a metric besides the first.
    """

    file: str
    title: str
    value_title: str
    lines: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A table of a benchmark, a row for each system.

    Attributes:
        title: heading of the table.
        columns: fields of the record by column title.
    """

    title: str
    columns: Mapping[str, str]
