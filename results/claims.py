"""Tables of the papers' claims: one per table of results, and one of all claims."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from base.storage import markdown_table
from results import markdown, significance
from results.records import Record
from results.schema import SEEDS, Claim, Measured, Table
from results.significance import Verdict

_WORDS = ("", "One seed is", "Two seeds are", "Three seeds are", "Four seeds are")
_NUMBER = re.compile(r"\d+")  # of cores or devices


class Tested(NamedTuple):
    """A claim whose runs have records.

    Attributes:
        claim: the claim.
        verdict: the result of its test, corrected for the number of claims.
        p: the p-value before this correction.
        records: records of the expected winner and of its strongest rival.
        labels: labels of the two runs.
        test: name of the test; a dash if single runs cannot be compared.
        rate: learning rates of the two runs, and how they were chosen.
        ahead: number of seeds of the expected winner that are ahead of every seed of
            every rival.
        seeds: number of seeds with a record, and of those planned, of the run that
            lacks most.
    """

    claim: Claim
    verdict: Verdict
    p: float
    records: tuple[Sequence[Record], ...]
    labels: tuple[str, ...]
    test: str
    rate: str
    ahead: int
    seeds: tuple[int, int]

    @property
    def is_provisional(self) -> bool:
        """True if a run lacks seeds."""
        return self.seeds[0] < self.seeds[1]

    @property
    def last_cells(self) -> list[str]:
        """The corrected p-value, and the verdict with the seeds if some are missing."""
        text = self.verdict.text
        if self.is_provisional:
            text += "; provisional, {} of {} seeds".format(*self.seeds)
        return [significance.p_text(self.verdict.p), text]

    def scores(self, metric: str, digits: int) -> list[str]:
        """Returns the cells of the two runs, each a label and a mean."""
        winner, rival = (
            f"{label}: {markdown.mean(records, metric, digits)}"
            for label, records in zip(self.labels, self.records, strict=True)
        )
        if self.claim.ranked:
            count = len(self.records[0])
            winner += f" ({self.ahead} of {count} seeds ahead of every rival's)"
        return [winner, rival]


def tested(measured: Measured) -> list[Tested]:
    """Tests the claims of a table whose runs all have records."""
    table = measured.table
    records = {run.name: records for run, records in measured.rows if run}
    runs = {run.name: run for run in table.runs}
    sign = -1 if table.lower else 1
    tested = []
    for claim in table.claims:
        names = claim.runs
        if not set(names) <= set(records):
            continue
        values = {name: _values(table, records[name]) for name in names}
        tests = {
            rival: _compare(measured, claim, rival, records, values)
            for rival in claim.than
        }
        verdict = significance.test(
            claim,
            values,
            {rival: p for rival, (_, p) in tests.items()},
            lower=table.lower,
            floor=measured.floor(table.tested_metric[1]),
        )
        pair = [runs[claim.better], runs[verdict.rival]]
        best = max(sign * x for name in claim.than for x in values[name])
        note = claim.rate or table.rate
        tested.append(
            Tested(
                claim,
                verdict,
                verdict.p,
                records=tuple(records[run.name] for run in pair),
                labels=tuple(
                    run.label or " ".join([run.config, *run.overrides]) for run in pair
                ),
                test="–" if math.isnan(verdict.p) else tests[verdict.rival][0],
                rate=_both([_rate(records[run.name][0]) for run in pair])
                + f" ({note})" * bool(note),
                ahead=sum(sign * x > best for x in values[claim.better]),
                seeds=min(
                    ((len(records[name]), len(runs[name].seeds)) for name in names),
                    key=lambda counts: counts[0] - counts[1],
                ),
            )
        )
    corrected = significance.holm([row.verdict for row in tested])
    return [row._replace(verdict=x) for row, x in zip(tested, corrected, strict=True)]


def _compare(
    measured: Measured,
    claim: Claim,
    rival: str,
    records: Mapping[str, Sequence[Record]],
    values: Mapping[str, Sequence[float]],
) -> tuple[str, float]:
    """The name of the test of a claim's winner against a rival, and its p-value."""
    table, names = measured.table, (claim.better, rival)
    samples = [values[name] for name in names]
    trained = {run.training for run in table.runs if run.name in names}
    if len(trained) == 1:  # both evaluate the same models
        name = "paired t"
        seeds = [[record["seed"] for record in records[x]] for x in names]
        p = significance.paired_t(*map(dict, map(zip, seeds, samples)))
    elif claim.ranked:
        name, p = "rank test", significance.mann_whitney(*samples)
    else:
        name, p = "Welch", significance.welch(*samples)
    counts = " and ".join(map(str, sorted({len(x) for x in samples})))
    return f"{name}, {counts} {'models' if table.repeated else 'seeds'}", p


def of_table(table: Table, rows: Sequence[Tested], records: Sequence[Record]) -> str:
    """Returns the claims of one table as Markdown."""
    title, metric = table.tested_metric
    lines = [
        [
            row.claim.text,
            row.claim.paper,
            *row.scores(metric, table.digits),
            *row.last_cells,
        ]
        for row in rows
    ]
    titles = ["claim", "paper", f"expected winner: {title}"]
    titles += [f"strongest rival: {title}", "corrected p", "verdict"]
    text = markdown_table(titles, lines, right_aligned=0)
    if table.repeated or table.seeds >= SEEDS:
        return text
    words = _WORDS[table.seeds]
    hours = _hours(_price(table, records).total)
    planned = f"{words} planned for each run; five would take {hours} core-hours."
    return f"{text}\n\n{planned}"


