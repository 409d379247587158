"""Changes of one service that are made together: each is priced on what the others leave."""

from dataclasses import replace

import pytest

from pertoken.savings.outcome import Outcome, same
from pertoken.savings.services import FIXED, OTHER_DEVICES, conflict
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Schedule, asleep, off, to
from tests.savings.fleets import AWS_H100, FOUR, ONE, chat, priced, usd_month

NIGHTS = [hour for hour in range(168) if hour % 24 < 6]
CACHE = {"response_cache_share": to(0.3, "as set", confirmed=True)}
HOST_MONTH = 2 * AWS_H100 * 730


def quiet_nights() -> Fleet:
    hours = tuple(0.0 if hour % 24 < 6 else 1.0 for hour in range(168))
    service = chat(ONE)
    return replace(ONE, services=(replace(service, demand=replace(service.demand, requests_by_hour_of_week=hours)),))


def test_hours_off_and_a_faster_model_save_what_each_saves_alone() -> None:
    fleet = quiet_nights()
    faster = chat(fleet).but(kv_dtype="fp8")
    alone, nights = priced(fleet, faster), priced(fleet, chat(fleet).scheduled(off(NIGHTS)))
    both = priced(fleet, faster.scheduled(off(NIGHTS)))
    assert nights.net is not None and both.net == nights.net == (usd_month(13.76 / 4),) * 3
    assert both.capacity == alone.capacity and both.slo == alone.slo


def test_hours_off_of_fewer_replicas_free_the_hosts_of_those_that_still_run() -> None:
    hours = tuple(0.0 if hour % 24 < 6 else 0.2 for hour in range(168))
    service = chat(FOUR)
    fleet = replace(FOUR, services=(replace(service, demand=replace(service.demand, requests_by_hour_of_week=hours)),))
    fewer = chat(fleet).resized()
    alone, both = priced(fleet, fewer), priced(fleet, fewer.scheduled(off(NIGHTS)))
    assert alone.replicas == both.replicas == (4, 1)
    assert alone.net == (usd_month(3 * 13.76),) * 3
    assert both.net == (usd_month(3.25 * 13.76),) * 3


def test_hours_asleep_and_a_faster_model_never_free_more_than_is_paid() -> None:
    fleet = quiet_nights()
    both = priced(fleet, chat(fleet).but(kv_dtype="fp8").scheduled(asleep(NIGHTS)))
    assert both.capacity is not None and 0 < both.capacity[2] <= HOST_MONTH


def test_a_changed_demand_frees_its_share_of_the_busy_time_that_a_faster_model_leaves() -> None:
    faster = chat(ONE).but(weight_dtype="fp8")
    speed, cache = priced(ONE, faster), priced(ONE, chat(ONE).serving(**CACHE))
    both = priced(ONE, faster.serving(**CACHE))
    assert speed.throughput_ratio is not None and speed.capacity is not None
    assert cache.capacity is not None and both.capacity is not None
    left = cache.capacity[1] / max(1.0, speed.throughput_ratio[1])
    assert both.capacity[1] == pytest.approx(speed.capacity[1] + left, rel=1e-6)
    assert max(speed.capacity[1], cache.capacity[1]) < both.capacity[1] < speed.capacity[1] + cache.capacity[1]


def test_an_unconfirmed_part_gives_the_whole_no_money() -> None:
    both = priced(ONE, chat(ONE).but(weight_dtype="fp8").serving(response_cache_share=to(0.3)))
    assert both.net is None and both.capacity is None and "not a measurement" in (both.unpriced or "")


def test_hours_off_are_not_priced_beside_a_move_or_fewer_devices() -> None:
    fleet = quiet_nights()
    for changed in (chat(fleet).on(Placement(purchase="spot")), chat(fleet).but(weight_dtype="fp8", tp=1)):
        estimate = priced(fleet, changed.scheduled(off(NIGHTS)))
        assert estimate.net is None and estimate.unpriced == OTHER_DEVICES


def test_a_schedule_with_numbers_of_replicas_is_priced_alone() -> None:
    now = chat(ONE).deployments
    assert conflict(Schedule(replicas=((3, 1),)), Outcome(kept=same(now)), now) == FIXED
    assert conflict(off([3]), Outcome(kept=same(now)), now) is None
    assert conflict(off([3]), Outcome(kept=same(())), now) == OTHER_DEVICES
