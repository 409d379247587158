"""Values that take seconds to compute: the plan, the list of rules, and the detail of one recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Plan
    from pertoken.advisor.planning import PlanRequest, Tested
    from pertoken.advisor.rules.listing import RuleEntry
    from pertoken.proof.detection import JournalEntry as JournalEntry
    from pertoken.proof.judging.receipts import StoredReceipt
    from pertoken.proof.judging.verifier import Prospect
    from pertoken.proof.trials.look import Observed
    from pertoken.proof.trials.trial import Trial


@dataclass(frozen=True)
class ShownPlan:
    """A plan with its request and the window that it was composed from."""

    plan: Plan
    request: PlanRequest | None
    window_s: int
    """Seconds of telemetry that the plan was composed from."""


@dataclass(frozen=True, slots=True)
class ListedRule:
    """One rule, or one file or distribution of rules that did not load."""

    entry: RuleEntry
    page: str
    """Documentation of the rule as text; the traceback if it did not load."""


@dataclass(frozen=True, slots=True)
class RuleList:
    """Every rule, loaded or not."""

    rules: tuple[ListedRule, ...]
    folder: str
    """Drop-in folder for files with rules."""


@dataclass(frozen=True)
class Detail:
    """Computed values of one recommendation."""

    recommendation_id: int
    values: Mapping[str, float]
    """Values that a person set in place of assumptions, by assumption."""
    tested: Tested | None
    untested: str | None
    """Reason why it could not be priced again."""
    prospects: tuple[Prospect, ...] = ()
    receipts: tuple[StoredReceipt, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    trial: Trial | None = None
    """The last trial."""
    seen: Observed | None = None
    """State of the trial in telemetry while it runs."""
