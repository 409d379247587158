"""Targets of the keys of a replay, and its timeline."""

import pytest

from pertoken.text.replay import ReplayMoment, at_of, cannot_replay, lane, latest
from pertoken.window.timeline import Happening, Timeline

END = 1_800_000_000
EVENTS = (Happening(END - 6300, "started"), Happening(END - 190, "[b]ended\x1b[31m"))
TIMELINE = Timeline(END - 7200, END, EVENTS)


def moment(at: int | None = None, timeline: Timeline = TIMELINE) -> ReplayMoment:
    return ReplayMoment(at, END, 300, timeline)


def test_steps_lead_back_from_now_and_forward_to_it() -> None:
    assert moment().earlier == END - 300
    assert moment(END - 600).later == END - 300
    assert moment(END - 300).later is None
    assert moment(END - 7100).earlier == moment().first == END - 7140


def test_events_are_shown_at_the_first_minute_that_holds_them() -> None:
    assert moment().event_before == END - 180
    assert moment(END - 180).event_before == END - 6240
    assert moment(END - 6240).event_after == END - 180
    assert moment(END - 180).event_after is None


@pytest.mark.parametrize(
    ("action", "at", "reason"),
    [
        ("later", None, "This is the newest time: press , to step back."),
        ("now", None, "This is the newest time: press , to step back."),
        ("event_after", END - 180, "No event is stored after this time: n goes back to now."),
        ("event_before", END - 6240, "No event is stored before this time."),
        ("earlier", END - 7140, "2027-01-15 06:01Z is the first recorded time."),
    ],
)
def test_a_key_without_a_target_shows_the_reason(action: str, at: int | None, reason: str) -> None:
    assert cannot_replay(action, moment(at)) == reason


def test_without_rows_nothing_can_be_replayed() -> None:
    assert cannot_replay("earlier", moment(timeline=Timeline(None, END))) is not None
    assert cannot_replay("earlier", moment()) is None


def test_a_typed_time_is_taken_to_its_minute_or_refused_with_the_reason() -> None:
    assert at_of("1h", moment()) == END - 3600
    assert at_of("2027-01-15T07:30:45Z", moment()) == END - 1800
    assert at_of("noon", moment()) == (
        "'noon' is not a time: write it like 2026-11-21T10:00Z, 2026-11-21, or 24h for ago."
    )
    assert "nothing was recorded before" in str(at_of("3h", moment()))
    assert "is after the newest row" in str(at_of("2027-01-16", moment()))


def test_the_lane_shows_events_and_the_instant_over_the_recorded_interval() -> None:
    line = lane(TIMELINE, END, END - 3600, 64)
    assert line == "01-15 06:00 ─────┴──────────────●─────────────────┴─ 01-15 08:00"
    assert len(line) == 64


def test_the_newest_event_of_the_window_is_shown_as_it_is() -> None:
    assert latest(TIMELINE, END, END - 3600) == "01-15 07:56Z  [b]ended\\x1b[31m"
    assert latest(TIMELINE, END - 3600, END - 5000) == "No event in this window."
