"""Statistical tests of the claims of papers.

A claim names the run that should win and its rivals. Two runs are compared by

*   the paired t-test over seeds, if both evaluate the same trained models
    (`Run.trained`);
*   the exact Mann-Whitney test, if the claim is `ranked`: some seeds learn the task and
    others do not, so that the values are far from normal;
*   Welch's t-test over seeds otherwise.

All are two-sided. The p-value of a claim is

*   the largest of its comparisons if the run is ahead of every rival;
*   otherwise that of the best rival times the number of rivals (Bonferroni), since this
    rival is chosen by its result.

The p-values of a table are corrected for the number of its claims (Holm, 1979). The
claim "holds", or "does not hold here", if the corrected p-value is below 0.05, and is
"inconclusive" otherwise. "holds (rival below the floor)" says that the best rival is
not better than the floor of the table: training may have failed on one side only.
"below the floor" says so of the run that should win, which decides nothing.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import stats

from results.schema import Claim

LEVEL = 0.05  # significance level
HOLDS, FAILS = "holds", "does not hold here"
INCONCLUSIVE, BELOW = "inconclusive", "below the floor"
RIVAL_BELOW = f"{HOLDS} (rival {BELOW})"


class Verdict(NamedTuple):
    """Result of a test.

    Attributes:
        rival: name of the rival with the best mean, or median if the claim is ranked.
        p: the p-value, as `test` returns it or as `holm` corrects it; nan if it could
            not be computed.
        text: one of the verdicts above.
    """

    rival: str
    p: float
    text: str


def test(
    claim: Claim,
    values: Mapping[str, Sequence[float]],
    p: Mapping[str, float],
    *,
    lower: bool,
    floor: float | None,
) -> Verdict:
    """Tests a single claim; see the module docstring.

    Args:
        claim: the claim.
        values: metric of each seed, by name of the run.
        p: p-value of the comparison with each rival.
        lower: whether a lower value is better.
        floor: metric of the table's floor.
    """
    sign = -1 if lower else 1
    # Ranks and means may disagree on which run is ahead; ranks and medians hardly do.
    centre = statistics.median if claim.ranked else statistics.mean
    mean = {name: sign * centre(values[name]) for name in values}
    rival = max(claim.than, key=mean.__getitem__)
    if mean[claim.better] > mean[rival]:
        decisive, text = (
            max(p.values(), key=lambda p: 1.0 if math.isnan(p) else p),
            HOLDS,
        )
    else:
        decisive, text = min(p[rival] * len(p), 1.0), FAILS
    below = {name for name in mean if floor is not None and mean[name] <= sign * floor}
    if claim.better in below:
        text = BELOW
    elif text == HOLDS and rival in below:
        text = RIVAL_BELOW
    return _decided(Verdict(rival, decisive, text))


def holm(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Corrects the p-values of the claims of a table for their number (Holm, 1979).

    A claim without a p-value does not count.
    """
    order = sorted(
        (i for i, x in enumerate(verdicts) if not math.isnan(x.p)),
        key=lambda i: verdicts[i].p,
    )
    corrected, maximum = list(verdicts), 0.0
    for rank, i in enumerate(order):
        maximum = max(maximum, min((len(order) - rank) * verdicts[i].p, 1.0))
        corrected[i] = _decided(verdicts[i]._replace(p=maximum))
    return corrected


def p_text(p: float) -> str:
    """Returns a p-value to two digits, or a dash."""
    if math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def welch(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p-value of Welch's t-test; nan if a sample has fewer than two values.

    If no sample varies, the p-value is 1 for equal means and 0 otherwise.
    """
    if min(len(a), len(b)) < 2:
        return math.nan
    if statistics.variance(a) == statistics.variance(b) == 0:
        return float(a[0] == b[0])
    # From the statistics, as scipy warns of samples whose values are nearly the same.
    moments = [(statistics.mean(x), statistics.stdev(x), len(x)) for x in (a, b)]
    test = stats.ttest_ind_from_stats(*moments[0], *moments[1], equal_var=False)
    return float(test.pvalue)


def paired_t(a: Mapping[int, float], b: Mapping[int, float]) -> float:
    """Two-sided p-value of the paired t-test over the seeds that two runs share.

    It is nan for fewer than two shared seeds. If the differences do not vary, it is 1
    if they are zero and 0 otherwise.
    """
    differences = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
    if len(differences) < 2:
        return math.nan
    if statistics.variance(differences) == 0:
        return float(differences[0] == 0)
    return float(stats.ttest_1samp(differences, 0).pvalue)


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p-value of the exact Mann-Whitney test; ties have their mean rank."""
    every = stats.PermutationMethod(n_resamples=math.inf)
    return float(stats.mannwhitneyu(a, b, method=every).pvalue)


def _decided(verdict: Verdict) -> Verdict:
    """The verdict, or an inconclusive one for a p-value that is not below the level."""
    if verdict.text == BELOW or verdict.p < LEVEL:
        return verdict
    return verdict._replace(text=INCONCLUSIVE)
