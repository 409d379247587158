from typing import Any

import pytest

from pertoken.plugins.fleet.scale_to_zero import scale_to_zero
from pertoken.rule import Placement, Schedule, Service, asleep, off
from pertoken.testing import Result, deployment, evidence, fleet, regime, run, series, service

OFFICE = tuple(8 <= hour % 24 < 18 and hour < 120 for hour in range(168))
"""Monday to Friday, 8 to 18 h."""
FREE = frozenset(hour for hour in range(168) if not OFFICE[hour] and not OFFICE[(hour + 1) % 168])
"""All other hours but the one before each morning."""
OWNED = Placement(accelerator="H100 SXM5", purchase="owned")


def ran(rates: tuple[float | None, ...], replicas: int = 1, observed_h: float = 168, **fields: Any) -> Result:
    of = fields.pop("of", {})
    measured = {"load_s": fields.pop("load_s")} if "load_s" in fields else {}
    made = service("chat", *[deployment(**of)] * replicas, **fields)
    known = [rate for rate in rates if rate is not None]
    seen = evidence(
        generated_tok_s=series(sum(known) / len(known), max=max(known), hours=rates), observed_h=observed_h, **measured
    )
    return run(scale_to_zero, regime(fleet(made), {"chat": seen}))


def office(served: float = 50.0, other: float = 0.0) -> tuple[float | None, ...]:
    return tuple(served if in_office_hours else other for in_office_hours in OFFICE)


def schedules(result: Result) -> list[Schedule]:
    return [proposal.state.schedule for proposal in result.proposals if isinstance(proposal.state, Service)]


def test_hours_without_requests_are_off_or_asleep_up_to_an_hour_before_the_first() -> None:
    result = ran(office())
    assert schedules(result) == [off(FREE), asleep(FREE)]
    assert [(proposal.risk, proposal.effort) for proposal in result.proposals] == [
        ("availability", "medium"),
        ("latency", "low"),
    ]
    assert 7 not in FREE and 6 in FREE and 166 in FREE


def test_devices_that_are_paid_for_anyway_sleep_where_the_engine_can() -> None:
    assert schedules(ran(office(), of={"placement": OWNED})) == [asleep(FREE)]
    assert ran(office(), of={"placement": OWNED, "engine": "tgi"}).codes == ("engine-cannot",)
    assert schedules(ran(office(), of={"engine": "tgi"})) == [off(FREE)]


def test_little_load_in_many_hours_is_served_by_the_fewest_replicas_that_are_set() -> None:
    result = ran(office(other=2.0), replicas=4, min_replicas=2)
    (schedule,) = schedules(result)
    assert dict(schedule.replicas) == dict.fromkeys(FREE, 2) and not schedule.off
    assert ran(office(other=2.0), replicas=2, min_replicas=2).codes == ("at-minimum",)


def test_minimum_replicas_forbid_hours_without_any() -> None:
    result = ran(office(), replicas=3, min_replicas=2)
    (schedule,) = schedules(result)
    assert set(dict(schedule.replicas).values()) == {2}


@pytest.mark.parametrize(
    ("rates", "fields", "code"),
    [
        (office(), {"observed_h": 24}, "observed-briefly"),
        (office(other=30.0), {}, "served-most-hours"),
        (office(0.0), {}, "no-load"),
        (tuple(None if not in_office_hours else 50.0 for in_office_hours in OFFICE), {}, "served-most-hours"),
        (office(), {"requests_s": 0.5}, "at-minimum"),
        (office(), {"schedule": off([0])}, "scheduled"),
    ],
)
def test_it_refuses_services_without_enough_recorded_free_hours(rates: Any, fields: dict[str, Any], code: str) -> None:
    result = ran(rates, **fields)
    assert result.codes[0] == code and not result.proposals


def test_a_start_that_takes_more_than_an_hour_keeps_more_hours() -> None:
    (first, *_) = schedules(ran(office(), load_s=5_000.0))
    assert first == off(FREE - {hour for hour in FREE if OFFICE[(hour + 2) % 168]})
