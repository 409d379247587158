"""The spend of a month by hand: days, thresholds, and the end of the month with its interval."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from pertoken.costs.month import (
    EXPECTED,
    KEPT_S,
    SPENT,
    Alert,
    DaySpend,
    Outlook,
    RecentMonths,
    alerts,
    month_of,
    month_spend,
    outlook,
    spend_of,
)
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.units import NANO_USD
from pertoken.window.reading import DAY
from tests.scenario import LOW_BATCH_70B, seed


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


NOV, DEC = at("2026-11-01"), at("2026-12-01")


def day(start_ts: int, usd: float) -> DaySpend:
    return DaySpend(start_ts, round(usd * NANO_USD), priced_ms=1)


def test_a_month_is_of_the_calendar_in_utc() -> None:
    assert month_of(at("2026-11-22T19:00")) == (NOV, DEC)
    assert month_of(at("2026-12-31T23:59")) == (DEC, at("2027-01-01"))
    assert month_of(NOV) == (NOV, DEC) and month_of(DEC - 1) == (NOV, DEC)


def test_equal_days_end_the_month_at_their_number_times_their_cost() -> None:
    now = at("2026-11-11T12:00")
    days = [*(day(NOV + n * DAY, 100) for n in range(10)), day(NOV + 10 * DAY, 50)]
    spend = spend_of(days, NOV, DEC, now, NOV)
    assert spend.nano_usd == 1050 * NANO_USD and spend.name == "2026-11" and spend.unrecorded_s == 0
    assert spend.total == (3000 * NANO_USD,) * 3 and spend.basis == "10 whole days: their mean"


def test_weekends_that_cost_less_are_predicted_as_such_and_a_trend_goes_on() -> None:
    first = at("2026-10-05") // DAY  # a Monday
    weekly = [(first + n, 100.0 if n % 7 < 5 else 20.0) for n in range(14)]
    likely_end = outlook(weekly, [(first + 14 + n, 1.0) for n in range(7)])
    assert (
        isinstance(likely_end, Outlook)
        and likely_end.likely == pytest.approx(540)
        and "day of the week" in likely_end.basis
    )
    rising = [(first + n, 100.0 + n) for n in range(28)]
    likely_end = outlook(rising, [(first + 28, 1.0), (first + 29, 0.5)])
    assert (
        isinstance(likely_end, Outlook)
        and likely_end.likely == pytest.approx(128 + 129 / 2)
        and "trend" in likely_end.basis
    )


def test_the_80_percent_interval_holds_about_80_percent_of_the_ends_of_months() -> None:
    random, held, tries = np.random.default_rng(7), 0, 400
    for _ in range(tries):
        usd = 100 + 30 * (np.arange(50) % 7 < 5) + random.normal(0, 10, 50)
        known = [(n, float(usd_of_day)) for n, usd_of_day in enumerate(usd[:35])]
        likely_end = outlook(known, [(n, 1.0) for n in range(35, 50)])
        assert isinstance(likely_end, Outlook)
        held += likely_end.low <= usd[35:].sum() <= likely_end.high
    assert 0.74 <= held / tries <= 0.9


def test_short_history_gives_no_prediction_and_states_the_needed_days() -> None:
    spend = spend_of([day(NOV + n * DAY, 10) for n in range(3)], NOV, DEC, NOV + 3 * DAY, NOV)
    assert (spend.total, spend.nano_usd) == (None, 30 * NANO_USD)
    assert spend.reason == "3 whole days are recorded, and a month is predicted from 4 on"
    begun = spend_of([day(NOV + 4 * DAY, 5)], NOV, DEC, NOV + 5 * DAY, NOV + 4 * DAY + 3600)
    assert begun.unrecorded_s == 4 * DAY + 3600 and "0 whole days" in (begun.reason or "")


def test_a_day_on_which_nothing_was_recorded_is_left_out_and_not_taken_for_a_free_one() -> None:
    days = [day(NOV + n * DAY, 100) for n in range(10) if n != 4]
    spend = spend_of(days, NOV, DEC, NOV + 10 * DAY, NOV)
    assert spend.total is not None and spend.total[1] == (900 + 20 * 100) * NANO_USD


def test_devices_without_a_price_leave_the_spend_unknown() -> None:
    unpriced = [DaySpend(NOV + n * DAY, 0, 0, unpriced_ms=5) for n in range(10)]
    spend = spend_of(unpriced, NOV, DEC, NOV + 10 * DAY, NOV)
    assert (spend.nano_usd, spend.total, spend.unpriced_share) == (None, None, 1)
    assert spend.reason == "no recorded device has a price: `pertoken prices set`"
    assert spend_of([], NOV, DEC, NOV + DAY, NOV).reason == "nothing is recorded in it yet"


def test_a_threshold_is_reached_to_the_nano_dollar_and_an_expected_overrun_is_an_alert_of_its_own() -> None:
    spend = spend_of([day(NOV + n * DAY, 100) for n in range(10)], NOV, DEC, NOV + 10 * DAY, NOV)
    spent = 1000 * NANO_USD
    assert alerts(spend, 3001 * NANO_USD, (0.5, 0.8)) == ()
    assert alerts(spend, 2 * spent, (0.5, 0.8)) == (Alert(SPENT, 0.5), Alert(EXPECTED, 1.0))
    assert alerts(spend, 2 * spent + 1, (0.5,)) == (Alert(EXPECTED, 1.0),)


def test_a_recorded_month_sums_its_days_at_their_prices(tmp_path: Path) -> None:
    end = NOV + DAY + 1800
    seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=end)
    spend = month_spend(open_store(locate(str(tmp_path))), end)
    assert spend.nano_usd == pytest.approx(2 * 6.88 * NANO_USD, rel=1e-6)
    assert [day.start_ts for day in spend.days] == [NOV, NOV + DAY]
    assert sum(day.nano_usd for day in spend.days) == spend.nano_usd


def test_the_spend_of_a_month_is_read_again_after_an_hour_and_in_another_month(tmp_path: Path) -> None:
    end = NOV + DAY + 1800
    owned = replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, "job": "7"})
    seed(tmp_path, owned, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=end)
    store, months = open_store(locate(str(tmp_path))), RecentMonths()
    fleet, jobs = (months.spend(store, basis, end) for basis in (None, "job"))
    assert fleet[""] == month_spend(store, end) and jobs["7"].nano_usd == fleet[""].nano_usd
    assert months.spend(store, None, end + KEPT_S - 1) is fleet and months.spend(store, "job", end + 60) is jobs
    assert months.spend(store, None, end + KEPT_S) is not fleet
    assert RecentMonths().spend(store, None, end - 60)[""] != fleet[""]
    late = months.spend(store, "job", DEC - 60)
    assert months.spend(store, "job", DEC + 60) is not late, "another month"
