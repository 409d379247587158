"""Trial as text: instructions, state and result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.proof.trials.trial import Arm, Design, Status, Trial
from pertoken.proof.verdicts import promise_of
from pertoken.text.advice.lifecycle import commands_lines
from pertoken.text.words import literal
from pertoken.units import format_duration, format_utc

if TYPE_CHECKING:  # loads numpy
    from pertoken.proof.trials.look import Observed


def instructions(trial: Trial, row: Recommendation) -> list[str]:
    """Return the instructions of a trial as lines: engines to restart, and how to continue."""
    assert row.estimate is not None
    change, warm_up = literal(row.estimate.title), format_duration(trial.warm_up_s)
    lines = [f"Trial of {change} ({short_id(row)})", ""]
    if trial.control is not None:
        lines += [
            f"1. Restart the canary, {_arm(trial.canary)}, with the change, and no other replica:",
            *commands_lines(row.estimate.commands),
            f"2. Restart the control, {_arm(trial.control)}, unchanged and at about the same time: both begin with "
            "cold caches.",
            "",
            f"Once both run, their first {warm_up} are left out, then {trial.minutes} minutes of both are compared.",
        ]
    else:
        lines += [
            f"{_arm(trial.canary)} is the only replica: it runs without and with the change in turn, "
            f"{trial.blocks} blocks of {format_duration(trial.block_s)}, of which the first {warm_up} are left out.",
            "To switch the change on:",
            *commands_lines(row.estimate.commands),
            "To switch it off:",
            *commands_lines(row.estimate.undo),
        ]
    lines.append("pertoken runs none of this. Ctrl-C ends the waiting, not the trial:")
    return [*lines, f"`pertoken trial {short_id(row)}` continues it, and --stop ends it."]


def waiting_for(trial: Trial, seen: Observed, now_ts: int) -> str:
    """Return the state of a running trial: what it waits for, or its progress."""
    if trial.design is Design.SWITCHBACK:
        return _next_block(trial, seen, now_ts)
    assert trial.control is not None
    missing = []
    if seen.canary_ts is None:
        values = ", ".join(f"{literal(edit.field)} {literal(str(edit.after))}" for edit in trial.edits)
        missing.append(f"the canary, {literal(trial.canary.name)}, to run with {values}")
    if seen.control_ts is None:
        missing.append(f"the control, {literal(trial.control.name)}, to be restarted")
    if seen.canary_ts is None or seen.control_ts is None:
        return f"waiting for {' and '.join(missing)}"
    warm_ts = max(seen.canary_ts, seen.control_ts) + trial.warm_up_s
    if now_ts < warm_ts:
        return f"both were restarted; caches are cold until {format_utc(warm_ts)}"
    return f"comparing: {seen.minutes} of {trial.minutes} minutes"


def _next_block(trial: Trial, seen: Observed, now_ts: int) -> str:
    done = f"{len(seen.blocks)} of {trial.blocks} blocks are complete"
    state = "on" if seen.block_is_changed else "off"
    end_ts = seen.block_end_ts or now_ts
    if now_ts < end_ts:
        return f"{done}; the change is {state} until {format_utc(end_ts)}"
    return f"{done}; switch the change {'off' if seen.block_is_changed else 'on'} now"


def stands(row: Recommendation, trial: Trial, seen: Observed, now_ts: int) -> str:
    """Return the state of a trial in one line."""
    what = f"{short_id(row)}: the trial"
    if trial.status is not Status.RUNNING:
        return f"{what} ended: {trial_line(trial)}"
    return f"{what} is running: {waiting_for(trial, seen, now_ts)}; its details list what to restart"


def trial_lines(trial: Trial, seen: Observed | None, row: Recommendation, now_ts: int) -> list[str]:
    """Return a trial as lines for a screen: state and instructions while it runs, then its result."""
    if row.estimate is None:
        return [trial_line(trial)]
    if trial.status is not Status.RUNNING:
        return result_lines(trial, row)
    now = [] if seen is None else [f"Now: {waiting_for(trial, seen, now_ts)}.", "T updates this."]
    return [*now, *instructions(trial, row)]


def result_lines(trial: Trial, row: Recommendation) -> list[str]:
    """Return the result of an ended trial as lines, with the commands that undo the change."""
    assert row.estimate is not None
    back = ["", "To undo the change:", *commands_lines(row.estimate.undo)]
    if trial.status is Status.QUALITY_FAILED and trial.outputs is not None:
        return [f"Trial: {literal(trial.outputs)}: undo the change.", *back]
    if trial.status is Status.QUALITY_FAILED:
        return [f"Trial: the quality check failed with exit status {trial.quality_exit}: undo the change.", *back]
    if trial.result is None:
        return ["Trial: stopped, nothing was compared.", *back]
    lines = [f"Trial: {trial_line(trial)}"]
    promise = promise_of(row.estimate)
    if promise is not None:
        lines.append(f"Promised: {-promise.likely:+.1%} ({-promise.high:+.1%} to {-promise.low:+.1%}) per token.")
    if trial.quality_exit == 0:
        lines.append("The quality check passed.")
    if trial.outputs is not None:
        lines.append(f"Outputs: {literal(trial.outputs)}.")
    return [*lines, *back]


def trial_line(trial: Trial) -> str:
    """Return the result of a trial in one line: `cheaper, -12.0% (-15.0% to -9.0%) per token over 120 minutes`."""
    comparison = trial.result
    if comparison is None:
        return trial.status.value.replace("_", " ").lower()
    word = comparison.result.value.replace("_", " ").lower()
    reason = f": {literal(comparison.reason)}" if comparison.reason is not None else ""
    if comparison.effect is None:
        return f"{word}{reason}"
    low, likely, high = comparison.effect
    against = "" if trial.control is None else f" against {literal(trial.control.name)}"
    base = (
        f", corrected by the difference in {comparison.baseline_minutes} minutes before the trial"
        if comparison.baseline_minutes
        else ""
    )
    figures = f"{likely:+.1%} ({low:+.1%} to {high:+.1%}) per token"
    return f"{word}, {figures} over {comparison.minutes} minutes{against}{base}{reason}"


def _arm(arm: Arm) -> str:
    return f"{literal(arm.name)} ({literal(arm.url)})"
