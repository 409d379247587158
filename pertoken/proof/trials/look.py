"""Design, start and evaluation of a trial, its quality check, and its stored state after each evaluation."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.prices.stored import market_of
from pertoken.errors import BadInput
from pertoken.proof import recommendation
from pertoken.proof.recommendation import TRIED, IllegalMove, Recommendation, State, refusal, short_id
from pertoken.proof.stored import store_acts
from pertoken.proof.trials.endpoint import Block, PromptOutput, compared, less, paired, switched
from pertoken.proof.trials.trial import (
    Arm,
    Design,
    Status,
    Trial,
    TrialResult,
    begun,
    put,
    read_trials,
    running,
)
from pertoken.proof.verdicts import VerdictResult, are_set, epoch_fleet, names, promise_of, result_of, seen_edits
from pertoken.proof.verification.adapter import acts_through
from pertoken.proof.verification.estimate import Effect, judge, saving
from pertoken.proof.verification.question import Promise
from pertoken.proof.verification.windows import NotEstimable
from pertoken.settings.fleet import QUALITY_FIELDS
from pertoken.state.deployment import is_owner_knob
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository
from pertoken.window.columns import Floats, Ints
from pertoken.window.inventory import Inventory, KnownEpoch
from pertoken.window.like_for_like import HourlyOutcomes
from pertoken.window.reading import Window

MINUTES = 120
"""Minutes of two replicas that are compared. A judgement: 12 blocks of ten minutes."""
BLOCK_MINUTES = 30
"""Minutes that count of each block of a switchback, at least as many as the warm-up has."""
BLOCKS = 8
"""Blocks of a switchback."""
WARM_UP_S = 1800
"""Warm-up of a cache where none was seen. A judgement."""
MAX_WARM_UP_S = 6 * 3600
"""Time after a restart in which caches are observed."""
WARM = 0.9
"""Part of its later cached share at which a cache is warm."""


def planned(
    row: Recommendation,
    inventory: Inventory,
    now_ts: int,
    warm_up_s: int,
    *,
    minutes: int | None = None,
    blocks: int | None = None,
) -> Trial:
    """Return the trial of an accepted recommendation. Raises BadInput where none would show anything."""
    assert row.estimate is not None
    edits = [edit for edit in seen_edits(row.estimate) if edit.kind == "deployment" and edit.field != "running"]
    targets = [
        deployment_id
        for deployment_id in dict.fromkeys(int(edit.target) for edit in edits)
        if deployment_id in inventory.running
    ]
    if not targets:
        raise BadInput(
            f"{short_id(row)}: a trial restarts one engine with another configuration, and this change is none; "
            f"`pertoken applied {short_id(row)}` declares it"
        )
    canary = inventory.running[targets[0]]
    control = next(_alike(canary, inventory), None)
    design = Design.SWITCHBACK if control is None else Design.REPLICAS
    counted = minutes or (MINUTES if control is not None else max(BLOCK_MINUTES, warm_up_s // 60))
    return Trial(
        row.recommendation_id,
        design,
        now_ts,
        _arm(canary),
        None if control is None else _arm(control),
        tuple(edit for edit in edits if int(edit.target) == canary.deployment_id),
        counted,
        warm_up_s,
        blocks=1 if control is not None else blocks or BLOCKS,
    )


def _alike(canary: KnownEpoch, inventory: Inventory) -> Iterator[KnownEpoch]:
    """Yield the newest epochs of other replicas that run as the canary does."""
    configuration = _configuration(canary, inventory)
    for deployment_id, row in sorted(inventory.running.items()):
        if deployment_id != canary.deployment_id and _configuration(row, inventory) == configuration:
            yield row


def _configuration(row: KnownEpoch, inventory: Inventory) -> tuple[object, ...]:
    knobs = {name: value for name, value in json.loads(row.knobs).items() if not is_owner_knob(name)}
    names = sorted(device.name for device in inventory.held(row.epoch_id))
    return row.served_model, row.engine_kind, row.engine_version, knobs, names


def _arm(row: KnownEpoch) -> Arm:
    return Arm(row.deployment_id, row.engine_id, f"{row.served_model} on {row.host_name}", row.base_url)


def warm_up_s(minutes: HourlyOutcomes, starts: Iterable[int]) -> int | None:
    """Return how long caches were cold after the starts of epochs, the longest time; None where that was not seen.

    `minutes` of the deployment. A cache is warm once ten minutes have `WARM` of the cached share of the hours after.
    """
    shares = minutes.cached_share
    if shares is None:
        return None
    minutes_after = [_warm_after(minutes.ts, shares, start) for start in starts]
    return max((minute for minute in minutes_after if minute is not None), default=None)


def _warm_after(ts: Ints, shares: Floats, start: int) -> int | None:
    inside = (ts >= start) & (ts < start + MAX_WARM_UP_S)
    elapsed_s, values = ts[inside] - start, shares[inside]
    if len(values) < 60 or elapsed_s[0] > 600:
        return None
    later = float(np.median(values[len(values) // 2 :]))
    means: Sequence[float] = np.convolve(values, np.ones(10) / 10, "valid").tolist()
    return next((int(elapsed_s[n]) for n, mean in enumerate(means) if mean >= WARM * later), None)


MINUTE_S = 60
BASELINE_S = 24 * 3600
"""Time before a trial that the difference of both replicas is measured in."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Telemetry of a running trial."""

    canary_ts: int | None
    """Since when the canary runs with the change; None: not seen yet."""
    control_ts: int | None
    """Since when the control runs again; None: not seen yet, or there is none."""
    disturbed: str | None
    """Other changes, after which nothing can be compared."""
    minutes: int
    """Minutes that count so far, of both arms or of all blocks."""
    blocks: tuple[Block, ...] = ()
    """Of a switchback, those that are complete."""
    block_is_changed: bool = False
    """Whether the block under way is one with the change."""
    block_end_ts: int | None = None
    """When the block under way is complete."""
    after: tuple[HourlyOutcomes, HourlyOutcomes] | None = None
    """Minutes of canary and control since both are warm."""
    baselines: tuple[HourlyOutcomes, HourlyOutcomes] | None = None
    """Minutes of both before the trial."""


