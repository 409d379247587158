import pytest

from pertoken.testing import deployment, fleet, regime
from pertoken.testing.builders import Load, service_of


def test_requests_running_follow_from_arrivals_and_latencies() -> None:
    load = Load(2.0, 1000, 200, 0.2, 0.01, 0.5)
    state = regime(fleet(service_of(load, 2, deployment())), {"chat": load.evidence})
    seen = state.of("deployment", 1)
    assert seen.running.mean == pytest.approx(2.0 * (0.2 + 0.01 * 200) / 0.5)
    assert state.of("service", "chat").requests_s.mean == pytest.approx(4.0)


def test_a_series_that_a_host_does_not_measure_is_missing() -> None:
    assert not Load(0.1, 700, 250, 0.06, 0.0085, 0.15).evidence.has("dram_active")
    assert Load(0.1, 700, 250, 0.06, 0.0085, 0.15, dram_active=0.4).evidence.dram_active.mean == 0.4
