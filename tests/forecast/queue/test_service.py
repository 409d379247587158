import numpy as np
import pytest

from pertoken.arrivals import Arrivals, fixed, typical
from pertoken.catalog.market import load_market
from pertoken.forecast.capacity import fitting_sequences
from pertoken.forecast.efficiency import efficiency, steady
from pertoken.forecast.latency import forecast_under, service
from pertoken.forecast.served import Load, resolve
from tests.deployments import deployment

MARKET = load_market()
CHAT = Load(generated_tok_s=500, prompt_len=1000, generated_len=250, running=8)


def test_a_full_batch_finishes_requests_at_the_rate_of_the_steady_state() -> None:
    """Queue and serving model share one clock: requests/s of a full batch x answer = tokens/s of that batch."""
    candidates = resolve([deployment()], [CHAT], MARKET)
    limit = np.array([64.0])
    predicted = forecast_under(candidates, efficiency(), Arrivals(1e3, fixed(1000), fixed(250)), limit)
    assert predicted.saturated[0]
    assert predicted.tok_s[0] == pytest.approx(steady(candidates, efficiency(), limit).tok_s[0], rel=0.02)


def test_twice_the_replicas_hold_nearly_twice_the_requests() -> None:
    candidates = resolve([deployment(), deployment(dp=2)], [CHAT, CHAT], MARKET)
    prompt, generated = typical("conversation")
    load = Arrivals(11.0, prompt, generated)
    predicted = forecast_under(candidates, efficiency(), load, np.array([64.0, 128.0]))
    assert 1.6 * predicted.capacity_per_s[0] < predicted.capacity_per_s[1] <= 2.02 * predicted.capacity_per_s[0]
    assert predicted.utilization[1] < predicted.utilization[0]
    assert predicted.ttft_s[1, 1] <= predicted.ttft_s[0, 1]


def test_an_slo_is_lost_before_the_device_is_saturated() -> None:
    candidates = resolve([deployment()] * 3, [CHAT] * 3, MARKET)
    prompt, generated = typical("conversation")
    limit = np.minimum(fitting_sequences(candidates), 256)
    most = forecast_under(candidates, efficiency(), Arrivals(1.0, prompt, generated), limit).capacity_per_s[0]
    rates = [0.2 * most, 0.6 * most, 0.95 * most]
    states = [forecast_under(candidates, efficiency(), Arrivals(rate, prompt, generated), limit) for rate in rates]
    assert not any(state.saturated[0] for state in states)
    late = [state.tpot_s[0, 1] for state in states]
    assert late[0] < late[1] < late[2] and late[2] > 2 * late[0]


def test_a_chunk_spreads_a_long_prompt_over_steps() -> None:
    candidates = resolve([deployment()], [CHAT], MARKET)
    its = service(candidates, efficiency(), fixed(10_000), fixed(100), np.array([8.0]), chunk_tokens=2048.0)
    assert (its.prefill_steps == 5).all()
    assert (its.prefill_s > 0.05).all() and (its.prefill_s < 5).all()
