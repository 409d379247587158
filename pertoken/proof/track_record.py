"""Realised share of a rule's promises, and the correction of its next estimate by it.

The ratio of realised to promised savings is normal about a mean of the rule, which is normal about 1: the mean of the
posterior shrinks towards 1 when receipts are few (Gelman et al., Bayesian Data Analysis, 3rd ed., 2.5), as credibility
does in insurance (Bühlmann, ASTIN Bulletin 4, 1967). A regime is shrunk towards its rule in the same way.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pertoken.proof.recommendation import Money
from pertoken.proof.verification.estimate import Interval
from pertoken.proof.verification.question import Promise
from pertoken.proof.verification.verify import VerifiedEffect
from pertoken.savings.saving import Saving
from pertoken.window.like_for_like import Z95

PRIOR_SD = 0.3
"""Standard deviation of the ratio among rules. A judgement, until there are receipts of many rules: a rule that was
wrong by a third is usual, one wrong by a factor of two is rare."""
REGIME_SD = 0.2
"""The same among regimes of one rule."""
SPREAD = 0.3
"""Standard deviation of the ratio among deployments of one rule and regime, before there are receipts."""
SPREAD_RECEIPTS = 4
"""Receipts that the assumed spread counts as (degrees of freedom of a scaled inverse chi-squared prior, BDA 2.6)."""
MIN_PROMISE = 0.005
"""Promises below it are left out: a ratio to almost nothing means nothing."""


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """Contribution of a receipt to the record of a rule."""

    rule: str
    regime: str | None
    promised: float
    """Likely saving, as a fraction."""
    realised: Interval
    """Measured saving, 90 % interval."""

    @property
    def ratio(self) -> float:
        """Realised over promised."""
        return self.realised.likely / self.promised

    @property
    def variance(self) -> float:
        """Of the ratio, by the uncertainty of the measurement."""
        return (self.realised.half_width / Z95 / self.promised) ** 2


@dataclass(frozen=True, slots=True)
class Record:
    """Realised over promised savings of a rule, or of one of its regimes."""

    receipts: int
    """Of the rule and regime."""
    ratio: float
    """Shrunk towards 1."""
    ratio_sd: float
    """Standard deviation of its posterior."""
    spread: float
    """Standard deviation among deployments."""

    @property
    def widening(self) -> float:
        """By which the next interval is wider than promised: more spread than assumed, or less."""
        return self.spread / SPREAD


def record_entry(rule: str, regime: str | None, promise: Promise | None, finding: VerifiedEffect) -> RecordEntry | None:
    """Return the entry that a finding adds to the record; None without a promise or where the baseline failed a gate.
    Inconclusive findings count, weighted by the width of their interval: without them only lucky ones would.
    """
    measured = finding.saving_90
    judged = finding.code in (None, "wide-interval")
    if promise is None or promise.likely < MIN_PROMISE or measured is None or not judged:
        return None
    return RecordEntry(rule, regime, promise.likely, measured)


def record(entries: Iterable[RecordEntry], rule: str, regime: str | None = None) -> Record:
    """Return the record of a rule in a regime; without one, over all of its regimes."""
    of_rule = [entry for entry in entries if entry.rule == rule]
    overall = _posterior(of_rule, 1.0, PRIOR_SD)
    if regime is None:
        return overall
    others = _posterior([entry for entry in of_rule if entry.regime != regime], 1.0, PRIOR_SD)
    prior_sd = math.hypot(min(others.ratio_sd, PRIOR_SD), REGIME_SD) if others.receipts else PRIOR_SD
    return _posterior([entry for entry in of_rule if entry.regime == regime], others.ratio, prior_sd)


def corrected(promise: Promise, rule_record: Record) -> Promise:
    """Return a promise as the record corrects it. Without receipts of its rule it stays as it is."""
    if (rule_record.ratio, rule_record.spread) == (1.0, SPREAD):
        return promise
    likely = promise.likely * rule_record.ratio
    scale = abs(rule_record.ratio) * rule_record.widening
    return Promise(
        likely - scale * (promise.likely - promise.low), likely, likely + scale * (promise.high - promise.likely)
    )


def corrected_money(money: Money, ratio: float, widening: float) -> Money:
    """Return dollars with the likely figure corrected by a ratio, and the interval wider by `widening`."""
    low, likely, high = money
    middle, scale = likely * ratio, ratio * widening
    return round(middle - scale * (likely - low)), round(middle), round(middle + scale * (high - likely))


def corrected_saving(saving: Saving, ratio: float, widening: float) -> Saving:
    """Return a saving corrected by a ratio as in `corrected_money`; a bill that rises stays: nothing of it is saved."""
    net = saving.net if saving.pays_more else corrected_money(saving.net, ratio, widening)
    return Saving(net, corrected_money(saving.capacity, ratio, widening))


def _posterior(entries: Sequence[RecordEntry], mean: float, sd: float) -> Record:
    """Return the record of some entries, shrunk towards `mean`."""
    if not entries:
        return Record(0, mean, sd, SPREAD)
    ratio, precision = _shrunk(entries, mean, sd, SPREAD)
    squares = sum(max(0.0, (entry.ratio - ratio) ** 2 - entry.variance) for entry in entries)
    spread = math.sqrt((SPREAD_RECEIPTS * SPREAD**2 + squares) / (SPREAD_RECEIPTS + len(entries)))
    ratio, precision = _shrunk(entries, mean, sd, spread)
    return Record(len(entries), ratio, 1 / math.sqrt(precision), spread)


def _shrunk(entries: Sequence[RecordEntry], mean: float, sd: float, spread: float) -> tuple[float, float]:
    weights = [1 / (entry.variance + spread**2) for entry in entries]
    precision = sum(weights) + 1 / sd**2
    total = sum(weight * entry.ratio for weight, entry in zip(weights, entries, strict=True)) + mean / sd**2
    return total / precision, precision
