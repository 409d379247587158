"""The lifecycle of a recommendation in words: how it stands, its journal, and its commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pertoken.proof.acts import DISMISS_S, SNOOZE_S
from pertoken.proof.lifecycle import commands, described
from pertoken.proof.recommendation import Edit, Recommendation, RecordLine, Variant, short_id
from pertoken.tui.text.sheet import Section, Sheet, sheet
from pertoken.tui.text.words import literal, literal_lines, usd_range
from pertoken.units import format_utc

if TYPE_CHECKING:
    from pertoken.proof.journal import Entry
    from pertoken.proof.judging.prospect import Prospect
    from pertoken.proof.judging.receipts import Check, StoredReceipt
    from pertoken.proof.verdicts import Verdict

_KEYS = {"accept": "a", "trial": "T", "snooze": "z", "dismiss": "d", "reopen": "b", "applied": "m", "undo": "u"}


def acted(each: Recommendation) -> str:
    """Return how a recommendation stands after an act: `1a2b3c4d  quantize-weights, chat: bf16 → fp8: accepted`."""
    line = (
        f"{short_id(each)}  {literal(each.rule_id)}, {literal(each.target)}: {literal(each.title)}: {described(each)}"
    )
    return line if each.estimate is None else f"{line}, promised {_promised(each.estimate)}"


def possible(each: Recommendation) -> str | None:
    """Return the decisions that are possible now, with their keys: `a accept, z snooze`; None without one."""
    return ", ".join(f"{_KEYS[name]} {name}" for name in commands(each.state)) or None


def refused(each: Recommendation, command: str) -> str | None:
    """Return why a command cannot be used on a recommendation now, for a screen; None if it can."""
    if command in commands(each.state):
        return None
    others = possible(each)
    return f"It is {described(each)}: " + (f"possible now: {others}." if others else "there is nothing to decide.")


_QUESTIONS = {
    "accept": (
        "Accept this recommendation?",
        "Its estimate is frozen: what is measured later is compared with it. Nothing is executed; the commands are in "
        "its details.",
    ),
    "trial": (
        "Try this recommendation?",
        "Its estimate is frozen. Telemetry shows what runs and compares it: the change on one replica beside an "
        "unchanged one, or on and off in turn. Nothing is executed; what to restart is in its details.",
    ),
    "snooze": ("Snooze this recommendation?", "It leaves the totals until {end}."),
    "dismiss": ("Dismiss this recommendation?", "It leaves the totals and counts as declined dollars until {end}."),
    "reopen": ("Reopen this recommendation?", "It counts in the totals again. A frozen estimate ends with its ID."),
    "applied": (
        "Was this recommendation applied?",
        "Changes of an engine's configuration are detected without this; declare what telemetry does not show.",
    ),
    "undo": ("Was this recommendation undone?", "Nothing is executed. The commands that undo it:"),
}
_LENGTH_S = {"snooze": SNOOZE_S, "dismiss": DISMISS_S}


def question(each: Recommendation, decision: str, now_ts: float, provable: Sequence[str] = ()) -> Sheet:
    """Return what a screen asks before a decision is stored. `provable`: what its history could prove, in lines."""
    title, text = _QUESTIONS[decision]
    chosen = each.chosen
    worth = _promised(chosen) if chosen is not None else "no dollars"
    undo = tuple(commands_lines(chosen.undo)) if decision == "undo" and chosen is not None else ()
    return sheet(
        Section(
            title,
            (
                ("change", literal(chosen.title if chosen is not None else each.title)),
                ("target", literal(each.target)),
                ("worth", worth),
                text.format(end=format_utc(now_ts + _LENGTH_S.get(decision, 0))),
                *undo,
            ),
        ),
        Section("What its history could prove (savings of device time per token)", tuple(provable)),
        Section("enter confirms, esc goes back", ("A reason of your own is kept with `pertoken … ID --why TEXT`.",)),
    )


def applying(each: Recommendation) -> list[str]:
    """Return how to apply what was accepted."""
    commands = each.estimate.commands if each.estimate is not None else ()
    return ["", "How to apply it (pertoken runs none of this)", *commands_lines(commands)]


def undoing(undone: Variant, entries: Iterable[Entry]) -> list[str]:
    """Return how to undo what was applied. Changes beyond it, made at the same time, are named: they stay."""
    own = {(edit.kind, edit.target, edit.field): edit for edit in undone.edits}
    seen = [(own.get((edit.kind, edit.target, edit.field)), edit) for entry in entries for edit in entry.edits]
    more = [edit for promised, edit in seen if promised is None]
    other = [edit for promised, edit in seen if promised is not None and _differs(promised, edit)]
    lines = [f"How to undo {literal(undone.title)} (pertoken runs none of this)", *commands_lines(undone.undo)]
    for text, edits in (("Changed with it, and not undone by these commands", more), (_OTHER_BEFORE, other)):
        if edits:
            lines += ["", f"{text}: {', '.join(dict.fromkeys(map(_edit, edits)))}"]
    return lines


_OTHER_BEFORE = "Another value was replaced than these commands restore; restore this one"


def _differs(promised: Edit, seen: Edit) -> bool:
    """Return whether a change replaced another value than its commands restore; a change back is none."""
    return bool(seen.after == promised.after and seen.before != promised.before)


def journal_lines(entries: Sequence[Entry]) -> list[str]:
    """Return the journal, a line for each entry."""
    return ["", "Journal", *(f"  {line}" for line in map(journal_line, entries))]


def journal_line(entry: Entry) -> str:
    """Return one entry: when, what, by whom and why."""
    what = f"{literal(entry.what)}: {', '.join(map(_edit, entry.edits))}" if entry.edits else literal(entry.what)
    return f"{format_utc(entry.ts)}  {what} ({literal(entry.who)}: {' '.join(literal_lines(entry.why))})"


def verdict_line(verdict: Verdict) -> str:
    """Return one change of configuration and what it did: `… chat on gpu-a: tp 1 → 2: dearer, +12.0% …`."""
    return f"{format_utc(verdict.changed_ts)}  {verdict_text(verdict)}"


def verdict_text(verdict: Verdict) -> str:
    """Return the same without the time."""
    what = ", ".join(map(_edit, verdict.edits)) or "its configuration changed"
    judgement = verdict.judgement
    figures = "" if judgement.effect is None else f" {_percent(judgement.effect)} per token"
    why = "" if judgement.reason is None else f" ({' '.join(literal_lines(judgement.reason))})"
    result = judgement.result.value.replace("_", " ").lower()
    return f"{literal(verdict.name)}: {what}: {result}{figures}{why}"


def receipt_line(stored: StoredReceipt) -> str:
    """Return one receipt: `1a2b3c4d  2026-11-02 00:00Z  verdict REALIZED, saved 10.0% (8.0% to 12.0%): tp 1 → 2, …`."""
    made = stored.read()
    saved = made.finding.saving_90
    figures = "" if saved is None else f", saved {saved.likely:.1%} ({saved.low:.1%} to {saved.high:.1%})"
    what = f"{literal(made.change.title)}, {literal(made.change.target)}"
    when = f"{stored.short_id}  {format_utc(stored.created_ts)}"
    return f"{when}  {stored.kind.label} {made.finding.verdict}{figures}: {what}"


def receipt_lines(stored: Sequence[StoredReceipt]) -> list[str]:
    """Return the receipts of a recommendation, a line for each; nothing where there is none."""
    lines = [f"  {receipt_line(each)}" for each in stored]
    return ["", "Receipts (`pertoken receipt ID` prints one)", *lines] if lines else []


def prospect_lines(prospects: Sequence[Prospect]) -> list[str]:
    """Return what could be proven of a recommendation before it is accepted; nothing where nothing could be asked."""
    lines = [f"  {literal(each.name)}: {_prospect(each)}" for each in prospects]
    return ["", "What its history could prove (savings of device time per token)", *lines] if lines else []


def _prospect(each: Prospect) -> str:
    found = each.detectable
    if found.reason is not None:
        return f"not known: {literal(found.reason)}"
    from pertoken.proof.judging.prospect import LOOKS_DAYS  # the first frame waits for no module of the proof

    week, month = (_least(found.after(days)) for days in LOOKS_DAYS)
    text = f"{week} a week after the change, {month} four weeks after"
    if each.promised is None:
        return f"{text}; no such saving is promised"
    when = "not within four weeks" if found.days_to_proof is None else f"after {found.days_to_proof} days"
    return f"{text}; the promised {each.promised:.1%} {when}"


def _least(saving: float | None) -> str:
    return "none" if saving is None or saving >= 1 else f"{saving:.1%} or more"


def record_line(record: RecordLine) -> str:
    """Return a track record: `84% ± 10% of what its rule promised was realised (5 receipts); corrected by it`."""
    count = "1 receipt" if record.receipts == 1 else f"{record.receipts} receipts"
    share = f"{record.ratio:.0%} ± {record.ratio_sd:.0%}"
    return f"{share} of what its rule promised was realised ({count}); the estimate is corrected by it"


def checked_line(check: Check) -> str:
    """Return whether a receipt was reproduced."""
    if check.reproduced:
        return "Checked: unaltered, and reproduced from the hours stored beside it."
    intact = "unaltered, but not reproduced" if check.intact else "not as it was made"
    return f"Checked: {intact}: {literal(check.difference or 'not known why')}."


def _percent(effect: tuple[float, float, float]) -> str:
    return f"{effect[1]:+.1%} ({effect[0]:+.1%} to {effect[2]:+.1%})"


def _edit(edit: Edit) -> str:
    return f"{literal(edit.field)} {_value(edit.before)} → {_value(edit.after)}"


def _value(value: object) -> str:
    return "not known" if value is None else literal(str(value))


def _promised(estimate: Variant) -> str:
    monies = (("bankable", estimate.bankable), ("capacity", estimate.capacity))
    return (
        ", ".join(f"{name} {usd_range(money)} a month" for name, money in monies if money is not None) or "no dollars"
    )


def commands_lines(commands: Iterable[str]) -> list[str]:
    """Return commands, a line for each of theirs."""
    lines = [f"  {line}" for command in commands for line in literal_lines(command)]
    return lines or ["  There is no command for it: see `pertoken advise show`."]
