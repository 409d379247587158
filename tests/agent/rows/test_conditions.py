"""Conditions are an event when they begin and one when they end."""

from dataclasses import replace

from pertoken.agent.rows.tick_state import Condition, followed

FAULT = Condition(7, "engine", "engine_timeout", "timeout", "no answer", "answers again")


def test_a_condition_that_lasts_is_one_event_and_its_end_another() -> None:
    held, events = followed({}, [FAULT], [7])
    assert [(event.kind, event.message, event.subject_id) for event in events] == [("engine_timeout", "no answer", 7)]
    again, events = followed(held, [replace(FAULT, begins="no answer for 9 s")], [7])
    assert events == [] and again[FAULT.key].begins == "no answer"
    after, events = followed(again, [], [7])
    assert [(event.kind, event.message) for event in events] == [("engine_back", "answers again")]
    assert after == {}


def test_another_state_of_a_topic_is_another_begin() -> None:
    held, _ = followed({}, [FAULT], [7])
    _, events = followed(held, [replace(FAULT, kind="engine_refused", state="refused")], [7])
    assert [event.kind for event in events] == ["engine_refused"]


def test_a_condition_that_this_tick_did_not_read_continues() -> None:
    held, _ = followed({}, [FAULT], [7])
    after, events = followed(held, [], [8])
    assert (dict(after), events) == ({FAULT.key: FAULT}, [])


def test_an_end_that_is_no_event_is_silent() -> None:
    held, _ = followed({}, [replace(FAULT, ends=None)], [7])
    assert followed(held, [], [7]) == ({}, [])
