"""Lifecycle of a recommendation as text."""

from dataclasses import replace

from pertoken.proof.detection import JournalEntry
from pertoken.proof.recommendation import Edit, State, short_id
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult, with_judgement
from pertoken.text.lifecycle import acted, applying, journal_line, undoing, verdict_line
from tests.proof.rows import FP8, NOW, row

KNOB = Edit("deployment", 7, "weight_dtype", "bf16", "fp8")
VERSION = Edit("deployment", 7, "engine_version", None, "0.33.0")


def test_an_act_is_one_line_with_the_state_and_what_was_promised() -> None:
    snoozed = row(State.SNOOZED, until_ts=NOW)
    what = f"{short_id(snoozed)}  quantize, chat on gpu-1: weights bf16 → fp8"
    assert acted(snoozed) == f"{what}: snoozed until 2026-09-21 14:13Z"
    without = replace(FP8, saving=None)
    assert acted(row(State.ACCEPTED, estimate=without)) == f"{what}: accepted, promised no dollars"


def test_a_change_without_commands_refers_to_its_details() -> None:
    manual = row(State.ACCEPTED, estimate=replace(FP8, commands=()))
    assert applying(manual)[-1] == "  There is no command for it: see `pertoken advise show`."


def test_changes_that_the_undo_commands_leave_are_named() -> None:
    entry = JournalEntry(NOW, "chat on gpu-1", "telemetry", "its configuration changed", (KNOB, VERSION))
    lines = undoing(replace(FP8, edits=(KNOB,)), [entry])
    assert lines[1] == "  restart chat without --quantization"
    assert lines[-1] == "Changed with it, and not undone by these commands: engine_version not known → 0.33.0"
    assert undoing(replace(FP8, edits=(KNOB, VERSION)), [entry])[-1] == "  restart chat without --quantization"


def test_a_value_that_the_commands_do_not_restore_is_named() -> None:
    entry = JournalEntry(
        NOW, "chat on gpu-1", "telemetry", "its configuration changed", (replace(KNOB, before="fp16"),)
    )
    assert undoing(replace(FP8, edits=(KNOB,)), [entry])[-1] == (
        "These commands restore another value than the one that was replaced; restore this one: weight_dtype fp16 → fp8"
    )


def test_a_verdict_is_one_line_with_the_previous_version_and_the_effect() -> None:
    edits = (replace(VERSION, before="0.32.0"),)
    verdict = Verdict(
        7, 2, 1, NOW, "chat on gpu-1", edits, None, Judgement(VerdictResult.PENDING), "0.32.0", "0.33.0", NOW
    )
    what = "2026-09-21 14:13Z  chat on gpu-1: engine_version 0.32.0 → 0.33.0"
    assert verdict_line(verdict) == f"{what}: pending"
    dearer = with_judgement(verdict, Judgement(VerdictResult.DEARER, (0.1, 0.12, 0.14)), NOW)
    assert verdict_line(dearer) == f"{what}: dearer +12.0% (+10.0% to +14.0%) per token"
    waiting = with_judgement(verdict, Judgement(VerdictResult.PENDING, reason="few hours"), NOW)
    assert verdict_line(waiting) == f"{what}: pending (few hours)"


def test_names_do_not_control_the_terminal() -> None:
    line = journal_line(JournalEntry(NOW, "open", "ann\x1b[2J", "why\nnot"))
    assert line == "2026-09-21 14:13Z  open (ann\\x1b[2J: why not)"
