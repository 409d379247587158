"""Replicas by hour of the week: what hours with fewer, none or sleeping replicas save, and what they must hold."""

from dataclasses import replace

import pytest

from pertoken.savings.context import NOTHING
from pertoken.savings.estimate import Estimate, estimate
from pertoken.state.fleet import Fleet
from pertoken.state.service import Schedule, Slo, asleep, off
from tests.savings.fleets import (
    AWS_H100,
    ONE,
    chat,
    context,
    low_batch,
    priced,
    replicas,
    usd_month,
)

NIGHT = frozenset(hour for hour in range(168) if hour % 24 < 6)
MORNING = frozenset(hour for hour in range(168) if 6 <= hour % 24 < 10)
HOST = usd_month(2 * 6.88)


def four(**fields: object) -> Fleet:
    """Four replicas: nothing at night, little in the morning, 0.4 requests/s for the rest of the day."""
    fleet = replicas(4, **fields)
    (service,) = fleet.services
    rates = tuple(0.0 if hour in NIGHT else 0.02 if hour in MORNING else 0.4 for hour in range(168))
    demand = replace(service.demand, requests_by_hour_of_week=rates)
    return replace(fleet, services=(replace(service, demand=demand),))


def saved_by(schedule: Schedule, fleet: Fleet | None = None, **known: object) -> Estimate:
    fleet = fleet or four()
    return estimate(fleet, fleet.edit(fleet.services[0].scheduled(schedule)), context(fleet, **known))  # type: ignore[arg-type]


def counts(hours: frozenset[int], count: int) -> tuple[tuple[int, int], ...]:
    return tuple((hour, count) for hour in sorted(hours))


def test_hours_with_fewer_replicas_bank_the_hosts_of_the_others() -> None:
    estimate = saved_by(Schedule(replicas=counts(MORNING, 1)))
    assert estimate.net is not None and estimate.capacity == NOTHING
    assert estimate.net[1] == pytest.approx(3 * HOST * 28 / 168, abs=2)
    both = saved_by(Schedule(off=NIGHT, replicas=counts(MORNING, 2)))
    assert both.net is not None
    assert both.net[1] == pytest.approx(4 * HOST * 42 / 168 + 2 * HOST * 28 / 168, abs=2)


def test_no_replicas_in_an_hour_is_the_hour_off() -> None:
    assert saved_by(Schedule(replicas=counts(NIGHT, 0))).net == saved_by(off(NIGHT)).net


def test_hours_off_and_hours_asleep_are_bankable_and_capacity_apart() -> None:
    half = frozenset(sorted(NIGHT)[:21])
    estimate = saved_by(Schedule(off=half, asleep=NIGHT - half))
    assert estimate.net is not None and estimate.capacity is not None
    assert estimate.net[1] == estimate.capacity[1] == pytest.approx(4 * HOST * 21 / 168, abs=2)


def test_too_few_replicas_for_the_busiest_of_their_hours_are_refused_by_its_name() -> None:
    heavy = low_batch(generated_tok_s=1200, busy_generated_tok_s=1300, running=60, prompt_tok_s=4800, requests_s=3.0)
    fleet = four()
    rates = tuple(12.0 if hour == 50 else 0.02 for hour in range(168))
    demand = replace(fleet.services[0].demand, requests_by_hour_of_week=rates)
    fleet = replace(fleet, services=(replace(fleet.services[0], demand=demand),))
    estimate = saved_by(Schedule(replicas=counts(frozenset({49, 50}), 1)), fleet, seen=heavy)
    assert estimate.infeasible is not None and "1 replicas do not do on Wednesday at 02:00 UTC" in estimate.infeasible
    assert saved_by(Schedule(replicas=counts(frozenset({49}), 1)), fleet, seen=heavy).net is not None


def test_the_objectives_of_the_service_hold_in_every_scheduled_hour() -> None:
    estimate = saved_by(Schedule(replicas=counts(MORNING, 1)), slo=Slo(tpot_p95_ms=5.0))
    assert estimate.infeasible is not None and "within the SLO" in estimate.infeasible


def test_minimum_replicas_hold_in_every_hour() -> None:
    fleet = four(min_replicas=2)
    asleep = saved_by(Schedule(off=NIGHT), fleet)
    assert asleep.infeasible == "2 replicas are the minimum set for chat"
    one = saved_by(Schedule(replicas=counts(MORNING, 1)), fleet)
    assert one.infeasible is not None and "2 replicas are the minimum set for chat" in one.infeasible
    two = saved_by(Schedule(replicas=counts(MORNING, 2)), fleet)
    assert two.net is not None and two.net[1] == pytest.approx(2 * HOST * 28 / 168, abs=2)


