"""A regime of a fleet and what was measured of each replica: services, devices and hosts follow from it."""

import math
import pickle

import pytest

from pertoken.evidence import HoursOfWeek, NotMeasured
from pertoken.testing import Regime, deployment, evidence, fleet, regime, regimes, series, service

TWO = fleet(service("chat", deployment(tp=2), deployment(tp=2)), idle_hosts=1)


def test_a_service_is_the_sum_of_its_replicas_and_a_device_its_part_of_one() -> None:
    state = regime(TWO, {"chat": evidence(running=3, power_w=900, energy_w=880, device_util=0.5, kv_use=0.2)})
    together, device, host = state.of("service", "chat"), state.of("device", 10), state.of("host", 1)
    assert (together.running.mean, together.power_w.mean, together.kv_use.mean) == (6, 1800, 0.2)
    assert (device.power_w.mean, device.energy_w.mean, device.device_util.mean) == (450, 440, 0.5)
    assert (host.power_w.mean, host.device_util.mean, host.held.mean) == (900, 0.5, 1)
    assert state.of("device", 30).held.mean == state.of("host", 3).held.mean == 0


def test_a_series_without_hours_follows_a_day_within_its_quantiles() -> None:
    seen = regime(TWO, {"chat": evidence(running=series(4, p95=6, max=9), busy=0.5)}).of("deployment", 1)
    hours = [rate for rate in seen.hours.running if rate is not None]
    assert len(hours) == 168 and math.isclose(sum(hours) / 168, 4)
    assert hours[:24] == hours[24:48]
    assert (hours.index(max(hours)), max(hours) <= seen.running.p95) == (15, True)
    assert set(seen.hours.busy) == {0.5}


def test_hours_that_are_given_stay_and_are_summed_over_replicas() -> None:
    nights: HoursOfWeek = (*(2.0,) * 100, *(None,) * 60, *(0.0,) * 8)
    state = regime(TWO, {"chat": evidence(running=series(1, hours=nights))})
    assert state.of("deployment", 1).hours.running == nights
    assert state.of("service", "chat").hours.running[:2] == (4.0, 4.0)
    assert state.of("service", "chat").hours.running[100] is None


def test_lengths_and_latencies_have_no_hours_as_on_a_real_host() -> None:
    seen = regimes()["idle"].of("deployment", 1)
    with pytest.raises(NotMeasured, match="by hour of the week"):
        _ = seen.hours.ttft_s


@pytest.mark.parametrize("typical", regimes().values(), ids=regimes())
def test_quantiles_of_every_series_rise_and_hours_lie_between_them(typical: Regime) -> None:
    for (kind, _), of_subject in typical.measured.items():
        for name, values in of_subject.items():
            rising = [values.p10, values.p25, values.p50, values.p75, values.p90, values.p95, values.p99, values.max]
            assert rising == sorted(rising), (kind, name)
            if values.distribution is not None:
                hours = [hour for hour in values.distribution.hours() if hour is not None]
                assert values.quantile(0) - 1e-9 <= min(hours) and max(hours) <= max(values.p95, values.mean) + 1e-9


def test_a_regime_can_be_copied_without_a_series() -> None:
    typical = regimes()["kv-bound"]
    assert not typical.without("queue_s").of("service", "chat").has("queue_s")
    assert pickle.loads(pickle.dumps(typical)) == typical
    assert typical.of("service", "none") == evidence()