def observe(trial: Trial, window: Window, market: Market, settings: Settings) -> Observed:
    """Return the telemetry of a trial, from a window that begins a day before it."""
    if trial.design is Design.SWITCHBACK:
        return _blocks(trial, window, market, settings)
    assert trial.control is not None
    canary, control = _since(trial, window, trial.canary.deployment_id), trial.control
    disturbed, canary_ts = None, None
    for row in canary:
        if are_set(trial.edits, epoch_fleet(row, window.inventory, market, settings)):
            canary_ts = canary_ts or int(row.start_ts)
        elif canary_ts is not None:
            disturbed = f"{trial.canary.name} was changed again"
    if _since(trial, window, control.deployment_id):
        disturbed = f"the control, {control.name}, was changed"
    restarted = window.restarted_ts(control.engine_id)
    control_ts = restarted if restarted is not None and restarted >= trial.started_ts else None
    if disturbed or canary_ts is None or control_ts is None:
        return Observed(canary_ts, control_ts, disturbed, 0)
    warm_ts = max(canary_ts, control_ts) + trial.warm_up_s
    arms = [
        window.outcomes(deployment_id, MINUTE_S)
        for deployment_id in (trial.canary.deployment_id, control.deployment_id)
    ]
    measured_arms = [arm for arm in arms if isinstance(arm, HourlyOutcomes)]
    if len(measured_arms) < 2:
        return Observed(canary_ts, control_ts, None, 0)
    after = _within(measured_arms[0], warm_ts, window.end), _within(measured_arms[1], warm_ts, window.end)
    baselines = tuple(_within(outcomes, trial.started_ts - BASELINE_S, trial.started_ts) for outcomes in measured_arms)
    common = len(set(after[0].ts.tolist()) & set(after[1].ts.tolist()))
    return Observed(canary_ts, control_ts, None, common, after=after, baselines=(baselines[0], baselines[1]))


