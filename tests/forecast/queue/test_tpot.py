"""Time between tokens by hand: a constant step, with and without prefills of other requests."""

import numpy as np
import pytest

from pertoken.arrivals import Lengths, fixed, typical
from pertoken.forecast.queueing import ServiceTimes, TpotDistribution, steady_state, tpot_distribution

STEP_S = 0.01


def distribution(prefill_s: float, rate: float, generated: Lengths) -> TpotDistribution:
    service = ServiceTimes(
        np.array([[1.0, 64.0]]),
        np.array([[STEP_S, STEP_S]]),
        np.full((1, 16), prefill_s),
        np.ones((1, 16)),
        np.array([64.0]),
    )
    return tpot_distribution(service, steady_state(service, np.array([rate]), generated), generated)


def test_without_prefills_every_request_takes_one_step_per_token() -> None:
    quantiles = distribution(1e-9, 0.1, fixed(200)).quantiles(np.array([0.05, 0.5, 0.95]))
    assert quantiles[0] == pytest.approx([STEP_S] * 3, rel=1e-4)


def test_the_mean_over_requests_is_a_step_and_the_prefills_of_other_requests() -> None:
    rate, prefill_s = 2.0, 0.05
    quantiles = distribution(prefill_s, rate, fixed(1000)).quantiles((np.arange(200) + 0.5) / 200)
    # While one second of steps passes, `rate` prompts arrive, each of which also delays the steps behind it.
    assert quantiles.mean() == pytest.approx(STEP_S / (1 - rate * prefill_s), rel=0.05)


def test_a_quantile_is_the_shortest_time_within_which_its_share_is() -> None:
    requests = distribution(0.2, 1.0, typical("code")[1])
    shares = np.array([0.1, 0.5, 0.95, 0.99])
    quantiles = requests.quantiles(shares)
    assert (np.diff(quantiles[0]) > 0).all()
    assert (requests.share_within(quantiles * (1 + 1e-9))[0] >= shares - 1e-12).all()
    assert (requests.share_within(quantiles * (1 - 1e-9))[0] < shares).all()


def test_a_short_output_varies_more_than_a_long_one() -> None:
    short, long = (distribution(0.2, 1.0, fixed(tokens)).quantiles(np.array([0.5, 0.95]))[0] for tokens in (5, 2000))
    assert short[1] / short[0] > 2 * long[1] / long[0]
