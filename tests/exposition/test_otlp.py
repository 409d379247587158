from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from pertoken.exposition.otlp import exported, start_otlp
from pertoken.exposition.page import Family
from tests.reports.receivers import receiver

LABELS = {"host": "gpu-1", "device": "NVIDIA H100", "uuid": "GPU-1", "kind": "gpu"}
ENERGY = Family("pertoken_device_energy_joules_total", "counter", "Energy.", [(LABELS, 3300.0)])
TOKENS = Family("pertoken_generated_tokens_total", "counter", "Tokens.", [({"model": "llama"}, 50.0)])
PRICE = Family("pertoken_usd_per_mtok", "gauge", "Dollars.", [({"service": "chat"}, 2.5)])
FAMILIES = [ENERGY, TOKENS, PRICE]


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    found = InMemoryMetricReader()
    provider = start_otlp(None, FAMILIES, lambda: FAMILIES, found)
    yield found
    provider.shutdown()


def test_names_and_attributes_are_those_of_the_conventions(reader: InMemoryMetricReader) -> None:
    data: Any = reader.get_metrics_data()
    metrics = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    assert set(metrics) == {"hw.energy", "pertoken.generated_tokens", "pertoken.usd_per_mtok"}
    (energy,), (tokens,) = metrics["hw.energy"].data.data_points, metrics["pertoken.generated_tokens"].data.data_points
    assert (metrics["hw.energy"].unit, energy.value) == ("J", 3300.0)
    assert dict(energy.attributes) == {
        "host.name": "gpu-1",
        "hw.name": "NVIDIA H100",
        "hw.id": "GPU-1",
        "hw.type": "gpu",
    }
    assert dict(tokens.attributes) == {"gen_ai.request.model": "llama"} and tokens.value == 50.0


def test_a_metric_without_a_convention_keeps_its_own_name() -> None:
    assert exported(PRICE) == ("pertoken.usd_per_mtok", "1", [(2.5, {"service": "chat"})])


def test_metrics_reach_a_collector_over_http() -> None:
    with receiver() as collector:
        collector.statuses += [200] * 4
        provider = start_otlp(f"{collector.url}/v1/metrics", FAMILIES, lambda: FAMILIES)
        provider.force_flush()
        provider.shutdown()
    path, headers, body = collector.posts[0]
    types = {name.lower(): value for name, value in headers.items()}
    assert path == "/v1/metrics" and types["content-type"] == "application/x-protobuf"
    assert b"hw.energy" in body
