"""Time to first token by hand: exponential waits before an own prefill."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.forecast.queueing import TtftDistribution
from tests.examples import examples

OWN_S = np.array([[0.1, 0.2, 0.3, 0.4]])


def distribution(place_share: float, prefill_share: float, prefill_wait_s: float = 1.0) -> TtftDistribution:
    return TtftDistribution(
        OWN_S, np.array([2.0]), np.array([place_share]), np.array([prefill_wait_s]), np.array([prefill_share])
    )


def test_without_a_wait_a_request_takes_its_own_prefill() -> None:
    assert distribution(0.0, 0.0).share_longer_than(np.array([[0.05, 0.25, 0.5]]))[0] == pytest.approx([1, 0.5, 0])


def test_each_wait_alone_has_an_exponential_tail() -> None:
    second = np.array([[1.4]])
    late_s = 1.4 - OWN_S[0]
    assert distribution(1.0, 0.0).share_longer_than(second)[0, 0] == pytest.approx(np.exp(-late_s / 2.0).mean())
    assert distribution(0.0, 1.0).share_longer_than(second)[0, 0] == pytest.approx(np.exp(-late_s).mean())


def test_two_equal_waits_add_up_to_an_erlang_tail() -> None:
    late_s = 3.0 - OWN_S[0]
    expected = ((1 + late_s / 2.0) * np.exp(-late_s / 2.0)).mean()
    share = distribution(1.0, 1.0, prefill_wait_s=2.0).share_longer_than(np.array([[3.0]]))
    assert share[0, 0] == pytest.approx(expected, rel=1e-4)


@settings(max_examples=examples(30), deadline=None)
@given(share=st.floats(0.01, 0.99), place=st.floats(0, 1), prefill=st.floats(0, 1))
def test_a_quantile_is_the_time_that_its_share_does_not_exceed(share: float, place: float, prefill: float) -> None:
    requests = distribution(place, prefill)
    quantile_s = requests.quantile(share)[:, None]
    assert requests.share_longer_than(quantile_s * (1 + 1e-6))[0, 0] <= 1 - share + 1e-6
    assert requests.share_longer_than(quantile_s * (1 - 1e-6))[0, 0] >= 1 - share - 1e-6
