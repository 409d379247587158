"""Lifecycle of a recommendation as text: state, journal, receipts and commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pertoken.costs.report.lines import EventLine, FleetReport
from pertoken.proof.recommendation import (
    DISMISS_S,
    SNOOZE_S,
    Edit,
    Recommendation,
    RecordLine,
    Variant,
    commands,
    described,
    short_id,
)
from pertoken.proof.trials.trial import Arm, Design, Status, Trial
from pertoken.proof.verdicts import Verdict, VerdictResult, promise_of
from pertoken.text.amounts import amount
from pertoken.text.keys import key_name
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import literal, literal_lines, usd_range
from pertoken.units import counted, format_duration, format_utc

if TYPE_CHECKING:
    from pertoken.proof.detection import JournalEntry
    from pertoken.proof.judging.receipts import Check, StoredReceipt
    from pertoken.proof.judging.verifier import Prospect
    from pertoken.proof.trials.look import Observed


def acted(row: Recommendation) -> str:
    """Return the new state of a recommendation: `1a2b3c4d  quantize-weights, chat: bf16 → fp8: accepted`."""
    line = f"{short_id(row)}  {literal(row.rule_id)}, {literal(row.target)}: {literal(row.change)}: {described(row)}"
    return line if row.estimate is None else f"{line}, promised {_promised(row.estimate)}"


def possible(row: Recommendation) -> str | None:
    """Return the decisions that are possible now, with their keys: `a accept, z snooze`; None if there are none."""
    return ", ".join(f"{key_name(name)} {name}" for name in commands(row.state)) or None


def refused(row: Recommendation, command: str) -> str | None:
    """Return the reason why a decision is not possible now, as a sentence for a screen; None if it is possible."""
    if command in commands(row.state):
        return None
    others = possible(row)
    return f"It is {described(row)}: " + (f"possible now: {others}." if others else "there is nothing to decide.")


_QUESTIONS = {
    "accept": (
        "Accept this recommendation?",
        "Its estimate is frozen, to be compared with what is measured later. Nothing is executed; the details list the "
        "commands.",
    ),
    "trial": (
        "Try this recommendation?",
        "Its estimate is frozen. pertoken compares one replica with the change to an unchanged one, or one replica "
        "with the change on and off in turn. Nothing is executed; the details list what to restart.",
    ),
    "snooze": ("Snooze this recommendation?", "It leaves the totals until {end}."),
    "dismiss": ("Dismiss this recommendation?", "It leaves the totals and counts as declined dollars until {end}."),
    "reopen": (
        "Reopen this recommendation?",
        "It counts in the totals again. A frozen estimate is dropped together with its ID.",
    ),
    "applied": (
        "Was this recommendation applied?",
        "Changes of an engine's configuration are detected without this; declare what telemetry does not show.",
    ),
    "undo": ("Was this recommendation undone?", "Nothing is executed. The commands that undo it:"),
}
_LENGTH_S = {"snooze": SNOOZE_S, "dismiss": DISMISS_S}


def question(row: Recommendation, decision: str, now_ts: float, provable: Sequence[str] = ()) -> Sheet:
    """Return the confirmation of a decision. `provable`: lines about the savings that telemetry could prove."""
    title, text = _QUESTIONS[decision]
    chosen = row.chosen
    worth = _promised(chosen) if chosen is not None else "no dollars"
    undo = tuple(commands_lines(chosen.undo)) if decision == "undo" and chosen is not None else ()
    command = f"pertoken {decision} {short_id(row)}"
    same = f"`{command}` does the same." if decision == "trial" else f"With a reason: `{command} --why TEXT`."
    return sheet(
        Section(
            title,
            (
                ("change", literal(row.change)),
                ("target", literal(row.target)),
                ("worth", worth),
                text.format(end=format_utc(now_ts + _LENGTH_S.get(decision, 0))),
                *undo,
            ),
        ),
        Section("What its history could prove (savings of device time per token)", tuple(provable)),
        Section("enter confirms, esc goes back", (same,)),
    )


def applying(row: Recommendation) -> list[str]:
    """Return the commands that apply an accepted recommendation, as lines."""
    commands = row.estimate.commands if row.estimate is not None else ()
    return ["", "How to apply it (pertoken runs none of this)", *commands_lines(commands)]


def undoing(undone: Variant, entries: Iterable[JournalEntry]) -> list[str]:
    """Return the commands that undo a change, as lines, and the changes made with it that they do not undo."""
    promised_edits = {(edit.kind, edit.target, edit.field): edit for edit in undone.edits}
    seen = [
        (promised_edits.get((edit.kind, edit.target, edit.field)), edit) for entry in entries for edit in entry.edits
    ]
    more = [edit for promised, edit in seen if promised is None]
    changed_edits = [edit for promised, edit in seen if promised is not None and _differs(promised, edit)]
    lines = [f"How to undo {literal(undone.title)} (pertoken runs none of this)", *commands_lines(undone.undo)]
    for text, edits in (("Changed with it, and not undone by these commands", more), (_OTHER_BEFORE, changed_edits)):
        if edits:
            lines += ["", f"{text}: {', '.join(dict.fromkeys(map(_edit, edits)))}"]
    return lines


_OTHER_BEFORE = "These commands restore another value than the one that was replaced; restore this one"


def _differs(promised: Edit, seen: Edit) -> bool:
    """Return whether a change replaced another value than its undo commands restore; False for a change back."""
    return bool(seen.after == promised.after and seen.before != promised.before)


def journal_lines(entries: Sequence[JournalEntry]) -> list[str]:
    """Return the journal, a line for each entry."""
    return ["", "Journal", *(f"  {line}" for line in map(journal_line, entries))]


def journal_line(entry: JournalEntry) -> str:
    """Return one entry as a line: time, change, author and reason."""
    what = f"{literal(entry.what)}: {', '.join(map(_edit, entry.edits))}" if entry.edits else literal(entry.what)
    return f"{format_utc(entry.ts)}  {what} ({literal(entry.who)}: {' '.join(literal_lines(entry.why))})"


def verdict_line(verdict: Verdict) -> str:
    """Return one change of configuration with its effect: `… chat on gpu-a: tp 1 → 2: dearer, +12.0% …`."""
    return f"{format_utc(verdict.changed_ts)}  {_changed(verdict)}: {_result(verdict)}{_why(verdict)}"


def _changed(verdict: Verdict) -> str:
    return f"{literal(verdict.name)}: {', '.join(map(_edit, verdict.edits)) or 'its configuration changed'}"


def _result(verdict: Verdict) -> str:
    judgement = verdict.judgement
    figures = "" if judgement.effect is None else f" {_percent(judgement.effect)} per token"
    return f"{judgement.label}{figures}"


def _why(verdict: Verdict) -> str:
    reason = verdict.judgement.reason
    return "" if reason is None else f" ({' '.join(literal_lines(reason))})"


def receipt_line(stored: StoredReceipt) -> str:
    """Return one receipt: `1a2b3c4d  2026-11-02 00:00Z  verdict REALIZED, saved 10.0% (8.0% to 12.0%): tp 1 → 2, …`."""
    made = stored.read()
    saved = made.finding.saving_90
    figures = "" if saved is None else f", saved {saved.likely:.1%} ({saved.low:.1%} to {saved.high:.1%})"
    what = f"{literal(made.change.title)}, {literal(made.change.target)}"
    when = f"{stored.short_id}  {format_utc(stored.created_ts)}"
    return f"{when}  {stored.kind.label} {made.finding.verdict}{figures}: {what}"


def paid_line(stored: StoredReceipt) -> str:
    """Return the result of a receipt as a sentence, with its dollars and the hours that they were measured in."""
    made = stored.read()
    saved, after = made.finding.saving_90, made.finding.after
    usd = made.measured_in_window if made.release is None else made.release.measured_per_month
    when = " a month" if made.release is not None else "" if after is None else f" in {after.hours} compared hours"
    dollars = "" if usd is None else f"{amount(usd.likely)} ({usd_range((usd.low, usd.likely, usd.high))}){when}"
    share = "" if saved is None else f"{saved.likely:.1%} ({saved.low:.1%} to {saved.high:.1%}) of device time"
    figures = ": ".join(filter(None, (share, dollars))) or "nothing known"
    return f"{stored.kind.label} {made.finding.verdict}, {literal(made.change.target)}: saved {figures}"


def receipt_lines(stored: Sequence[StoredReceipt]) -> list[str]:
    """Return the receipts of a recommendation as lines with a title; empty without receipts."""
    lines = [f"  {receipt_line(receipt)}" for receipt in stored]
    return ["", "Receipts (`pertoken receipt ID` prints one)", *lines] if lines else []


def prospect_lines(prospects: Sequence[Prospect]) -> list[str]:
    """Return the savings that telemetry could prove, as lines with a title; empty without prospects."""
    lines = [f"  {literal(prospect.name)}: {_prospect(prospect)}" for prospect in prospects]
    return ["", "What its history could prove (savings of device time per token)", *lines] if lines else []


def _prospect(prospect: Prospect) -> str:
    detectable = prospect.detectable
    reason = literal(detectable.reason or "")
    if not detectable.smallest:
        return f"not known: {reason}"
    from pertoken.proof.judging.verifier import LOOKS_DAYS  # not needed for the first frame

    week, month = (_detectable(detectable.after(days)) for days in LOOKS_DAYS)
    text = f"{week} after one week, {month} after four weeks"
    if prospect.promised is None or prospect.promised <= 0:
        return f"{text}; no such saving is promised"
    when = "not within four weeks" if detectable.days_to_proof is None else f"after {detectable.days_to_proof} days"
    return "; ".join(filter(None, (text, f"the promised {prospect.promised:.1%} {when}", reason)))


def _detectable(saving: float | None) -> str:
    return "none" if saving is None or saving >= 1 else f"{saving:.1%} or more"


def record_line(record: RecordLine) -> str:
    """Return a track record: `84% ± 10% of what its rule promised was realised (5 receipts); corrected by it`."""
    share, count = f"{record.ratio:.0%} ± {record.ratio_sd:.0%}", counted(record.receipts, "receipt")
    return f"{share} of what its rule promised was realised ({count}); the estimate is corrected by it"


def checked_line(check: Check) -> str:
    """Return the result of the check of a receipt as a sentence."""
    if check.reproduced:
        return "Checked: unaltered, and reproduced from the hours stored beside it."
    intact = "unaltered, but not reproduced" if check.intact else "not intact"
    return f"Checked: {intact}: {literal(check.difference or 'the reason is not known')}."


def _percent(effect: tuple[float, float, float]) -> str:
    return f"{effect[1]:+.1%} ({effect[0]:+.1%} to {effect[2]:+.1%})"


def _edit(edit: Edit) -> str:
    return f"{literal(edit.field)} {_value(edit.before)} → {_value(edit.after)}"


def _value(value: object) -> str:
    return "not known" if value is None else literal(str(value))


def _promised(estimate: Variant) -> str:
    monies = (("bankable", estimate.net), ("capacity", estimate.capacity))
    figures = [f"{name} {usd_range(money)} a month" for name, money in monies if money is not None and any(money)]
    return ", ".join(figures) or "no dollars"


def commands_lines(commands: Iterable[str]) -> list[str]:
    """Return the lines of all commands, or a sentence if there are none."""
    lines = [f"  {line}" for command in commands for line in literal_lines(command)]
    return lines or ["  There is no command for it: see `pertoken advise show`."]


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
    """Return the state of a running trial: the event that it waits for, or its progress."""
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
    progress_lines = [] if seen is None else [f"Now: {waiting_for(trial, seen, now_ts)}.", "T updates this."]
    return [*progress_lines, *instructions(trial, row)]


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
        lines.append(f"Promised: {_percent((-promise.high, -promise.likely, -promise.low))} per token.")
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
    against = "" if trial.control is None else f" against {literal(trial.control.name)}"
    minutes = comparison.baseline_minutes
    base = f", corrected by the difference in {minutes} minutes before the trial" if minutes else ""
    return f"{word}, {_percent(comparison.effect)} per token over {comparison.minutes} minutes{against}{base}{reason}"


def _arm(arm: Arm) -> str:
    return f"{literal(arm.name)} ({literal(arm.url)})"


REGRESSION, VERDICT = "regression", "verdict"
"""Kinds of these events: a change that made tokens more expensive or altered outputs, and any other change."""


def with_verdicts(report: FleetReport, verdicts: Iterable[Verdict]) -> FleetReport:
    """Return a report with the verdicts of its window among its events, newest first."""
    first = report.now_ts - report.window_s
    changes = [event for event in map(_event, verdicts) if first <= event.ts <= report.now_ts]
    return replace(report, events=tuple(sorted((*report.events, *changes), key=lambda event: -event.ts)))


def _event(verdict: Verdict) -> EventLine:
    kind = REGRESSION if verdict.judgement.result in (VerdictResult.DEARER, VerdictResult.OUTPUT_CHANGED) else VERDICT
    # The effect comes first, because lines of events are cut: `dearer +12.0% …: chat on …`.
    return EventLine(verdict.dated_ts, kind, f"{_result(verdict)}: {_changed(verdict)}{_why(verdict)}", 1)
