import multiprocessing
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from pertoken.exposition import Family, NotPushed, Pusher, exported, provider_of
from tests.reports.receivers import receiver
from tests.trickle import trickling

LABELS = {"host": "gpu-1", "device": "NVIDIA H100", "uuid": "GPU-1", "kind": "gpu"}
ENERGY = Family("pertoken_device_energy_joules_total", "counter", "Energy.", [(LABELS, 3300.0)])
TOKENS = Family("pertoken_generated_tokens_total", "counter", "Tokens.", [({"model": "llama"}, 50.0)])
PRICE = Family("pertoken_usd_per_mtok", "gauge", "Dollars.", [({"service": "chat"}, 2.5)])
FAMILIES = [ENERGY, TOKENS, PRICE]


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    metric_reader = InMemoryMetricReader()
    provider = provider_of(metric_reader, FAMILIES, lambda: FAMILIES)
    yield metric_reader
    provider.shutdown()


def test_names_and_attributes_are_those_of_the_conventions(reader: InMemoryMetricReader) -> None:
    data: Any = reader.get_metrics_data()
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
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
        collector.statuses += [200, 200]
        pusher = Pusher(f"{collector.url}/v1/metrics", FAMILIES, lambda: FAMILIES)
        pusher.push()
        pusher.end()
    ((path, headers, body),) = collector.posts
    types = {name.lower(): value for name, value in headers.items()}
    assert path == "/v1/metrics" and types["content-type"] == "application/x-protobuf"
    assert b"hw.energy" in body


def test_it_starts_no_thread_and_neither_does_a_fork() -> None:
    before = set(threading.enumerate())
    with receiver() as collector:
        beside = set(threading.enumerate()) - before
        pusher = Pusher(f"{collector.url}/v1/metrics", FAMILIES, lambda: FAMILIES)
        pusher.push()
        counts = multiprocessing.get_context("fork").SimpleQueue()
        child = multiprocessing.get_context("fork").Process(target=lambda: counts.put(threading.active_count()))
        child.start()
        child.join(60)
        assert counts.get() == 1
        pusher.end()
        # The collector answers each post in a thread that may still be ending.
        ours = {thread for thread in threading.enumerate() if "process_request" not in thread.name}
        assert ours <= before | beside


def test_a_collector_that_refuses_or_hangs_costs_a_bounded_time_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pertoken.exposition.PUSH_S", 0.5)
    with receiver() as collector:
        collector.statuses += [400]
        url = collector.url.replace("http://", "http://user:s3cret@")
        pusher = Pusher(f"{url}/v1/metrics?key=abc", FAMILIES, lambda: FAMILIES)
        with pytest.raises(NotPushed, match=r"^http://127.0.0.1:\d+/v1/metrics: did not take the metrics") as error:
            pusher.push()
        assert "s3cret" not in str(error.value) and "abc" not in str(error.value)
        pusher.end()


def test_a_collector_that_answers_byte_by_byte_costs_a_bounded_time_and_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pertoken.exposition.PUSH_S", 0.5)
    ended = threading.Event()

    def answer() -> None:
        client, _ = listening.accept()
        with client, trickling(client, b"HTTP/1.1 200 OK\r\nX: "):
            ended.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        pusher = Pusher(f"http://127.0.0.1:{listening.getsockname()[1]}/v1/metrics", FAMILIES, lambda: FAMILIES)
        try:
            for _ in range(2):
                with pytest.raises(NotPushed):
                    pusher.push()
            assert sum(running.name == "metrics push" for running in threading.enumerate()) == 1
        finally:
            ended.set()
            thread.join()
            pusher.end()
