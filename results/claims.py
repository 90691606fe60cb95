"""Statistical tests of the claims of papers.

A claim names the run that should win and its rivals. Two runs are compared by Welch's
t-test over their seeds, two-sided. Translators with a single seed are compared by the
paired bootstrap over the sentences of the test split (Koehn, 2004), which does not
include the variation between seeds. The claim

*   "holds" if the run is ahead of every rival, each time with p < 0.05; the reported p
    is the largest;
*   "does not hold here" if the best rival is ahead with p < 0.05, where p is multiplied
    by the number of rivals (Bonferroni), since this rival is chosen by its result;
*   is "inconclusive" otherwise;
*   is "below the floor" if the run is not better than the floor of the table, a system
    that learns nothing: training has failed, which decides no claim. A rival may be
    below the floor.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy import stats

from results.schema import Claim

LEVEL = 0.05  # significance level


class Verdict(NamedTuple):
    """Result of a test.

    Attributes:
        rival: name of the rival with the best mean.
        p: the p-value; nan if it could not be computed.
        text: "holds", "does not hold here", "inconclusive" or "below the floor".
    """

    rival: str
    p: float
    text: str

    @property
    def p_text(self) -> str:
        """The p-value to two digits, or a dash."""
        if math.isnan(self.p):
            return "–"
        return "< 0.001" if self.p < 0.001 else f"{self.p:.2g}"


def test(
    claim: Claim,
    values: Mapping[str, Sequence[float]],
    *,
    lower: bool = False,
    floor: float | None = None,
    compare: Callable[[str, str], float] | None = None,
) -> Verdict:
    """Tests a claim; see the module docstring.

    Args:
        claim: the claim.
        values: metric of each seed, by name of the run.
        lower: whether a lower value is better.
        floor: metric of the table's floor.
        compare: maps the names of two runs to their p-value; by default Welch's
            t-test.
    """
    compare = compare or (lambda a, b: welch(values[a], values[b]))
    sign = -1 if lower else 1
    mean = {name: sign * statistics.mean(values[name]) for name in values}
    rival = max(claim.than, key=mean.__getitem__)
    p = {name: compare(claim.better, name) for name in claim.than}
    if mean[claim.better] > mean[rival]:
        decisive, text = max(p.values(), key=_or_one), "holds"
    else:
        decisive, text = min(p[rival] * len(p), 1.0), "does not hold here"
    if not decisive < LEVEL:
        text = "inconclusive"
    if floor is not None and mean[claim.better] <= sign * floor:
        text = "below the floor"
    return Verdict(rival, decisive, text)


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


def paired_bootstrap(
    a: Sequence[str], b: Sequence[str], references: Sequence[str]
) -> float:
    """p-value of a difference in BLEU by sacreBLEU's paired bootstrap.

    Args:
        a: translations of one system.
        b: translations of another system.
        references: the references.
    """
    bleu = BLEU(references=[references])
    systems = [("a", a), ("b", b)]
    _, scores = PairedTest(systems, {"BLEU": bleu}, None, test_type="bs")()
    return scores["BLEU"][1].p_value


def _or_one(p: float) -> float:
    return 1.0 if math.isnan(p) else p
