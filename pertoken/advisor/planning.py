"""One plan from a store: what there is, the advice on it, and the steps that save most together."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from pertoken.advisor.advise import advise
from pertoken.advisor.checks.candidate import candidate
from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.corrected import Correction
from pertoken.advisor.plan.plan import Limits, Plan
from pertoken.advisor.plan.what_if import WhatIf
from pertoken.advisor.present import Present, present
from pertoken.advisor.rules.found import Permission, find_rules
from pertoken.advisor.rules.load import source_of
from pertoken.advisor.worker.source import Source
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.prices.stored import market_of
from pertoken.errors import BadInput
from pertoken.forecast.second_opinion.opinion import KernelTables
from pertoken.proof.judging.record import corrected_by_receipts
from pertoken.proof.recommendation import Recommendation
from pertoken.savings.assumptions.sensitivity import Sensitivity, estimate_with, sensitivities
from pertoken.savings.estimate import Estimate, spend
from pertoken.store.connect.open import Store
from pertoken.window.progress import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Planned:
    """A window of a store, and what a plan of it is to assume."""

    store: Store
    market: Market
    settings: Settings
    window_s: int
    now_ts: int
    """End of the window."""
    dated: bool = False
    """Whether that is a whole minute in the past, and everything is as of then."""
    what_if: WhatIf = field(default_factory=WhatIf)


@dataclass(frozen=True, slots=True)
class Ground:
    """What plans are composed from: the fleet under the assumptions, and the advice on it."""

    there: Present
    rows: Sequence[Recommendation]


def plan_of_rules(asked: Planned, sources: Iterable[Source], limits: Limits, progress: Progress = no_progress) -> Plan:
    """Run the rules of every source, and compose what they propose.

    Raises StoreError if the database cannot be read, BadInput for limits, settings or assumptions that are impossible.
    """
    return composed(asked.settings, ground_of_rules(asked, sources, progress), limits, progress)


def plan_of_advice(
    asked: Planned, rows: Sequence[Recommendation], limits: Limits, progress: Progress = no_progress
) -> Plan:
    """Compose advice that stands, priced as of now. Raises as `plan_of_rules`."""
    return composed(asked.settings, ground_of_advice(asked, rows, progress), limits, progress)


def ground_of_rules(asked: Planned, sources: Iterable[Source], progress: Progress = no_progress) -> Ground:
    """Run the rules of every source. Raises as `plan_of_rules`."""
    advice = advise(
        asked.store,
        sources,
        asked.market,
        asked.settings,
        asked.window_s,
        asked.now_ts,
        progress,
        dated=asked.dated,
        what_if=asked.what_if,
    )
    assert advice.gathered is not None
    return Ground(advice.gathered, corrected_by_receipts(asked.store, advice.recommendations, asked.now_ts))


def ground_of_advice(asked: Planned, rows: Sequence[Recommendation], progress: Progress = no_progress) -> Ground:
    """Gather what advice that stands is of, as of now. Raises as `plan_of_rules`."""
    there = present(
        asked.store,
        asked.market,
        asked.window_s,
        asked.now_ts,
        asked.settings,
        progress,
        dated=asked.dated,
        assumed=asked.what_if.prices,
    )
    return Ground(asked.what_if.present(there), rows)


def composed(settings: Settings, ground: Ground, limits: Limits, progress: Progress = no_progress) -> Plan:
    """Return the plan of what was gathered, within the power budget of the settings where `limits` has none.

    Raises BadInput for limits that are not possible.
    """
    limits = replace(limits, max_power_w=limits.max_power_w or settings.budget_power_w)
    known = sorted({each.rule_id for each in ground.rows})
    for rule_id in limits.exclude:
        if rule_id not in known:
            raise BadInput(f"--exclude {rule_id}: no rule of that id ran; rules: {', '.join(known) or 'none'}")
    progress("composing the plan", 0.0)
    tables = settings.advisor_kernel_tables
    with KernelTables(tables) if tables else nullcontext() as opinion:
        there = replace(ground.there, context=replace(ground.there.context, opinion=opinion))
        return compose(there, ground.rows, limits, sensitivity=True)


@dataclass(frozen=True, slots=True)
class Tested:
    """One proposal priced again: with other numbers in place of some assumptions, and what each of them is worth."""

    spend: int
    """Bill of all hosts with a price, nano-USD per month."""
    estimate: Estimate
    sensitivity: tuple[Sensitivity, ...]


def tested(ground: Ground, row: Recommendation, values: Mapping[str, float]) -> Tested:
    """Price the variant that was chosen again, with `values` by the names of assumptions.

    Dollars are corrected by the track record of its rule, as those of the recommendation are. Raises BadInput where the
    change cannot be made any more, with the reason.
    """
    there, variant = ground.there, row.chosen
    if variant is None or not variant.proposal:
        raise BadInput("there is no proposal in it to price again")
    try:
        configured = row.rule_id in there.configured_rules
        change = candidate(there.fleet, json.loads(variant.proposal), None, there.context.market, configured=configured)
        if change is None:
            raise BadInput("the change runs already: there is nothing to price")
        found = estimate_with(there.fleet, change.after, there.context, values)
        worth = sensitivities(there.fleet, change.after, there.context)
    except ValueError as error:
        raise BadInput(f"the change does not apply any more: {error}") from None
    if variant.record is not None:
        by = Correction(variant.record.ratio, variant.record.widening)
        found = replace(
            found,
            bankable=None if found.bankable is None else by.money(found.bankable),
            capacity=None if found.capacity is None else by.money(found.capacity),
        )
        worth = tuple(map(by.sensitivity, worth))
    return Tested(spend(there.fleet, there.context)[0], found, worth)


@dataclass(frozen=True)
class PlanRequest:
    """What a person asks of the plan on a screen."""

    limits: Limits = field(default_factory=Limits)
    what_if: WhatIf = field(default_factory=WhatIf)


@dataclass
class Planner:
    """Composes plans of one database. Calls may come from any one thread at a time."""

    settings: Settings
    as_of: int | None = None
    """A whole minute in the past that plans are of; None: the present."""
    _ground: Ground | None = None
    _key: object = None

    @property
    def window_s(self) -> int:
        """Seconds of telemetry that plans are of."""
        return int(self.settings.advisor_since)

    def plan(
        self, store: Store, rows: Sequence[Recommendation], request: PlanRequest, progress: Progress = no_progress
    ) -> Plan:
        """Compose the plan of advice that stands; under other assumptions of what the rules propose then.

        Raises StoreError, and BadInput for assumptions that are impossible.
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
            self._ground = None  # what was gathered before is not needed beside the new
            self._ground = self._gather(store, rows, what_if, progress)
            self._key = key
        return self._ground

    def _gather(self, store: Store, rows: Sequence[Recommendation], what_if: WhatIf, progress: Progress) -> Ground:
        settings = self.settings
        market = market_of(store, settings.market_provider, settings.market_region)
        now_ts = int(time.time()) if self.as_of is None else self.as_of
        asked = Planned(store, market, settings, self.window_s, now_ts, self.as_of is not None, what_if)
        if not what_if:
            return ground_of_advice(asked, rows, progress)
        places = find_rules(settings)
        sources = [source_of(each, settings) for each in places if each.permission is Permission.ALLOWED]
        return ground_of_rules(asked, sources, progress)


def advice_key(rows: Sequence[Recommendation]) -> object:
    """Return what changes whenever an advice run or a person changed any of the advice."""
    return tuple((each.recommendation_id, each.version, each.updated_ts) for each in rows)
