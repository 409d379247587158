"""The servers of this host between two looks, with servers and a clock by script."""

import time
from threading import Barrier, Event

import pytest

from pertoken.agent.discovery import ASK_AGAIN_S, EndpointWatch
from pertoken.agent.host.processes import Address, HostProcesses, Process
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.scrape import RequestLimits

PORTS = (7001, 7002)


def test_a_port_that_lets_us_wait_holds_up_one_look_and_not_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, later_s, asked = RequestLimits(timeout_s=0.2), [0.0], list[str]()
    listening = tuple(Address("127.0.0.1", port) for port in PORTS)
    one = Process(20, 1, ("python", "app.py"), 5000, listening)
    maps = {20: frozenset({"/x/libllama.so"})}
    monkeypatch.setattr("pertoken.agent.discovery.host_processes", lambda: HostProcesses({20: one}, (), maps.get))

    def answers(url: str, limits: RequestLimits) -> None:
        asked.append(url)
        if url.endswith("7001"):
            Event().wait(limits.timeout_s)

    monkeypatch.setattr("pertoken.agent.discovery.answers", answers)
    watch = EndpointWatch((), True, limits, lambda: time.monotonic() + later_s[0])
    silent, quick = (f"http://127.0.0.1:{port}" for port in PORTS)
    for _ in range(3):
        watch.look()
    assert sorted(asked[:2]) == [silent, quick] and asked[2:] == [quick, quick]
    later_s[0] = ASK_AGAIN_S
    watch.look()
    watch.close()
    assert sorted(asked[4:]) == [silent, quick]


def test_ports_are_asked_at_the_same_time_and_what_need_not_be_asked_is_read_before_they_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve = Process(20, 1, ("vllm", "serve", "m", "--port", "8000"), 5000, (Address("127.0.0.1", 8000),))
    unknown = Process(21, 1, ("vllm", "serve", "m"), 5000, tuple(Address("127.0.0.1", 7001 + n) for n in range(5)))
    monkeypatch.setattr("pertoken.agent.discovery.host_processes", lambda: HostProcesses({20: serve, 21: unknown}))
    monkeypatch.setattr("pertoken.agent.discovery.start_ms", lambda pid: 5000)
    all_asked, published = Barrier(6), []

    def answers(url: str, limits: RequestLimits) -> str | None:
        all_asked.wait(10)  # passed only by five of them at once, and this test
        return "vllm" if url.endswith("7003") else None

    monkeypatch.setattr("pertoken.agent.discovery.answers", answers)
    watch = EndpointWatch((), True, RequestLimits())
    watch.start_look()
    deadline = time.monotonic() + 10
    while not watch.endpoints and time.monotonic() < deadline:
        time.sleep(0.01)
    published.append([endpoint.port for endpoint in watch.endpoints])
    all_asked.wait(10)
    watch.wait(10)
    published.append([endpoint.port for endpoint in watch.endpoints])
    watch.close()
    assert published == [[8000], [8000, 7003]]


def test_a_server_named_by_its_url_is_asked_what_it_is_until_it_can_be_read_and_when_it_can_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, asked, start_ms = "http://127.0.0.1:8000", [], [5000]
    fault: list[str | None] = [None]

    def detect(url: str, limits: RequestLimits, processes: object) -> Endpoint:
        asked.append(url)
        return Endpoint("vllm", url, "setting", 8000, pid=20, process_start_ms=start_ms[0])

    monkeypatch.setattr("pertoken.agent.discovery.detect", detect)
    monkeypatch.setattr("pertoken.agent.discovery.start_ms", lambda pid: start_ms[0])
    monkeypatch.setattr(
        "pertoken.agent.discovery.EngineReader.read",
        lambda reader, *, latencies: (
            EngineReading(reader.endpoint, fault=fault[0], histograms={} if latencies else None),
        ),
    )
    watch = EndpointWatch((url,), False, RequestLimits())

    def asked_by_a_look() -> int:
        before = len(asked)
        watch.look()
        watch.read()
        return len(asked) - before

    assert [asked_by_a_look() for _ in range(3)] == [1, 0, 0]
    start_ms[0] = 6000
    assert [asked_by_a_look() for _ in range(2)] == [1, 0]
    assert watch.endpoints[0].process_start_ms == 6000
    fault[0] = "it answers 404"
    assert [asked_by_a_look() for _ in range(3)] == [0, 1, 1]
    assert [watch.read(latencies=certain)[0].histograms for certain in (False, True)] == [None, {}]
    watch.close()


def test_a_server_found_by_its_process_after_it_was_named_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = Process(20, 1, ("vllm", "serve", "m", "--port", "8000"), 5000, (Address("127.0.0.1", 8000),))
    seen = [HostProcesses({}), HostProcesses({20: serve})]
    monkeypatch.setattr("pertoken.agent.discovery.host_processes", lambda: seen[0])
    monkeypatch.setattr("pertoken.agent.discovery.start_ms", lambda pid: 5000)
    named = Endpoint("vllm", "http://localhost:8000", "setting", 8000, pid=20, process_start_ms=5000)
    monkeypatch.setattr("pertoken.agent.discovery.detect", lambda url, limits, processes: named)
    watch = EndpointWatch((named.base_url,), True, RequestLimits())
    assert [reading.found_by for reading in watch.look()] == ["setting"]
    del seen[0]
    assert [reading.found_by for reading in watch.look()] == ["process"]
    watch.close()
