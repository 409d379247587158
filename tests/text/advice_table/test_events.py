"""Verdicts among the events of the screens."""

from dataclasses import replace

from pertoken.proof.recommendation import Edit
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult
from pertoken.text.fleet_sheets import event_lines
from pertoken.text.lifecycle import REGRESSION, with_verdicts
from tests.tui.reports import RICH

CHANGE = Verdict(8, 9, 8, RICH.now_ts - 60, "chat on gpu-a", (Edit("deployment", 8, "tp", 1, 2),))


def test_a_regression_is_an_event_of_its_own_kind_at_the_time_of_its_verdict() -> None:
    judged = replace(
        CHANGE,
        changed_ts=RICH.now_ts - 10 * 86_400,
        judged_ts=RICH.now_ts - 120,
        judgement=Judgement(VerdictResult.DEARER, (0.08, 0.12, 0.16)),
    )
    report = with_verdicts(RICH, [judged])
    (event,) = (candidate for candidate in report.events if candidate.kind == REGRESSION)
    assert event.ts == RICH.now_ts - 120
    assert "2m ago  dearer +12.0% (+8.0% to +16.0%) per token: chat on gpu-a: tp 1 → 2" in event_lines(report)


def test_changes_before_the_window_are_no_events() -> None:
    assert with_verdicts(RICH, [replace(CHANGE, changed_ts=RICH.now_ts - RICH.window_s - 60)]).events == RICH.events


def test_changed_outputs_are_named_beside_a_cheaper_token() -> None:
    judged = replace(
        CHANGE, judgement=Judgement(VerdictResult.OUTPUT_CHANGED, (-0.16, -0.12, -0.08), "outputs are terser")
    )
    (event,) = (candidate for candidate in with_verdicts(RICH, [judged]).events if candidate.kind == REGRESSION)
    assert event.message.startswith("cheaper, output changed -12.0% (-16.0% to -8.0%) per token: chat on gpu-a")
    assert event.message.endswith("(outputs are terser)")
