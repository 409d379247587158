"""Open advice that lists fold away: one line a rule for what has no figure, and one for what hardly pays its work."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pertoken.costs.report.lines import Trouble
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.text.amounts import amount
from pertoken.text.words import literal
from pertoken.units import NANO_USD

HOUR_RATE = 75.0
"""Default of `advisor.hour_rate`, US dollars."""
EFFORT_H = {"low": 0.25, "medium": 4.0, "high": 24.0}
"""Hours of work by effort (judgement)."""
MAX_PAYBACK_MONTHS = 12


@dataclass(frozen=True, slots=True)
class Folded:
    """Open advice, split into what is listed and what is folded away."""

    shown: tuple[Recommendation, ...]
    by_rule: tuple[tuple[Recommendation, ...], ...] = ()
    """Rows without a figure, by rule, the most frequent rule first."""
    slow: tuple[Recommendation, ...] = ()
    """Rows whose work pays back in over a year."""
    hour_rate: float = HOUR_RATE

    @property
    def lines(self) -> list[str]:
        """One line for each rule with rows without a figure, then one for the rows that pay back late."""
        rate = amount(round(self.hour_rate * NANO_USD))
        rows = "1 row pays" if len(self.slow) == 1 else f"{len(self.slow)} rows pay"
        late = [f"  {rows} back in over a year, with work at {rate} an hour"] if self.slow else []
        return late + [
            f"  {literal(rows[0].rule_id)}: {_targets(len(rows))} could try it, without a figure "
            f"(such as {literal(rows[0].title)}, {literal(rows[0].target)})"
            for rows in self.by_rule
        ]


def folded(
    proposed: Sequence[Recommendation], troubles: Collection[Trouble] = (), hour_rate: float = HOUR_RATE
) -> Folded:
    """Return open advice with its rows folded that have no figure or pay back in over a year.

    A row that a trouble names is never folded. `hour_rate`: dollars of an hour of work.
    """
    commands = {trouble.command for trouble in troubles}
    shown: list[Recommendation] = []
    slow: list[Recommendation] = []
    by_rule: defaultdict[str, list[Recommendation]] = defaultdict(list)
    for row in proposed:
        named = f"pertoken advise show {short_id(row)}" in commands
        if named or (_has_figure(row) and not pays_back_late(row, hour_rate)):
            shown.append(row)
        elif _has_figure(row):
            slow.append(row)
        else:
            by_rule[row.rule_id].append(row)
    rules = sorted(by_rule, key=lambda rule_id: (-len(by_rule[rule_id]), rule_id))
    return Folded(tuple(shown), tuple(tuple(by_rule[rule_id]) for rule_id in rules), tuple(slow), hour_rate)


def pays_back_late(row: Recommendation, hour_rate: float) -> bool:
    """Return whether the work costs more than a year of the likely saving, of the bill or of capacity."""
    variant = row.chosen
    savings = () if variant is None else (variant.saving, variant.if_confirmed)
    monthly = max((max(saving.net[1], saving.capacity[1]) for saving in savings if saving is not None), default=0)
    work_usd = EFFORT_H.get(variant.effort if variant else "low", 0.0) * hour_rate
    return monthly * MAX_PAYBACK_MONTHS < work_usd * NANO_USD


def _has_figure(row: Recommendation) -> bool:
    """Return whether advice has dollars, also if a person has to confirm them first."""
    savings = () if row.chosen is None else (row.chosen.saving, row.chosen.if_confirmed)
    return any(any((*saving.net, *saving.capacity)) for saving in savings if saving is not None)


def _targets(count: int) -> str:
    return "1 target" if count == 1 else f"{count} targets"
