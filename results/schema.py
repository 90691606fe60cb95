"""Types of the tables and charts that `families/` declares."""

import dataclasses
import re
from collections.abc import Iterator, Mapping

SEEDS = 5  # of each run that a claim compares, if its table plans no other number


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Returns pairs of lines; a line that begins with a bar continues the last one."""
    text = re.sub(r"\n +\|", " |", text.strip())
    lines = [line.strip() for line in text.splitlines()]
    return zip(lines[::2], lines[1::2], strict=True)


def cells(line: str) -> list[str]:
    """Returns three cells of a line between bars; "" for one that is missing or "-"."""
    values = [cell.strip() for cell in line.split("|")]
    return ["" if cell == "-" else cell for cell in [*values, "", ""][:3]]


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


def runs(text: str) -> tuple[Run, ...]:
    """Returns the runs of a text with two lines for each.

    Args:
        text: name, config and overrides of a run; then its label ("-" for the default)
            and, after bars, the number in the paper and the number of seeds if it is
            not one:

                short_bahdanau_dot bahdanau_nmt:short model.score=dot
                    Bahdanau, dot, global | 18.6 (WMT14) | 3
    """
    rows = []
    for first, second in pairs(text):
        name, config, *overrides = first.split()
        label, paper, seeds = cells(second)
        rows.append(
            Run(
                name=name,
                config=config,
                label=label,
                paper=paper,
                overrides=tuple(overrides),
                seeds=tuple(range(int(seeds or 1))),
            )
        )
    return tuple(rows)


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
    """Returns the claims of a text with two lines for each.

    Args:
        text: a claim and, after bars, its source and any `Claim.rate`; then the
            preferred run and, after ">", its rivals:

                gated cells beat the vanilla cell | Britz et al. (2017), section 4.2
                    britz > britz_rnn
    """
    rows = []
    for first, second in pairs(text):
        claim, paper, rate = cells(first)
        better, _, *than = second.split()
        rows.append(
            Claim(text=claim, paper=paper, better=better, than=tuple(than), rate=rate)
        )
    return tuple(rows)


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
            fewer than `SEEDS` if those would take more than ten core-hours, or if
            single runs are compared by sentence.
        rate: how the learning rates of runs that claims compare were chosen.
        translations: name of the test set whose translations by the first seed of each
            run are kept in `hypotheses/`, for claims about runs with a single seed; ""
            to keep none.
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
    translations: str = ""

    @property
    def tested_metric(self) -> tuple[str, str]:
        """Title and field of the metric of the claims."""
        items = self.metrics.items()
        return next(x for x in items if not self.repeated or x[1] == self.repeated)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headline:
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
    paper: str = ""


def headlines(text: str) -> tuple[Headline, ...]:
    """Returns the rows of a text: a run, then its system, task and any paper's value.

    Args:
        text: two lines for each row:

                sagan_attention
                    SAGAN | drawings of 32 pixels
    """
    rows = []
    for run, line in pairs(text):
        system, task, paper = cells(line)
        rows.append(Headline(run=run, system=system, task=task, paper=paper))
    return tuple(rows)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A table of a benchmark, one row per system.

    Attributes:
        title: heading of the table.
        columns: fields of the record by column title.
        page: name of the page in docs/ that has the table.
    """

    title: str
    columns: Mapping[str, str]
    page: str = "benchmarks"
