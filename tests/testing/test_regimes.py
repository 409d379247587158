import math

import pytest

from pertoken.metrics import SERIES
from pertoken.testing import Regime, regimes

NAMES = (
    "idle", "bandwidth-bound", "compute-bound", "kv-bound", "prefill-heavy", "saturated", "moe", "multi-tenant",
    "cpu", "spot", "committed", "owned", "owned-decode", "owned-prefill", "uncached", "drafting", "drafting-saturated",
    "one-at-a-time", "stuck", "asleep", "twins", "nights", "many-ranks", "interfering", "unbounded", "overcommitted",
    "steady", "upgraded-dearer", "upgraded-other-load", "upgraded-one", "unmaintained", "embedding",
)  # fmt: skip


def test_the_typical_situations_are_known_by_name() -> None:
    assert tuple(regimes()) == NAMES
    assert all(regime.name == name and regime.meaning for name, regime in regimes().items())


@pytest.mark.parametrize("regime", regimes().values(), ids=NAMES)
def test_the_figures_of_a_regime_hang_together(regime: Regime) -> None:
    for deployment in regime.fleet.deployments:
        seen = dict(regime.of("deployment", deployment.deployment_id).items())
        for name, known in seen.items():
            assert 0 <= known.p50 <= known.max and known.mean <= known.max and known.p95 <= known.max, name
        for name in ("busy", "kv_use", "dram_active", "tensor_active", "device_util", "cached_share"):
            assert name not in seen or seen[name].max <= 1, name
        # Requests in flight are arrivals times the time each takes (Little's law); those that do not run wait.
        if "e2e_s" in seen:
            in_flight = seen["requests_s"].mean * seen["e2e_s"].mean
            running = seen["running"].mean * seen["busy"].mean
            assert math.isclose(
                in_flight, running + (seen["waiting"].mean if regime.name == "saturated" else 0), rel_tol=0.1
            )
        if "generated_len" in seen:
            assert math.isclose(seen["generated_tok_s"].mean, seen["requests_s"].mean * seen["generated_len"].mean)
        else:
            assert seen["requests_s"].mean == 0 == seen["generated_tok_s"].mean, "lengths are of requests that ended"
        if "running" in seen:
            assert seen["running"].mean >= 1, "while busy at least one request runs"
            assert deployment.max_num_seqs is None or seen["running"].p95 <= deployment.max_num_seqs
        model = deployment.model.params_active
        if deployment.accelerator is not None and model is not None and "tensor_active" in seen:
            device = regime.market.accelerator(deployment.accelerator)
            assert device is not None
            peak = (device.peak_flops(deployment.weight_dtype or "bf16") or 0) * len(deployment.device_ids)
            tokens = seen["computed_tok_s"].mean + seen["generated_tok_s"].mean
            assert 2 * model * tokens <= seen["tensor_active"].mean * peak * 1.3, "products that the device cannot do"


def test_regimes_differ_in_purchase_and_in_measured_series() -> None:
    purchases = {
        name: {one.placement.purchase for one in regime.fleet.deployments} for name, regime in regimes().items()
    }
    assert (purchases["spot"], purchases["owned"], purchases["committed"]) == ({"spot"}, {"owned"}, {"reserved"})
    assert regimes()["committed"].fleet.commitments
    cpu = dict(regimes()["cpu"].of("deployment", 1).items())
    assert not {"kv_use", "tpot_s", "dram_active"} & set(cpu)
    assert [len(service.demand.tenants) for service in regimes()["multi-tenant"].fleet.services] == [1, 1]


def test_every_series_of_an_ordinary_host_is_measured_in_some_regime() -> None:
    rare = {"mfu", "mbu", "spec_acceptance_rate", "spec_acceptance_length", "asleep", "nvlink_bytes_s"} | {
        "media_per_request",
        "media_hit_rate",
    }
    known = {name for regime in regimes().values() for one in regime.measured.values() for name, _ in one.items()}
    assert set(SERIES) - known <= rare


@pytest.mark.parametrize("regime", regimes().values(), ids=regimes())
def test_waiting_energy_and_ends_of_requests_hang_together(regime: Regime) -> None:
    for service in regime.fleet.services:
        seen = regime.of("deployment", service.deployments[0].deployment_id)
        if not seen.has("requests_s") or not seen.requests_s.mean:
            continue
        if seen.has("queue_s"):
            assert seen.queue_s.mean <= seen.ttft_s.mean
            assert seen.queue_s.mean * seen.requests_s.mean <= seen.waiting.mean * 1.001
            ends = (seen.ended_by_stop.mean, seen.ended_by_length.mean, seen.ended_by_abort.mean)
            assert math.isclose(sum(ends), 1)
            assert seen.max_tokens.mean >= seen.generated_len.max
            limit = service.deployments[0].max_num_batched_tokens
            assert limit is None or seen.step_tokens.max <= limit
        if seen.has("energy_w"):
            tokens_s = seen.prompt_tok_s.mean + seen.generated_tok_s.mean
            assert math.isclose(seen.j_per_token.mean * tokens_s, seen.energy_w.mean, rel_tol=0.01)