def _since(trial: Trial, window: Window, deployment_id: int) -> Sequence[KnownEpoch]:
    rows = window.inventory.epochs_of.get(deployment_id, ())
    return [row for row in rows if trial.started_ts <= row.start_ts < window.end]


def _blocks(trial: Trial, window: Window, market: Market, settings: Settings) -> Observed:
    """Return the blocks of a switchback, which begins without the change.

    A block ends where the next epoch begins; it counts if it is as long as the trial asks for.
    """
    starts = [(trial.started_ts, False)]
    disturbed = None
    for row in _since(trial, window, trial.canary.deployment_id):
        epoch_state = epoch_fleet(row, window.inventory, market, settings)
        changed = are_set(trial.edits, epoch_state)
        back = are_set([replace(edit, after=edit.before) for edit in trial.edits], epoch_state)
        if not changed and not back:
            disturbed = f"{trial.canary.name} was changed otherwise"
        if changed != starts[-1][1]:
            starts.append((int(row.start_ts), changed))
    outcomes = window.outcomes(trial.canary.deployment_id, MINUTE_S)
    complete: list[Block] = []
    ends = [*(start for start, _ in starts[1:]), window.end]
    for (start, changed), end in zip(starts, ends, strict=True):
        if end - start >= trial.block_s and isinstance(outcomes, HourlyOutcomes):
            minutes = _within(outcomes, start + trial.warm_up_s, end)
            complete += [Block(changed, minutes)] if len(minutes) else []
    last_start, last_changed = starts[-1]
    first = next((start for start, changed in starts if changed), None)
    return Observed(
        first,
        None,
        disturbed,
        sum(len(block.minutes) for block in complete),
        blocks=tuple(complete),
        block_is_changed=last_changed,
        block_end_ts=last_start + trial.block_s,
    )


def _within(minutes: HourlyOutcomes, start: int, end: int) -> HourlyOutcomes:
    return minutes.where((minutes.ts >= start) & (minutes.ts + MINUTE_S <= end))


def advanced(trial: Trial, seen: Observed, promise: Promise | None, now_ts: int) -> Trial:
    """Return a running trial as it stands after a look: ended where it is disturbed or has all of its minutes."""
    if seen.disturbed is not None:
        result = TrialResult(VerdictResult.INCONCLUSIVE, reason=seen.disturbed)
        return replace(trial, status=Status.STOPPED, result=result, ended_ts=now_ts)
    through = acts_through(names(trial.edits))
    if trial.design is Design.SWITCHBACK:
        if len(seen.blocks) < trial.blocks:
            return trial
        return _ended(trial, switched(seen.blocks, through), promise, seen.minutes, 0, now_ts)
    if seen.after is None or seen.minutes < trial.minutes:
        return trial
    compared = paired(*seen.after, through)
    base = paired(*seen.baselines, through) if seen.baselines is not None else None
    baseline_minutes = 0
    if isinstance(compared, Effect) and isinstance(base, Effect) and seen.baselines is not None:
        compared, baseline_minutes = less(compared, base), min(map(len, seen.baselines))
    return _ended(trial, compared, promise, seen.minutes, baseline_minutes, now_ts)


def _ended(
    trial: Trial, effect: Effect | NotEstimable, promise: Promise | None, minutes: int, baseline: int, now_ts: int
) -> Trial:
    if isinstance(effect, NotEstimable):
        result = TrialResult(VerdictResult.INCONCLUSIVE, None, minutes, baseline, effect.reason)
        return replace(trial, status=Status.DONE, result=result, ended_ts=now_ts)
    interval = saving(effect, effect.half_width_90)
    verdict = result_of(judge(effect, promise))
    reason = "the interval is too wide to decide" if verdict is VerdictResult.INCONCLUSIVE else None
    change = -interval.high, -interval.likely, -interval.low
    result = TrialResult(verdict, change, minutes, baseline, reason)
    return replace(trial, status=Status.DONE, result=result, ended_ts=now_ts)


