from datetime import UTC, datetime

from pertoken.window.series import hour_of_week


def test_hour_of_week_begins_on_monday_in_utc() -> None:
    monday = int(datetime(2026, 11, 16, tzinfo=UTC).timestamp())
    assert [hour_of_week(monday + 3600 * hour) for hour in (0, 1, 167, 168)] == [0, 1, 167, 0]
