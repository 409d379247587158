"""Open advice that lists fold into one line a rule: what has no figure of its own."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pertoken.costs.report.lines import Trouble
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.text.words import literal


@dataclass(frozen=True, slots=True)
class Folded:
    """Open advice, split into what is listed and what is folded away."""

    shown: tuple[Recommendation, ...]
    by_rule: tuple[tuple[Recommendation, ...], ...] = ()
    """Rows without a figure, by rule, the most frequent rule first."""

    @property
    def lines(self) -> list[str]:
        """One line for each rule with folded rows."""
        return [
            f"  {literal(rows[0].rule_id)}: {_targets(len(rows))} could try it, without a figure "
            f"(such as {literal(rows[0].title)}, {literal(rows[0].target)})"
            for rows in self.by_rule
        ]


def folded(proposed: Sequence[Recommendation], troubles: Collection[Trouble] = ()) -> Folded:
    """Return open advice with its rows without a figure folded. A row that a trouble names is never folded."""
    commands = {trouble.command for trouble in troubles}
    shown: list[Recommendation] = []
    by_rule: defaultdict[str, list[Recommendation]] = defaultdict(list)
    for row in proposed:
        named = f"pertoken advise show {short_id(row)}" in commands
        (shown if named or _has_figure(row) else by_rule[row.rule_id]).append(row)
    rules = sorted(by_rule, key=lambda rule_id: (-len(by_rule[rule_id]), rule_id))
    return Folded(tuple(shown), tuple(tuple(by_rule[rule_id]) for rule_id in rules))


def _has_figure(row: Recommendation) -> bool:
    """Return whether advice has dollars, also if a person has to confirm them first."""
    savings = () if row.chosen is None else (row.chosen.saving, row.chosen.if_confirmed)
    return any(any((*saving.net, *saving.capacity)) for saving in savings if saving is not None)


def _targets(count: int) -> str:
    return "1 target" if count == 1 else f"{count} targets"
