"""Plans from a store: read the fleet and its advice, compose steps, and price a variant again on request."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.plan import LeftOut, Plan, PlanLimits
from pertoken.advisor.plan.states import Correction
from pertoken.advisor.plan.what_if import WhatIf
from pertoken.advisor.present import Present, present
from pertoken.advisor.proposals import candidate
from pertoken.advisor.rules.discovery import Permission, find_rules, source_of
from pertoken.advisor.run import advise
from pertoken.advisor.worker.child import PluginSource
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.prices.stored import market_of
from pertoken.errors import BadInput
from pertoken.proof.judging.receipts import corrected_by_receipts
from pertoken.proof.recommendation import UNDER_WAY, Recommendation
from pertoken.proof.stored import standing
from pertoken.savings.estimate import Estimate, spend
from pertoken.savings.sensitivity import Sensitivity, estimate_with, sensitivities
from pertoken.store.connect.open import Store
from pertoken.window.figures import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Planned:
    """Window of a store, and assumptions of a plan for it."""

    store: Store
    market: Market
    settings: Settings
    window_s: int
    now_ts: int
    """End of the window."""
    dated: bool = False
    """Whether `now_ts` is a whole minute in the past, with prices and settings of that time."""
    what_if: WhatIf = field(default_factory=WhatIf)


@dataclass(frozen=True, slots=True)
class Ground:
    """Inputs of a plan: the fleet under the assumptions, and the advice for it."""

    gathered: Present
    rows: Sequence[Recommendation]
    fell_away: Sequence[LeftOut] = ()
    """Changes that save at the measured load and objectives, and are not proposed under the assumptions."""


def plan_of_rules(
    request: Planned, sources: Iterable[PluginSource], limits: PlanLimits, progress: Progress = no_progress
) -> Plan:
    """Run the rules of every source, and compose a plan of their proposals.

    Raises StoreError if the database cannot be read, BadInput for invalid limits, settings or assumptions.
    """
    return composed(request.settings, ground_of_rules(request, sources, progress), limits, progress)


def plan_of_advice(
    request: Planned, rows: Sequence[Recommendation], limits: PlanLimits, progress: Progress = no_progress
) -> Plan:
    """Compose a plan of stored advice, priced as of now. Raises as `plan_of_rules`."""
    return composed(request.settings, ground_of_advice(request, rows, progress), limits, progress)


def ground_of_rules(request: Planned, sources: Iterable[PluginSource], progress: Progress = no_progress) -> Ground:
    """Run the rules of every source, beside the stored advice that a person accepted. Raises as `plan_of_rules`."""
    advice = advise(
        request.store,
        sources,
        request.market,
        request.settings,
        request.window_s,
        request.now_ts,
        progress,
        dated=request.dated,
        what_if=request.what_if,
    )
    assert advice.gathered is not None
    standing_rows = standing(request.store, request.now_ts if request.dated else None)
    taken = [row for row in standing_rows if row.state in UNDER_WAY]
    subjects = {row.subject for row in taken}
    fresh = corrected_by_receipts(request.store, advice.recommendations, request.now_ts)
    rows = (*taken, *(row for row in fresh if row.subject not in subjects))
    return Ground(advice.gathered, rows, tuple(fell_away(standing_rows, fresh)) if request.what_if else ())


def fell_away(standing_rows: Iterable[Recommendation], fresh: Iterable[Recommendation]) -> Iterator[LeftOut]:
    """Yield the best variants of stored advice that the rules do not propose under assumptions, with the reason."""
    by_subject = {row.subject: row for row in fresh}
    for row in standing_rows:
        after = by_subject.get(row.subject)
        if not row.counted or row.best is None or row.best.saving is None:
            continue
        if after is None or row.best.key not in {variant.key for variant in after.variants}:
            refusals = () if after is None else after.refusals
            reason = "; ".join(refusal.reason for refusal in refusals) or "its rule proposes other changes"
            text = f"it fell away under these assumptions: {reason}"
            yield LeftOut(row.rule_id, row.recommendation_id, row.best.title, row.target, text)


def ground_of_advice(request: Planned, rows: Sequence[Recommendation], progress: Progress = no_progress) -> Ground:
    """Read the present fleet for stored advice. Raises as `plan_of_rules`."""
    gathered = present(
        request.store,
        request.market,
        request.window_s,
        request.now_ts,
        request.settings,
        progress,
        dated=request.dated,
        assumed=request.what_if.prices,
    )
    return Ground(request.what_if.present(gathered), rows)


def composed(settings: Settings, ground: Ground, limits: PlanLimits, progress: Progress = no_progress) -> Plan:
    """Return the plan of gathered advice, within `limits`, or the power budget of the settings if these have none.

    Raises BadInput for invalid limits.
    """
    limits = replace(limits, max_power_w=limits.max_power_w or settings.budget_power_w)
    rule_ids = sorted({row.rule_id for row in ground.rows})
    for rule_id in limits.exclude:
        if rule_id not in rule_ids:
            raise BadInput(f"--exclude {rule_id}: no rule of that id ran; rules: {', '.join(rule_ids) or 'none'}")
    progress("composing the plan", 0.0)
    plan = compose(ground.gathered, ground.rows, limits, sensitivity=True)
    title_by_id = {step.recommendation_id: step.title for step in plan.steps}
    fallen = (
        replace(entry, reason=f"under these assumptions the plan has instead: {title}")
        if (title := title_by_id.get(entry.recommendation_id)) is not None
        else entry
        for entry in ground.fell_away
    )
    return replace(plan, left_out=(*fallen, *plan.left_out))


@dataclass(frozen=True, slots=True)
class Tested:
    """One proposal priced again with other values of some assumptions, and its sensitivity to each."""

    spend: int
    """Bill of all hosts with a price, nano-USD per month."""
    estimate: Estimate
    sensitivity: tuple[Sensitivity, ...]


def tested(ground: Ground, row: Recommendation, values: Mapping[str, float]) -> Tested:
    """Price the chosen variant again, with `values` by the names of assumptions.

    Dollars are corrected by the track record of its rule, like the recommendation's. Raises BadInput with the
    reason if the change does not apply any more.
    """
    gathered, variant = ground.gathered, row.chosen
    if variant is None or not variant.proposal:
        raise BadInput("the recommendation has no proposal to price again")
    try:
        configured = row.rule_id in gathered.configured_rules
        change = candidate(
            gathered.fleet, json.loads(variant.proposal), None, gathered.context.market, configured=configured
        )
        if change is None:
            raise BadInput("the change is already applied: there is nothing to price")
        estimate = estimate_with(gathered.fleet, change.after, gathered.context, values)
        worth = sensitivities(gathered.fleet, change.after, gathered.context)
    except ValueError as error:
        raise BadInput(f"the change does not apply any more: {error}") from None
    if variant.record is not None:
        correction = Correction(variant.record.ratio, variant.record.widening)
        estimate = replace(
            estimate,
            saving=None if estimate.saving is None else correction.saving(estimate.saving),
        )
        worth = tuple(map(correction.sensitivity, worth))
    return Tested(spend(gathered.fleet, gathered.context)[0], estimate, worth)


@dataclass(frozen=True)
class PlanRequest:
    """Limits and assumptions of the plan on a screen."""

    limits: PlanLimits = field(default_factory=PlanLimits)
    what_if: WhatIf = field(default_factory=WhatIf)


@dataclass
class Planner:
    """Composes plans of one database. Not thread-safe: one call at a time."""

    settings: Settings
    as_of: int | None = None
    """End of the window, a whole minute in the past; None: the present."""
    _ground: Ground | None = None
    _key: object = None

    @property
    def window_s(self) -> int:
        """Length of the window of plans, seconds."""
        return int(self.settings.advisor_since)

    def plan(
        self, store: Store, rows: Sequence[Recommendation], request: PlanRequest, progress: Progress = no_progress
    ) -> Plan:
        """Compose the plan of stored advice; under other assumptions, run the rules again first.

        Raises StoreError, and BadInput for invalid assumptions.
        """
        return composed(self.settings, self._gathered(store, rows, request.what_if, progress), request.limits, progress)

    def tested(
        self,
        store: Store,
        rows: Sequence[Recommendation],
        row: Recommendation,
        values: Mapping[str, float],
        progress: Progress = no_progress,
    ) -> Tested:
        """Price one recommendation again with other assumptions. Raises StoreError, BadInput."""
        return tested(self._gathered(store, rows, WhatIf(), progress), row, values)

    def _gathered(self, store: Store, rows: Sequence[Recommendation], what_if: WhatIf, progress: Progress) -> Ground:
        key = (advice_key(rows), repr(what_if))
        if self._ground is None or self._key != key:
            self._ground = None  # free the memory of the previous window before reading the next
            self._ground = self._gather(store, rows, what_if, progress)
            self._key = key
        return self._ground

    def _gather(self, store: Store, rows: Sequence[Recommendation], what_if: WhatIf, progress: Progress) -> Ground:
        settings = self.settings
        market = market_of(store, settings.market_provider, settings.market_region)
        now_ts = int(time.time()) if self.as_of is None else self.as_of
        request = Planned(store, market, settings, self.window_s, now_ts, self.as_of is not None, what_if)
        if not what_if:
            return ground_of_advice(request, rows, progress)
        places = find_rules(settings)
        sources = [source_of(plugin, settings) for plugin in places if plugin.permission is Permission.ALLOWED]
        return ground_of_rules(request, sources, progress)


def advice_key(rows: Sequence[Recommendation]) -> object:
    """Return a key that changes whenever an advice run or a person changes any of the advice."""
    return tuple((row.recommendation_id, row.version, row.updated_ts) for row in rows)
