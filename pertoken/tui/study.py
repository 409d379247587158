"""Values that take seconds to compute: the plan, the list of rules, and what is computed of one recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the first frame waits for no module that only computes what is shown later
    from pertoken.advisor.plan.plan import Plan
    from pertoken.advisor.planning import PlanRequest, Tested
    from pertoken.advisor.rules.listing import Entry
    from pertoken.proof.journal import Entry as JournalEntry
    from pertoken.proof.judging.prospect import Prospect
    from pertoken.proof.judging.receipts import StoredReceipt
    from pertoken.proof.trials.progress import Observed
    from pertoken.proof.trials.trial import Trial


@dataclass(frozen=True)
class ShownPlan:
    """A plan, and what it is of."""

    plan: Plan
    request: PlanRequest | None
    window_s: int
    """Seconds of telemetry."""


@dataclass(frozen=True, slots=True)
class ListedRule:
    """One rule, or one place of rules that did not load."""

    entry: Entry
    page: str
    """All that is known of it as text; of one that broke, its traceback."""


@dataclass(frozen=True, slots=True)
class RuleList:
    """Every rule that was found."""

    rules: tuple[ListedRule, ...]
    folder: str
    """Where files with rules of one's own go."""


@dataclass(frozen=True)
class Detail:
    """What is computed of one recommendation."""

    recommendation_id: int
    values: Mapping[str, float]
    """Numbers in place of assumptions, by the names of these."""
    tested: Tested | None
    untested: str | None
    """Why it could not be priced again."""
    prospects: tuple[Prospect, ...] = ()
    receipts: tuple[StoredReceipt, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    trial: Trial | None = None
    """The last one."""
    seen: Observed | None = None
    """What telemetry shows of it while it runs."""
