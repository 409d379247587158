"""Rules as lines, and details of one."""

from dataclasses import replace

from pertoken.proof.track_record import Record
from pertoken.text.rules import rule_lines, rule_sheet, rules_head
from tests.tui.reports import ADVICE, NOW
from tests.tui.studies import RULES

LINES = rule_lines(RULES, ADVICE, {"quantize-weights": Record(4, 0.92, 0.11, 0.3)}, NOW)


def test_rules_that_do_not_run_come_first_then_those_with_most_proposals() -> None:
    assert [line.rule_id for line in LINES] == ["mine", "quantize-weights", "release-idle", "use-spot"]
    assert [(line.proposals, line.refusals, line.failures) for line in LINES[1:]] == [(1, 0, 0), (1, 0, 0), (0, 1, 0)]


def test_the_head_counts_states_and_names_the_folder_without_acting_on_the_terminal() -> None:
    head = rules_head(LINES, "/etc/\x1b[31mrules.d")
    assert head.startswith(
        "3 loaded, 1 broken. Put files with your own rules into /etc/\\x1b[31mrules.d; r loads them."
    )


def test_a_rule_in_full_shows_state_origin_record_and_page() -> None:
    facts = dict(line for line in rule_sheet(LINES[1])[0].lines if not isinstance(line, str))
    assert facts["state"] == "✓ loaded"
    assert facts["from"] == "pertoken 1.0"
    assert facts["track record"] == "0.92× of 4, ± 0.11"
    assert facts["last result"] == "10m ago"
    assert rule_sheet(LINES[1])[1].title == "Documentation"


def test_a_broken_rule_shows_its_traceback_and_one_that_was_switched_off_its_reason() -> None:
    broken = rule_sheet(LINES[0])[1]
    assert broken.title == "Why it does not run" and "Traceback (most recent call last):" in broken.lines
    off = replace(RULES[0], entry=replace(RULES[0].entry, state="disabled", reason="switched off"))
    (line,) = rule_lines([off], (), {}, NOW)
    assert line.is_off
    assert ("state", "○ off: switched off") in rule_sheet(line)[0].lines
