"""Progress and result of a trial by telemetry. Nothing of this is kept between two looks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.proof.changes import are_set, epoch_fleet, names
from pertoken.proof.trials.compare import Block, less, paired, switched
from pertoken.proof.trials.trial import Design, Status, Trial, TrialResult
from pertoken.proof.verdicts import Result, result_of
from pertoken.proof.verification.adapter import acts_through
from pertoken.proof.verification.estimate import Effect, saving
from pertoken.proof.verification.question import Promise
from pertoken.proof.verification.verdict import judge
from pertoken.proof.verification.windows import Refused
from pertoken.settings.fleet import QUALITY_FIELDS
from pertoken.window.like_for_like import HourlyOutcomes
from pertoken.window.reading import Window

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
    """What else changed, so that nothing can be compared any more."""
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
    before: tuple[HourlyOutcomes, HourlyOutcomes] | None = None
    """Minutes of both before the trial."""


def needs_quality(trial: Trial) -> bool:
    """Return whether what changes can alter outputs."""
    return any(edit.field in QUALITY_FIELDS for edit in trial.edits)


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
    known = [arm for arm in arms if isinstance(arm, HourlyOutcomes)]
    if len(known) < 2:
        return Observed(canary_ts, control_ts, None, 0)
    after = _within(known[0], warm_ts, window.end), _within(known[1], warm_ts, window.end)
    before = tuple(_within(outcomes, trial.started_ts - BASELINE_S, trial.started_ts) for outcomes in known)
    common = len(set(after[0].ts.tolist()) & set(after[1].ts.tolist()))
    return Observed(canary_ts, control_ts, None, common, after=after, before=(before[0], before[1]))


def _since(trial: Trial, window: Window, deployment_id: int) -> Sequence[Any]:
    """Return the epochs of a deployment that began since the trial did."""
    rows = window.inventory.epochs_of.get(deployment_id, ())
    return [row for row in rows if trial.started_ts <= row.start_ts < window.end]


def _blocks(trial: Trial, window: Window, market: Market, settings: Settings) -> Observed:
    """Return the blocks of a switchback, which begins without the change.

    A block ends where the next epoch begins; it counts if it is as long as the trial asks for.
    """
    starts = [(trial.started_ts, False)]
    disturbed = None
    for row in _since(trial, window, trial.canary.deployment_id):
        at = epoch_fleet(row, window.inventory, market, settings)
        changed = are_set(trial.edits, at)
        back = are_set([replace(edit, after=edit.before) for edit in trial.edits], at)
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
        result = TrialResult(Result.INCONCLUSIVE, reason=seen.disturbed)
        return replace(trial, status=Status.STOPPED, result=result, ended_ts=now_ts)
    through = acts_through(names(trial.edits))
    if trial.design is Design.SWITCHBACK:
        if len(seen.blocks) < trial.blocks:
            return trial
        return _ended(trial, switched(seen.blocks, through), promise, seen.minutes, 0, now_ts)
    if seen.after is None or seen.minutes < trial.minutes:
        return trial
    compared = paired(*seen.after, through)
    base = paired(*seen.before, through) if seen.before is not None else None
    baseline_minutes = 0
    if isinstance(compared, Effect) and isinstance(base, Effect) and seen.before is not None:
        compared, baseline_minutes = less(compared, base), min(map(len, seen.before))
    return _ended(trial, compared, promise, seen.minutes, baseline_minutes, now_ts)


def _ended(
    trial: Trial, effect: Effect | Refused, promise: Promise | None, minutes: int, baseline: int, now_ts: int
) -> Trial:
    if isinstance(effect, Refused):
        result = TrialResult(Result.INCONCLUSIVE, None, minutes, baseline, effect.reason)
        return replace(trial, status=Status.DONE, result=result, ended_ts=now_ts)
    interval = saving(effect, effect.half_width_90)
    verdict = result_of(judge(effect, promise))
    reason = "the interval is too wide to decide" if verdict is Result.INCONCLUSIVE else None
    change = -interval.high, -interval.likely, -interval.low
    result = TrialResult(verdict, change, minutes, baseline, reason)
    return replace(trial, status=Status.DONE, result=result, ended_ts=now_ts)
