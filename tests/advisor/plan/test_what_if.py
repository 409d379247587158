"""Other loads, prices and objectives."""

import pytest

from pertoken.advisor.plan.compose import compose
from pertoken.advisor.plan.what_if import WhatIf, price_of, slo_of, traffic_of, what_if_of
from pertoken.errors import BadInput
from pertoken.savings.context import EnergyPrice
from pertoken.state.service import Demand, Slo
from pertoken.units import NANO_USD
from tests.advisor.plan.fleets import advice, present, scale, small


def test_a_plan_for_more_traffic_needs_more_replicas() -> None:
    state = present(small((4, 0)))
    kept = []
    for traffic in (1.0, 40.0):
        busier = WhatIf(traffic).present(state)
        plan = compose(busier, advice(busier, [scale(busier.fleet.services[0])]))
        kept.append(plan.steps[0].replicas[1] if plan.steps and plan.steps[0].replicas else 4)
    assert kept[0] == 1 < kept[1]


def test_the_demand_of_each_service_rises_with_the_traffic() -> None:
    state = present(small((2, 0), demand=Demand()))
    more = WhatIf(1.5).present(state).fleet.services[0].demand
    assert more == state.fleet.services[0].demand  # nothing is known of it
    known = present(small((2, 0)))
    before, after = (
        present_state.fleet.services[0].demand.requests_per_s for present_state in (known, WhatIf(1.5).present(known))
    )
    assert before is not None and after is not None and after.value == pytest.approx(1.5 * before.value)
    assert WhatIf().present(state).context is state.context


def test_objectives_replace_those_that_are_named_and_leave_the_others() -> None:
    state = present(small((2, 0), slo=Slo(ttft_p95_ms=500, tpot_p95_ms=40)))
    changed = WhatIf(slo=dict([slo_of("chat-1:ttft_p95<0.8s")])).present(state)
    assert changed.fleet.services[0].slo == Slo(ttft_p95_ms=800, tpot_p95_ms=40)


def test_objectives_of_a_service_that_is_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match="--slo: there is no service 'chat'; services: chat-1"):
        WhatIf(slo={"chat": Slo()}).present(present(small((2, 0))))


def test_objectives_and_prices_are_read_as_people_write_them() -> None:
    assert slo_of("a:b:ttft_p95<800ms, tpot_p50<=50ms") == ("a:b", Slo(ttft_p95_ms=800, tpot_p50_ms=50))
    price = price_of("H100 = 2.10")
    assert (price.selector, price.nano_usd_per_device_hour, price.from_ts) == ("H100", 2_100_000_000, 0)
    assert price_of("gpu=0").nano_usd_per_device_hour == 0 * NANO_USD
    assert traffic_of("1.5") == 1.5


@pytest.mark.parametrize(
    "text",
    ["chat", "chat:", ":ttft_p95<1ms", "chat:ttft<1ms", "chat:ttft_p95<1", "chat:e2e_p95<1s", "chat:tpot_p95<0ms"],
)
def test_objectives_that_are_none_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match="write SERVICE:ttft_p95<800ms,tpot_p95<50ms"):
        slo_of(text)


@pytest.mark.parametrize("text", ["H100", "=2", "H100=", "H100=-1", "H100=nan", "H100=1e9", "H100=two"])
def test_prices_that_are_none_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match=r"write DEVICE=USD, such as H100=2\.10"):
        price_of(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "101", "much"])
def test_traffic_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match=r"use a number above 0 and up to 100, such as 1\.5"):
        traffic_of(text)


def test_one_line_holds_all_assumptions() -> None:
    assumption = what_if_of("traffic=1.5 tariff=0.12 'price=H100 80GB=2.10' slo=chat:ttft_p95<800ms")
    assert (assumption.traffic, assumption.tariff_usd_per_kwh) == (1.5, 0.12)
    assert [(price.selector, price.nano_usd_per_device_hour) for price in assumption.prices] == [
        ("H100 80GB", 2_100_000_000)
    ]
    assert assumption.slo == {"chat": Slo(ttft_p95_ms=800)}
    assert not what_if_of(" ")


@pytest.mark.parametrize("text", ["load=2", "traffic", "tariff=0", "tariff=free", "price=H100", "slo=chat", "'x"])
def test_a_line_that_assumes_nothing_possible_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        what_if_of(text)


def test_an_assumed_tariff_is_the_price_of_electricity() -> None:
    context = WhatIf(tariff_usd_per_kwh=0.2).present(present(small((2, 0)))).context
    assert context.energy == EnergyPrice(200_000_000, 1.0)
