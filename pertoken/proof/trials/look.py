"""Start and evaluation of a trial, and its stored state after each evaluation."""

from collections.abc import Callable
from dataclasses import replace

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.prices.stored import market_of
from pertoken.errors import BadInput
from pertoken.proof import acts
from pertoken.proof.lifecycle import TRIED, IllegalMove, refusal
from pertoken.proof.recommendation import Recommendation, State, short_id
from pertoken.proof.stored import store_acts
from pertoken.proof.trials import stored
from pertoken.proof.trials.plan import WARM_UP_S, planned, warm_up_s
from pertoken.proof.trials.progress import BASELINE_S, MINUTE_S, Observed, advanced, needs_quality, observe
from pertoken.proof.trials.quality import Ask, check_outputs, check_quality
from pertoken.proof.trials.trial import Design, Status, Trial
from pertoken.proof.verdicts import promise_of
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository
from pertoken.window.like_for_like import HourlyOutcomes
from pertoken.window.reading import Window

WARM_UPS_S = 7 * 86_400
"""Time before a trial in which earlier warm-ups are looked for."""
Check = Callable[[Trial], int]


def begin(
    store: Store,
    target: AdviceRepository,
    row: Recommendation,
    settings: Settings,
    now_ts: int,
    who: str,
    *,
    minutes: int | None = None,
    blocks: int | None = None,
    quality_waived: bool = False,
) -> tuple[Recommendation, Trial]:
    """Begin the trial of an open or accepted recommendation; an open one is accepted, which freezes its estimate.

    Raises BadInput where there is nothing to try, its quality check is missing or a trial of it runs, AdviceChanged if
    somebody else was first.
    """
    if row.state not in TRIED:
        raise IllegalMove(refusal(row, "trial"))
    with store.read("advice") as connection:
        current = stored.running(stored.read_trials(connection, row.recommendation_id))
        if current and row.state is State.ACCEPTED:  # else somebody else accepted it since it was read
            raise BadInput(f"{short_id(row)}: a trial of it runs; `pertoken trial {short_id(row)}` goes on with it")
    accepted = acts.accept(row, now_ts, "accepted for a trial") if row.state is State.OPEN else ()
    tried = accepted[0].recommendation if accepted else row
    with store.read() as connection:
        window = Window(connection, now_ts - WARM_UPS_S, now_ts)
        trial = planned(tried, window.inventory, now_ts, WARM_UP_S, minutes=minutes, blocks=blocks)
        outcomes = window.outcomes(trial.canary.deployment_id, MINUTE_S)
        starts = [epoch.start_ts for epoch in window.inventory.epochs_of.get(trial.canary.deployment_id, ())]
        seen_s = warm_up_s(outcomes, starts) if isinstance(outcomes, HourlyOutcomes) else None
        if seen_s is not None:
            trial = planned(tried, window.inventory, now_ts, seen_s, minutes=minutes, blocks=blocks)
    trial = replace(trial, quality_waived=quality_waived)
    quality_check(trial, settings)
    if accepted:
        (tried,) = store_acts(target, row, accepted, who)
    with target.writing() as connection:
        return tried, stored.begun(connection, trial)


def begin_or_look(
    store: Store, target: AdviceRepository, row: Recommendation, settings: Settings, now_ts: int, who: str
) -> tuple[Recommendation, Trial, Observed]:
    """Begin the trial of a recommendation, or look at the one that runs, without waiting and without a quality check.

    Raises BadInput as `begin` does, and for a trial whose quality check has to be run: it needs a terminal of its own.
    """
    with store.read("advice") as connection:
        current = next(iter(stored.running(stored.read_trials(connection, row.recommendation_id))), None)
    if current is None:
        row, current = begin(store, target, row, settings, now_ts, who)
    market = market_of(store, settings.market_provider, settings.market_region)
    if quality_check(current, settings) is not None and current.quality_exit is None:
        with store.read() as connection:
            seen = observe(current, Window(connection, current.started_ts - BASELINE_S, now_ts), market, settings)
        if seen.canary_ts is None:
            return row, current, seen
        raise BadInput(f"`pertoken trial {short_id(row)}` runs your quality check and goes on with the trial")
    trial, seen = look(store, target, current, row, market, settings, now_ts)
    return row, trial, seen


def last_trial(
    store: Store, row: Recommendation, settings: Settings, now_ts: int
) -> tuple[Trial | None, Observed | None]:
    """Return the last trial of a recommendation, with what telemetry shows of it while it runs. It stores nothing."""
    with store.read("advice") as connection:
        trials = stored.read_trials(connection, row.recommendation_id)
    if not trials or trials[-1].status is not Status.RUNNING:
        return (trials[-1] if trials else None), None
    market = market_of(store, settings.market_provider, settings.market_region)
    with store.read() as connection:
        window = Window(connection, trials[-1].started_ts - BASELINE_S, now_ts)
        return trials[-1], observe(trials[-1], window, market, settings)


def look(
    store: Store,
    target: AdviceRepository,
    trial: Trial,
    row: Recommendation,
    market: Market,
    settings: Settings,
    now_ts: int,
    check: Check | None = None,
    ask: Ask | None = None,
) -> tuple[Trial, Observed]:
    """Look at a running trial, and store it where it went on. `check`: the quality check, once the canary runs.

    `ask`: of the small check of outputs.

    Raises AdviceChanged if somebody else changed it, BadInput if the check cannot be run.
    """
    with store.read() as connection:
        window = Window(connection, trial.started_ts - BASELINE_S, now_ts)
        seen = observe(trial, window, market, settings)
    after = trial
    if check is not None and seen.canary_ts is not None and seen.disturbed is None and trial.quality_exit is None:
        status = check(trial)
        after = replace(trial, quality_exit=status)
        if status:
            after = replace(after, status=Status.QUALITY_FAILED, ended_ts=now_ts)
    if ask is not None and after.status is Status.RUNNING and seen.disturbed is None:
        after = check_outputs(after, changed=_runs_changed(after, seen), ask=ask)
        after = replace(after, ended_ts=None if after.status is Status.RUNNING else now_ts)
    if after.status is Status.RUNNING:
        after = advanced(after, seen, promise_of(row.estimate), now_ts)
    if after != trial:
        with target.writing() as connection:
            after = stored.put(connection, after)
    return after, seen


def _runs_changed(trial: Trial, seen: Observed) -> bool:
    """Return whether the canary runs with the change now, and the control again."""
    if trial.design is Design.SWITCHBACK:
        return seen.block_is_changed
    return seen.canary_ts is not None and seen.control_ts is not None


def stop(target: AdviceRepository, trial: Trial, now_ts: int) -> Trial:
    """End a trial without a result."""
    with target.writing() as connection:
        return stored.put(connection, replace(trial, status=Status.STOPPED, ended_ts=now_ts))


def quality_check(trial: Trial, settings: Settings) -> Check | None:
    """Return the quality check of a trial, None where outputs stay as they are or a person waived it.

    Raises BadInput where outputs may change and no check is set.
    """
    if not needs_quality(trial) or trial.quality_waived:
        return None
    command = settings.advisor_quality_check
    if not command:
        raise BadInput(
            "this change can alter outputs: set advisor.quality_check to a command that tests them, "
            "or give --without-quality-check"
        )
    return lambda trial: check_quality(command, trial)