Ask = Callable[[Arm], tuple[PromptOutput, ...]]
"""Returns the answers of an engine to the fixed prompts."""


def check_quality(command: Sequence[str], trial: Trial) -> int:
    """Run a command until it ends and return its exit status; 0 is passed. Raises BadInput if it cannot be started.

    It finds the engines in `PERTOKEN_CANARY_URL` and, of two replicas, `PERTOKEN_CONTROL_URL`.
    """
    urls = {"PERTOKEN_CANARY_URL": trial.canary.url}
    if trial.control is not None:
        urls["PERTOKEN_CONTROL_URL"] = trial.control.url
    try:
        done = subprocess.run(list(command), env={**os.environ, **urls}, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"advisor.quality_check: {command[0]}: {reason}; give a command that can be run") from None
    return done.returncode


def check_outputs(trial: Trial, *, changed: bool, ask: Ask) -> Trial:
    """Return a trial with the answers of both replicas compared, once `changed`: the canary runs with the change.

    Of a single replica the answers before the change are kept for it. Changed outputs end the trial.
    """
    if trial.outputs is not None:
        return trial
    if trial.control is None and not changed:
        answers = trial.answers or (ask(trial.canary), ask(trial.canary))
        return replace(trial, answers=answers)
    if not changed:
        return trial
    answers_before = trial.answers if trial.control is None else (ask(trial.control), ask(trial.control))
    if answers_before is None:
        return replace(trial, outputs="not compared: nothing was asked before the change")
    check = compared(*answers_before, ask(trial.canary))
    status = trial.status if check.name is None else Status.QUALITY_FAILED
    return replace(trial, outputs=check.sentence, status=status)


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
        current = running(read_trials(connection, row.recommendation_id))
        if current and row.state is State.ACCEPTED:  # else somebody else accepted it since it was read
            raise BadInput(f"{short_id(row)}: a trial of it runs; `pertoken trial {short_id(row)}` goes on with it")
    accepted = recommendation.accept(row, now_ts, "accepted for a trial") if row.state is State.OPEN else ()
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
        return tried, begun(connection, trial)


def begin_or_look(
    store: Store, target: AdviceRepository, row: Recommendation, settings: Settings, now_ts: int, who: str
) -> tuple[Recommendation, Trial, Observed]:
    """Begin the trial of a recommendation, or look at the one that runs, without waiting and without a quality check.

    Raises BadInput as `begin` does, and for a trial with a quality check to run: it needs a terminal of its own.
    """
    with store.read("advice") as connection:
        current = next(iter(running(read_trials(connection, row.recommendation_id))), None)
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
    """Return the last trial of a recommendation, with its telemetry while it runs. It stores nothing."""
    with store.read("advice") as connection:
        trials = read_trials(connection, row.recommendation_id)
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
            after = put(connection, after)
    return after, seen


def _runs_changed(trial: Trial, seen: Observed) -> bool:
    """Return whether the canary runs with the change now, and the control again."""
    if trial.design is Design.SWITCHBACK:
        return seen.block_is_changed
    return seen.canary_ts is not None and seen.control_ts is not None


def stop(target: AdviceRepository, trial: Trial, now_ts: int) -> Trial:
    """End a trial without a result."""
    with target.writing() as connection:
        return put(connection, replace(trial, status=Status.STOPPED, ended_ts=now_ts))


def quality_check(trial: Trial, settings: Settings) -> Check | None:
    """Return the quality check of a trial, None where outputs stay as they are or a person waived it.

    Raises BadInput where outputs may change and no check is set.
    """
    if trial.quality_waived or not any(edit.field in QUALITY_FIELDS for edit in trial.edits):
        return None
    command = settings.advisor_quality_check
    if not command:
        raise BadInput(
            "this change can alter outputs: set advisor.quality_check to a command that tests them, "
            "or give --without-quality-check"
        )
    return lambda trial: check_quality(command, trial)
