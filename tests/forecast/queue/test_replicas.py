"""Number of replicas of a deployment that hold an objective."""

from dataclasses import replace

import pytest

from pertoken.arrivals import Arrivals
from pertoken.forecast.host import Calibration
from pertoken.forecast.latency import LatencyQuery, fewest_all
from pertoken.forecast.served import Abstained
from tests.forecast.builders import fewest_replicas, latency
from tests.forecast.queue.test_latency import ANSWER, CHAT, MARKET, PROMPT, deployment, ranges


def test_copies_share_the_load_until_the_objective_is_held() -> None:
    load = Arrivals(60.0, PROMPT, ANSWER)
    stable = fewest_replicas(deployment(), CHAT, load)
    strict = fewest_replicas(deployment(), CHAT, load, (None, 11.0))
    assert stable is not None and strict is not None and 1 < stable < strict
    alone = latency(deployment(), CHAT, replace(load, requests_per_s=60.0 / strict))
    crowded = latency(deployment(), CHAT, replace(load, requests_per_s=60.0 / (strict - 1)))
    assert ranges(alone)[3][1] <= 11.0
    assert crowded.refusal or ranges(crowded)[3][1] > 11.0
    assert fewest_replicas(deployment(), CHAT, load, (0.01, None)) is None


LOADS = (Arrivals(0.5, PROMPT, ANSWER), Arrivals(9.0, PROMPT, ANSWER), Arrivals(60.0, PROMPT, ANSWER))
FACTORS = (0.5, 1.0, 30.0, 1e6)


@pytest.mark.parametrize("limits", [(None, None), (400.0, 60.0), (None, 9.0)])
def test_many_are_counted_side_by_side_as_each_is_alone(limits: tuple[float | None, float | None]) -> None:
    asked = [LatencyQuery(deployment(max_num_seqs=n), CHAT, load, Calibration()) for load in LOADS for n in (8, 256)]
    together = fewest_all([(query, FACTORS, limits) for query in asked], MARKET)
    for query, counts in zip(asked, together, strict=True):
        assert not isinstance(counts, Abstained)
        assert counts[-1] is None
        for factor, count in zip(FACTORS, counts, strict=True):
            load = replace(query.arrivals, requests_per_s=query.arrivals.requests_per_s * factor)
            assert count == fewest_replicas(query.deployment, CHAT, load, limits)


def test_each_is_counted_by_objectives_of_its_own() -> None:
    query = LatencyQuery(deployment(), CHAT, LOADS[1], Calibration())
    several = [(None, None), (400.0, None), (None, 9.0), (0.01, 9.0)]
    together = fewest_all([(query, (1.0,), limits) for limits in several], MARKET)
    assert together == [fewest_all([(query, (1.0,), limits)], MARKET)[0] for limits in several]
    assert together[0] != together[2] and together[3] == (None,)


def test_a_failed_forecast_costs_no_other_its_count() -> None:
    asked = [
        LatencyQuery(deployment(weight_dtype=dtype), CHAT, LOADS[0], Calibration()) for dtype in ("bf16", None, "bf16")
    ]
    first, unknown, last = fewest_all([(query, (1.0,), (None, None)) for query in asked], MARKET)
    assert first == last == (1,)
    assert isinstance(unknown, Abstained)
    assert fewest_all([], MARKET) == []
