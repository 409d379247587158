from dataclasses import replace

import pytest

from pertoken.savings.changes import demand
from pertoken.savings.sizing import objectives, one_fewer_serves, sizes, total_arrivals
from pertoken.savings.speed import speed
from pertoken.state.service import times, to
from pertoken.units import HOURS_PER_MONTH
from tests.savings.fleets import AWS_H100, FOUR, ONE, chat, context, low_batch, priced


def test_a_changed_demand_yields_a_break_even_and_no_dollars() -> None:
    estimate = priced(ONE, chat(ONE).serving(response_cache_share=to(0.3)))
    assert estimate.net is None and estimate.capacity is None
    assert estimate.break_even is not None and "frees 30% of its busy time" in estimate.break_even
    assert estimate.unpriced is not None and "a proposal, not a measurement" in estimate.unpriced
    unknown = priced(ONE, chat(ONE).serving(requests_per_s=times(0.5)))
    assert unknown.break_even is not None and "frees 50% of its busy time" in unknown.break_even


def test_a_share_that_a_person_supplied_is_priced_as_capacity() -> None:
    estimate = priced(ONE, chat(ONE).serving(response_cache_share=to(0.3, "as set", confirmed=True)))
    busy = 0.6 * 2 * AWS_H100 * HOURS_PER_MONTH
    assert estimate.unpriced is None and estimate.net == (0, 0, 0)
    assert estimate.capacity is not None and estimate.capacity[1] == pytest.approx(0.3 * busy, rel=0.01)
    assert "response cache share 0.3: as set" in estimate.assumptions


def test_devices_that_a_response_cache_frees_need_no_forecast() -> None:
    unknown = tuple(
        replace(deployment, placement=replace(deployment.placement, accelerator=None))
        for deployment in chat(ONE).deployments
    )
    cpus = replace(ONE, services=(replace(chat(ONE), deployments=unknown),))
    estimate = priced(cpus, chat(cpus).serving(response_cache_share=to(0.3)))
    assert estimate.break_even == "at response cache share 0.3 it frees 30% of its busy time"
    shorter = priced(cpus, chat(cpus).serving(output_len=to(200)))
    assert shorter.unpriced is not None and "the catalog does not know" in shorter.unpriced


def test_where_no_replica_can_go_none_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counting(*arguments: object) -> list[bool]:
        counted.append(1)
        return one_fewer_serves(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(demand, "one_fewer_serves", counting)
    one = priced(ONE, chat(ONE).serving(response_cache_share=to(0.3)))
    assert one.break_even is not None and "no replica is released" in one.break_even and not counted
    four = priced(FOUR, chat(FOUR).serving(response_cache_share=to(0.3)))
    assert four.break_even is not None and "fewer replicas already" in four.break_even and counted


@pytest.mark.parametrize("rate", [150, 1200])
def test_one_replica_fewer_serves_what_fewer_are_counted_for(rate: float) -> None:
    seen = low_batch(generated_tok_s=rate, busy_generated_tok_s=1300, running=60, prompt_tok_s=4 * rate, requests_s=3.0)
    given, service = context(FOUR, seen), chat(FOUR)
    one = service.deployments[0]
    forecast = speed(one, one, objectives(service, given), given)
    arrivals, _ = total_arrivals(service, given)
    assert forecast.load is not None
    factors = (0.3, 1.0, 1.5, 2.0, 3.0, 5.0, 60.0)
    loads = [(replace(arrivals, requests_per_s=arrivals.requests_per_s * x), forecast.load) for x in factors]
    counted = [sizes(service, one, forecast, some, given, load) for some, load in loads]
    fewer = [not isinstance(size, str) and size.likely < len(service.deployments) for size in counted]
    assert one_fewer_serves(service, one, forecast, loads, given) == fewer
    assert len(set(fewer)) == 2