def test_more_replicas_than_there_are_is_unpriced_with_its_range() -> None:
    estimate = saved_by(Schedule(replicas=((100, 9),)))
    assert estimate.net is None and estimate.unpriced == "chat has 4 replicas: schedule a number from 0 to 4"


def test_a_schedule_beside_a_change_of_replicas_saves_the_hours_of_those_that_stay() -> None:
    fleet = four()
    changed = fleet.services[0].resized()
    priced = estimate(fleet, fleet.edit(changed.scheduled(off(NIGHT))), context(fleet))
    host = 2 * AWS_H100 * 730
    assert priced.net == (3 * host + host * len(NIGHT) // 168,) * 3


def with_nights(fleet: Fleet) -> Fleet:
    hours = tuple(0.0 if hour % 24 < 6 else 1.0 for hour in range(168))
    service = chat(fleet)
    return replace(fleet, services=(replace(service, demand=replace(service.demand, requests_by_hour_of_week=hours)),))


NIGHTS = [hour for hour in range(168) if hour % 24 < 6]


def test_nights_off_bank_their_hours_and_nights_asleep_are_capacity() -> None:
    fleet = with_nights(ONE)
    estimate = priced(fleet, chat(fleet).scheduled(off(NIGHTS)))
    assert estimate.net is not None and estimate.net[1] == pytest.approx(usd_month(2 * 6.88) / 4, rel=1e-6)
    slept = priced(fleet, chat(fleet).scheduled(asleep(NIGHTS)))
    assert slept.net == NOTHING and slept.capacity is not None
    assert slept.capacity[1] == pytest.approx(usd_month(2 * 6.88) / 4, rel=1e-6)


def test_an_hour_with_requests_cannot_be_off_and_an_unseen_one_is_unpriced() -> None:
    served = priced(ONE, chat(ONE).scheduled(off([30])))
    assert served.infeasible == "0.05 requests/s came on Tuesday at 06:00 UTC: it is not idle then"
    blank = replace(chat(ONE), demand=replace(chat(ONE).demand, requests_by_hour_of_week=(None,) * 168))
    fleet = replace(ONE, services=(blank,))
    assert "record a whole week first" in (priced(fleet, blank.scheduled(off([0]))).unpriced or "")


def test_hours_that_were_not_recorded_save_nothing_and_leave_the_other_hours_priced() -> None:
    fleet = with_nights(ONE)
    whole = priced(fleet, chat(fleet).scheduled(off(NIGHTS)))
    for missing in (NIGHTS[:1], NIGHTS[:6]):
        hours = tuple(
            None if hour in missing else rate for hour, rate in enumerate(chat(fleet).demand.requests_by_hour_of_week)
        )
        gap = replace(chat(fleet), demand=replace(chat(fleet).demand, requests_by_hour_of_week=hours))
        known = replace(fleet, services=(gap,))
        estimate = priced(known, gap.scheduled(off(NIGHTS)))
        assert estimate.net is not None and whole.net is not None and estimate.unpriced is None
        counted = len(NIGHTS) - len(missing)
        assert estimate.net[1] == pytest.approx(whole.net[1] * counted / len(NIGHTS), rel=1e-6)
        (note,) = (line for line in estimate.against if "no saving is counted" in line)
        assert note.startswith("nothing was recorded on Monday at 00:00 UTC")
        fewer = priced(known, gap.scheduled(asleep(NIGHTS)))
        assert fewer.capacity is not None and fewer.capacity[1] > 0


def test_a_request_in_an_hour_without_replicas_waits_for_the_start_beside_its_objective() -> None:
    fleet = with_nights(ONE)
    late = priced(fleet, chat(fleet).scheduled(off(NIGHTS)), slo=Slo(ttft_p95_ms=800.0)).against
    assert any("waits for a start" in name and "its TTFT objective is 800 ms" in name for name in late)
    slept = priced(fleet, chat(fleet).scheduled(asleep(NIGHTS))).against
    assert any("waits for the wake-up" in name and "objective" not in name for name in slept)
    (single,) = saved_by(Schedule(replicas=counts(MORNING, 1))).against
    assert single.startswith("in hours with 1 replica: 1 replica remains, and a failure")


def test_the_first_request_after_the_night_waits_for_the_measured_start() -> None:
    fleet = with_nights(ONE)
    estimate = priced(
        fleet, chat(fleet).scheduled(off(NIGHTS)), seen=low_batch(load_s=140.0), slo=Slo(ttft_p95_ms=800.0)
    )
    assert any("waits for a start, 140 s as measured" in reason and "800 ms" in reason for reason in estimate.against)
