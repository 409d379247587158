"""Sentences about the fleet."""

from dataclasses import replace

from pertoken.costs.report.lines import EventLine, MissingMetric
from pertoken.text.fleet_sheets import event_lines, notices_sheet
from tests.tui.reports import NOW, RICH


def test_equal_events_are_one_line_with_their_count_and_the_newest_time() -> None:
    events = tuple(
        EventLine(NOW - age_s, "engine", message, n)
        for age_s, message, n in (
            (30, "the page hung", 2),
            (90, "restarted", 1),
            (120, "the page hung", 3),
            (3600, "the page hung", 1),
        )
    )
    assert event_lines(replace(RICH, events=events)) == ("30s ago  the page hung (6 times)", "90s ago  restarted")


def test_a_metric_that_many_devices_lack_for_one_reason_is_one_line() -> None:
    missing = tuple(MissingMetric(f"H100 #{n}", "power", "denied", "no rights", None, n) for n in range(8))
    other = MissingMetric("H100 #0", "util", "denied", "no rights", None, 0)
    *_, section = notices_sheet(replace(RICH, missing=(*missing, other)))
    assert section.lines == (("H100 #0 and 7 more: power", "no rights"), ("H100 #0: util", "no rights"))
