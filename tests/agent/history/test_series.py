"""Assignment of series to engines, devices and hosts."""

from collections.abc import Mapping

import pytest

from pertoken.agent.history.prometheus import PrometheusApi, RangeSteps
from pertoken.agent.history.series import Chunk, SeriesSource, found_names, read_chunk, wanted_names
from pertoken.agent.scrape import RequestLimits
from tests.agent.history.api_server import Value, labels, serving

STEPS = RangeSteps(3600, 3, 60)
TOKENS = "vllm:generation_tokens_total"
UTIL, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
Series = Mapping[tuple[tuple[str, str], ...], Value]


def chunk(series: Series, host_label: str | None = None) -> Chunk:
    with serving(series) as url:
        return read_chunk(SeriesSource(PrometheusApi(url, RequestLimits()), "", host_label), STEPS, ())


def test_engines_are_distinguished_by_address_and_one_scraped_by_two_jobs_counts_once() -> None:
    chunk_read = chunk(
        {
            labels(TOKENS, job="a", instance="10.0.0.5:8000", model_name="m"): lambda ts: 1,
            labels(TOKENS, job="b", instance="10.0.0.5:8000", model_name="m"): lambda ts: 1,
            labels(TOKENS, job="a", instance="10.0.0.5:8001", model_name="m"): lambda ts: 2,
        }
    )
    assert [engine.address for engine in chunk_read.engines] == ["10.0.0.5:8000", "10.0.0.5:8001"]
    page = chunk_read.engines[0].page(0)
    assert page is not None
    assert page.samples == {TOKENS: {(("model_name", "m"),): 1.0}}


def test_hosts_are_named_by_the_exporter_by_a_node_label_or_by_the_address() -> None:
    chunk_read = chunk(
        {
            labels(UTIL, UUID="GPU-1", Hostname="gpu-1", instance="10.0.0.5:9400"): lambda ts: 1,
            labels(TOKENS, instance="10.0.0.5:8000", model_name="m"): lambda ts: 1,
            labels(TOKENS, instance="10.1.7.7:8000", model_name="m", node="gpu-2"): lambda ts: 1,
            labels(TOKENS, instance="[fd00::1]:8000", model_name="m"): lambda ts: 1,
        }
    )
    assert {engine.address: engine.host for engine in chunk_read.engines} == {
        "10.0.0.5:8000": "gpu-1",
        "10.1.7.7:8000": "gpu-2",
        "[fd00::1]:8000": "fd00::1",
    }
    named = chunk({labels(TOKENS, instance="a:1", model_name="m", rack="r7"): lambda ts: 1}, "rack")
    assert [engine.host for engine in named.engines] == ["r7"]


def test_only_card_wide_values_of_a_mig_instance_are_read() -> None:
    card = {"UUID": "GPU-1", "Hostname": "h", "GPU_I_PROFILE": "1g.10gb"}
    chunk_read = chunk(
        {
            labels(UTIL, **card, GPU_I_ID="3"): lambda ts: 50,
            labels(POWER, **card, GPU_I_ID="3"): lambda ts: 400,
            labels(POWER, **card, GPU_I_ID="4"): lambda ts: 400,
        }
    )
    (device,) = chunk_read.devices
    assert device.has_instances
    assert device.values == {"power_mw": [400_000] * 3}


def test_a_device_that_two_exporters_have_is_read_of_the_better_one() -> None:
    chunk_read = chunk(
        {
            labels(POWER, UUID="GPU-7", Hostname="h"): lambda ts: 100,
            labels("nvidia_smi_power_draw_watts", uuid="7", instance="h:9835"): lambda ts: 90,
            labels("nvidia_smi_power_draw_watts", uuid="8", instance="h:9835"): lambda ts: 80,
            labels("nvidia_smi_gpu_info", uuid="8", instance="h:9835", name="NVIDIA L40S"): lambda ts: 1,
        }
    )
    assert {device.uuid: (device.exporter, device.values["power_mw"][0]) for device in chunk_read.devices} == {
        "GPU-7": ("dcgm-exporter", 100_000),
        "GPU-8": ("nvidia_gpu_exporter", 80_000),
    }
    assert chunk_read.devices[1].name == "NVIDIA L40S"


