"""Rules as lines: state, number of results, and track record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pertoken.proof.recommendation import Recommendation, State
from pertoken.text.advice_table import record_words
from pertoken.text.columns import Column
from pertoken.text.keys import key_name
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.study import ListedRule
from pertoken.text.words import UNKNOWN, ago, literal, literal_lines
from pertoken.units import format_duration

if TYPE_CHECKING:
    from pertoken.proof.track_record import Record

STATES = {"loaded": "✓ loaded", "disabled": "○ off", "denied": "✗ denied", "broken": "✗ broken"}
"""Mark and label of each plugin state, from running to broken."""
_PROPOSED = (State.OPEN, State.ACCEPTED, State.APPLIED, State.VERIFYING, State.SNOOZED)
_WITHOUT_PROPOSAL = (State.REFUSED, State.BLOCKED)


@dataclass(frozen=True)
class RuleLine:
    """One rule with its advice and its record."""

    listed: ListedRule
    proposals: int
    refusals: int
    failures: int
    """Number of results that are errors of the rule."""
    last_ts: int | None
    """Epoch seconds of the newest change or confirmation of its advice; None without advice."""
    record: Record | None
    now_ts: float

    @property
    def rule_id(self) -> str:
        """Id of the rule; the name of its file or distribution if it did not load."""
        return self.listed.entry.id

    @property
    def is_off(self) -> bool:
        """Whether a person disabled the rule."""
        return self.listed.entry.state == "disabled"


def rule_counts(advice: Sequence[Recommendation]) -> Mapping[str, tuple[int, int, int]]:
    """Return (proposals, refusals, failures) by rule id, for rules with advice."""
    proposals, refusals, failures = (
        Counter(row.rule_id for row in advice if row.state in states)
        for states in (_PROPOSED, _WITHOUT_PROPOSAL, (State.FAILED,))
    )
    return {rule: (proposals[rule], refusals[rule], failures[rule]) for rule in {row.rule_id for row in advice}}


def rule_lines(
    rules: Iterable[ListedRule], advice: Sequence[Recommendation], records: Mapping[str, Record], now_ts: float
) -> tuple[RuleLine, ...]:
    """Return a line for each rule, in the order broken, denied, off, loaded; the most proposals first."""
    counts = rule_counts(advice)
    newest_ts: dict[str, int] = {}
    for row in advice:
        newest_ts[row.rule_id] = max(row.updated_ts, newest_ts.get(row.rule_id, 0))
    lines = [
        RuleLine(
            rule,
            *counts.get(rule.entry.id, (0, 0, 0)),
            newest_ts.get(rule.entry.id) or None,
            records.get(rule.entry.id),
            now_ts,
        )
        for rule in rules
    ]
    worst_first = list(reversed(STATES))
    lines.sort(key=lambda line: (worst_first.index(line.listed.entry.state), -line.proposals, line.rule_id))
    return tuple(lines)


def rules_head(lines: Sequence[RuleLine], folder: str) -> str:
    """Return the number of rules by state, and the drop-in folder."""
    states = Counter(line.listed.entry.state for line in lines)
    counts = ", ".join(f"{states[state]} {STATES[state].partition(' ')[2]}" for state in STATES if states[state])
    return (
        f"{counts or 'No rules'}. Put files with your own rules into {literal(folder)}; {key_name('reload')} loads "
        "them.\nRecord: measured / promised saving, and the number of receipts. 1.00× is as promised."
    )


def rule_sheet(line: RuleLine) -> Sheet:
    """Return the details of a rule: state, figures, and its documentation or traceback."""
    entry = line.listed.entry
    window = f"the last {format_duration(entry.window_s)}" if entry.window_s else UNKNOWN
    record = line.record
    spread = f", ± {record.ratio_sd:.2f}" if record is not None and record.receipts else ""
    return sheet(
        Section(
            literal(entry.id),
            (
                ("state", STATES[entry.state] + (f": {literal(entry.reason)}" if entry.reason else "")),
                ("from", _origin(line)),
                ("reads", window),
                ("last result", _last_result_age(line)),
                ("now", f"{line.proposals} proposed, {line.refusals} refused, {line.failures} failed"),
                ("track record", record_words(record) + spread),
                *((("confinement", literal(entry.confinement)),) if entry.confinement else ()),
            ),
        ),
        Section(
            "Documentation" if entry.state in ("loaded", "disabled") else "Why it does not run",
            literal_lines(line.listed.page.rstrip("\n")),
        ),
    )


def _last_result_age(line: RuleLine) -> str:
    return UNKNOWN if line.last_ts is None else ago(line.now_ts - line.last_ts)


def _origin(line: RuleLine) -> str:
    entry = line.listed.entry
    return literal(f"{entry.origin} {entry.version or ''}".rstrip())


RULE_COLUMNS: tuple[Column[RuleLine], ...] = (
    Column("rule", lambda line: literal(line.rule_id), 0, min_cells=16),
    Column("state", lambda line: STATES[line.listed.entry.state], 0),
    Column("proposed", lambda line: str(line.proposals), 1, lambda line: line.proposals),
    Column("refused", lambda line: str(line.refusals), 2, lambda line: line.refusals),
    Column("record", lambda line: record_words(line.record), 3),
    Column("last result", _last_result_age, 4),
    Column("from", _origin, 5, min_cells=10, keep_end=True),
    Column(
        "what it looks for",
        lambda line: literal(line.listed.entry.title or line.listed.entry.reason or ""),
        6,
        min_cells=20,
    ),
)
