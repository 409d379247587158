import pytest

from pertoken.rule import NotMeasured, Placement
from pertoken.testing import deployment, evidence, fleet, model, regime, series, service


def test_deployments_get_hosts_of_their_own_unless_they_name_devices_of_one_host() -> None:
    state = fleet(service("chat", deployment(tp=2), deployment(tp=2)), idle_hosts=1)
    assert [(deployment.deployment_id, deployment.device_ids) for deployment in state.deployments] == [
        (1, (10, 11)),
        (2, (20, 21)),
    ]
    assert [host.device_ids for host in state.hosts] == [(10, 11), (20, 21), (30, 31)]
    assert [len(state.deployments_on(host)) for host in state.hosts] == [1, 1, 0]
    shared = fleet(service("a", deployment(device_ids=(10,))), service("b", deployment(device_ids=(11,))))
    (host,) = shared.hosts
    assert [deployment.name for deployment in shared.deployments_on(host)] == ["meta-llama/Llama-3.1-8B"] * 2


def test_any_field_may_be_given_and_none_is_unknown() -> None:
    one = deployment("Llama-3.3-70B", tp=None, weight_dtype=None, placement=Placement())
    assert (one.tp, one.weight_dtype, one.accelerator, one.model) == (None, None, None, model("Llama-3.3-70B"))
    (device,) = fleet(service("chat", one)).devices
    assert (device.kind, device.accelerator) == ("cpu", None)
    with pytest.raises(ValueError, match="'no such' is no model of the catalog"):
        model("no such")


def test_a_service_is_measured_as_the_sum_of_its_replicas_and_a_device_as_held_or_idle() -> None:
    state = fleet(service("chat", *[deployment(tp=2)] * 3, requests_s=3.0), idle_hosts=1)
    made = regime(state, {"chat": evidence(running=2, busy=0.5, power_w=800, tpot_s=series(0.02, p95=0.05))})
    seen = made.of("service", "chat")
    assert (seen.running.mean, seen.busy.mean, seen.power_w.mean, seen.tpot_s.p95) == (6, 0.5, 2400, 0.05)
    assert made.of("deployment", 1).running.mean == 2
    assert (made.of("device", 10).held.mean, made.of("device", 10).power_w.mean) == (1, 400)
    assert made.of("device", 40).held.mean == 0
    assert (made.of("host", 1).held.mean, made.of("host", 4).held.mean) == (1, 0)
    with pytest.raises(NotMeasured):
        _ = made.without("running").of("service", "chat").running


def test_evidence_of_a_name_that_is_no_series_is_refused() -> None:
    with pytest.raises(ValueError, match="not a series: runing"):
        evidence(runing=2)