def in_words(table: Table, rows: Sequence[Tested]) -> str:
    """Returns the claims of one table as a list of sentences."""
    title, metric = table.tested_metric
    lines = []
    for row in rows:
        scores = ", ".join(
            f"{markdown.mean(records, metric, table.digits)} (*{label}*)"
            for label, records in zip(row.labels, row.records, strict=True)
        )
        text, metric_title = (x[0].upper() + x[1:] for x in (row.claim.text, title))
        verdict = row.last_cells[-1]
        lines.append(f'- "{text}": **{verdict}**. {metric_title}: {scores}.')
    return "\n".join(lines)


def seeds(
    tables: Mapping[str, Table], records: Sequence[Record], homes: Mapping[str, str]
) -> str:
    """Returns the planned seeds of the tables with claims, and their price."""
    lines = []
    for name, table in tables.items():
        if not table.claims:
            continue
        price = _price(table, records)
        is_less = table.seeds < SEEDS and not table.repeated
        lines.append(
            [
                markdown.link(name, homes.get(name)),
                str(len(table.claims)),
                "one, of several models" if table.repeated else str(table.seeds),
                str(price.missing),
                _hours(price.hours) if price.missing else "–",
                _hours(price.total) if is_less else "–",
            ]
        )
    titles = ["table", "claims", "planned seeds", "missing trainings"]
    titles += ["their core-hours", "core-hours of five seeds"]
    return markdown_table(titles, lines)


def _hours(hours: float) -> str:
    return "not measured" if math.isnan(hours) else f"{hours:.1f}"


class _Price(NamedTuple):
    """Missing trainings of the planned seeds, their core-hours, and those of `SEEDS`.

    A run takes the mean time of its records; NaN if a run has no record.
    """

    missing: int
    hours: float
    total: float


def _price(table: Table, records: Sequence[Record]) -> _Price:
    trained = {run.name: run.training for run in table.runs}
    missing, minutes, each = 0, 0.0, 0.0
    for name in {trained[x] for claim in table.claims for x in claim.runs}:
        times = [
            record["minutes"] * int(_NUMBER.findall(record["device"])[0])
            for record in records
            if record["name"] == name
        ]
        count = max(table.seeds - len(times), 0)
        missing += count
        mean = statistics.mean(times or [math.nan])
        minutes += count * mean if count else 0.0
        each += mean
    return _Price(missing, minutes / 60, SEEDS * each / 60)


def of_all(groups: Mapping[str, Measured], homes: Mapping[str, str]) -> str:
    """Returns the claims of all tables as Markdown."""
    lines = []
    for name, group in groups.items():
        table = group.table
        title, metric = table.tested_metric
        floor = group.floor(metric)
        for row in tested(group):
            lines.append(
                [
                    markdown.link(row.claim.text, homes.get(name)),
                    row.claim.paper,
                    title,
                    *row.scores(metric, table.digits),
                    markdown.decimal(floor, table.digits),
                    _both([markdown.trained_on(x) for x in row.records]),
                    _both([markdown.mean_field(x, "parameters") for x in row.records]),
                    row.rate,
                    row.test,
                    significance.p_text(row.p),
                    *row.last_cells,
                ]
            )
    titles = ["claim", "paper", "metric", "expected winner", "strongest rival"]
    titles += ["floor", "trained on", "parameters", "learning rate", "test", "p"]
    titles += ["corrected p", "verdict"]
    visible = {*titles[:6], *titles[-2:]}
    text = markdown.folded(titles, lines, visible, right_aligned=0)
    return f"{counts(groups)}\n\n{text}"


def counts(groups: Mapping[str, Measured]) -> str:
    """Returns the numbers of claims by verdict, as sentences."""
    rows = [row for group in groups.values() for row in tested(group)]
    count = Counter(row.verdict.text for row in rows)
    against = count[significance.RIVAL_BELOW]
    text = (
        f"Of {len(rows)} tested claims, {count[significance.HOLDS] + against} hold (in "
        f"{against} of these, no rival beats a trivial baseline), "
        f"{count[significance.FAILS]} do not hold here, and "
        f"{count[significance.INCONCLUSIVE]} are inconclusive; for the other "
        f"{count[significance.BELOW]}, the expected winner does not beat a trivial "
        "baseline."
    )
    if provisional := sum(row.is_provisional for row in rows):
        share = f" {provisional} of the {len(rows)} results"
        reason = "because some planned seeds are not trained yet"
        text += f"{share} are provisional, {reason}."
    return text


def _rate(record: Record) -> str:
    """The learning rate of a run; of a GAN, that of its generator."""
    settings = record["settings"]
    group = settings.get("optimizer") or settings.get("generator") or {}
    rate = group.get("learning_rate")
    return "–" if rate is None else f"{rate:g}"


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
        if (name.startswith("repeat_") if table.repeated else name == metric)
    ]