def test_blank_values_of_dcgm_are_no_values() -> None:
    chunk_read = chunk({labels(POWER, UUID="GPU-1", Hostname="h"): lambda ts: 9_223_372_036_854_775_794})
    assert chunk_read.devices[0].values == {"power_mw": [None] * 3}


def test_histograms_are_read_now_and_then_and_where_an_engine_appears() -> None:
    target = {"instance": "h:1", "model_name": "m"}
    chunk_read = chunk(
        {
            labels(TOKENS, **target): lambda ts: 1 if ts >= 3660 else None,
            labels("vllm:e2e_request_latency_seconds_bucket", **target, le="+Inf"): lambda ts: 4,
        }
    )
    assert sorted(chunk_read.engines[0].buckets) == [0, 1]


def test_an_engine_is_on_the_host_of_the_gpu_that_names_its_pod() -> None:
    exporter = {"UUID": "GPU-1", "Hostname": "gpu-node-1", "pod": "dcgm-exporter-abcde", "namespace": "gpu"}
    target = {"instance": "10.2.3.4:8000", "model_name": "m", "pod": "llama-0", "namespace": "prod"}
    chunk_read = chunk(
        {
            labels(UTIL, **exporter, exported_pod="llama-0", exported_namespace="prod", instance="10.2.3.9:9400"): one,
            labels(TOKENS, **target): one,
            labels(TOKENS, **{**target, "namespace": "dev", "instance": "10.2.3.5:8000"}): one,
        }
    )
    assert {engine.address: engine.host for engine in chunk_read.engines} == {
        "10.2.3.4:8000": "gpu-node-1",
        "10.2.3.5:8000": "10.2.3.5",
    }
    assert {engine.owner["workload"] for engine in chunk_read.engines} == {"? prod/?", "? dev/?"}


def test_the_exporter_s_own_pod_is_no_host_name() -> None:
    exporter = {"UUID": "GPU-1", "instance": "10.2.3.9:9400", "exported_pod": "llama-0"}
    target = {"instance": "10.2.3.4:8000", "model_name": "m", "pod": "llama-0"}
    for own in ({"Hostname": "nvidia-dcgm-exporter-x7k2p"}, {"Hostname": "exporter-0", "pod": "exporter-0"}):
        by_engine = chunk({labels(UTIL, **exporter, **own): one, labels(TOKENS, **target, node="gpu-7"): one})
        assert [device.host for device in by_engine.devices] == ["gpu-7"]
        by_node = chunk({labels(UTIL, **exporter, **own, node="gpu-8"): one})
        assert [device.host for device in by_node.devices] == ["gpu-8"]


def test_engines_on_localhost_of_two_hosts_are_two() -> None:
    target = {"instance": "localhost:8000", "model_name": "m"}
    for name in ("node", "host"):
        chunk_read = chunk({labels(TOKENS, **target, **{name: host}): one for host in ("gpu-1", "gpu-2")})
        assert [(engine.host, engine.address) for engine in chunk_read.engines] == [
            ("gpu-1", "localhost:8000"),
            ("gpu-2", "localhost:8000"),
        ]


@pytest.mark.parametrize("prefix", ["", "kserve_", "ray_", "our_own_"])
@pytest.mark.parametrize("colon", [":", "_"])
def test_engines_are_read_under_names_that_a_rule_changed(prefix: str, colon: str) -> None:
    renamed = prefix + TOKENS.replace(":", colon)
    chunk_read = chunk({labels(renamed, instance="h:1", model_name="m"): one})
    (engine,) = chunk_read.engines
    assert [(name, row) for name, row, _ in engine.rows] == [(TOKENS, (("model_name", "m"),))]


def test_an_engine_under_its_own_and_under_a_changed_name_counts_once() -> None:
    target = {"instance": "h:1", "model_name": "m"}
    chunk_read = chunk({labels(TOKENS, **target): one, labels(f"kserve_{TOKENS}", **target): one})
    (engine,) = chunk_read.engines
    assert len(engine.rows) == 1


def test_names_that_count_tokens_are_found_under_any_name() -> None:
    with serving({labels("our_llm_tokens_total"): one, labels(UTIL): one}) as url:
        assert found_names(SeriesSource(PrometheusApi(url, RequestLimits())), STEPS) == ["our_llm_tokens_total"]
    assert TOKENS in wanted_names()


def one(ts: int) -> float:
    return 1
