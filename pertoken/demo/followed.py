"""Advice of a demo that was followed a week ago: found, accepted and detected as with telemetry of real hosts.

The rule sees what was recorded until the change and nothing later. The verdict is left to the next advice run, which
judges every change whose time has come.
"""

from pertoken.advisor.rules.discovery import find_rules, source_of
from pertoken.advisor.run import advise
from pertoken.config import Settings
from pertoken.costs.prices.stored import market_of
from pertoken.demo.fleet import Problem
from pertoken.demo.making import HOUR_S, SET_BY, Demo
from pertoken.migrations import upgrade
from pertoken.proof import lifecycle
from pertoken.proof.detection import detect
from pertoken.proof.recommendation import State, Variant
from pertoken.proof.stored import keep, store_acts
from pertoken.state.deployment import Deployment
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository

ADVISOR = "advisor run of the demo"
ACCEPTED_S = HOUR_S // 2
"""Time from the proposal to its acceptance; the change follows as long after that."""


def follow(location: StoreLocation, demo: Demo, settings: Settings) -> int:
    """Store the advice on every followed problem as of an hour earlier than its change, accept it, and detect changes.

    Return how many recommendations were accepted: none for a problem whose change no rule proposed. Raises StoreError.
    """
    changed = [(problem, _changed_ts(demo, problem)) for problem in demo.fleet.followed]
    if not changed:
        return 0
    upgrade(location, "advice")
    accepted = sum(_accept(location, settings, demo, problem, ts) for problem, ts in changed)
    # Telemetry of a demo ends later than the changes: those of all its engines are detected at once.
    last_ts = max(engine.changed_ts for engine in demo.engines if engine.changed_ts is not None)
    market = market_of(open_store(location), settings.market_provider, settings.market_region)
    detect(open_store(location), AdviceRepository(location), market, settings, last_ts + HOUR_S)
    return accepted


def _changed_ts(demo: Demo, problem: Problem) -> int:
    """Return when the engines of a problem changed, epoch seconds."""
    rows = (row for row in demo.engines if row.drawn.runs.served_model == problem.service)
    return next(row.changed_ts for row in rows if row.changed_ts is not None)


def _accept(location: StoreLocation, settings: Settings, demo: Demo, problem: Problem, changed_ts: int) -> bool:
    """Run the rules of a problem as of an hour before its change, and accept the variant that was made.

    Return whether there was one.
    """
    store, target = open_store(location), AdviceRepository(location)
    now_ts = changed_ts - 2 * ACCEPTED_S
    sources = [source_of(rule, settings) for rule in find_rules(settings) if rule.name in problem.scene.rules]
    market = market_of(store, settings.market_provider, settings.market_region)
    run = advise(store, sources, market, settings, int(settings.advisor_since), now_ts, dated=True)
    own = [row for row in run.recommendations if row.state is State.OPEN and row.target == problem.target]
    runs = demo.fleet.of_service(problem.service)[0].runs
    made = next(((row, variant.key) for row in own for variant in row.variants if _is_made(variant, runs)), None)
    if made is None:
        return False
    (row,) = keep(target, made[:1], problem.scene.rules, now_ts, ADVISOR)
    accepted = lifecycle.accept(row, now_ts + ACCEPTED_S, "the demo follows this advice", made[1])
    store_acts(target, row, accepted, SET_BY)
    return True


def _is_made(variant: Variant, runs: Deployment) -> bool:
    """Return whether a deployment runs as a variant proposes."""
    edits = [edit for edit in variant.edits if edit.kind == "deployment"]
    return bool(edits) and all(getattr(runs, edit.field, None) == edit.after for edit in edits)
