"""Power of a server at its plug: each kind of source, their order, and why one gives none."""

import json
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from pertoken.access import Access
from pertoken.agent.host.plug import MAX_AGE_S, PlugWatch, plug_watch, read_plug
from pertoken.agent.readings import PlugReading, Unavailable
from pertoken.agent.scrape import RequestLimits
from pertoken.config import Settings
from pertoken.settings.fleet import PlugSource
from tests.agent.servers import Answer, answering, http, pages
from tests.recorded import until

IPMITOOL = """
    Instantaneous power reading:                   {watts} Watts
    Minimum during sampling period:                  2 Watts
    Maximum during sampling period:               6900 Watts
    Average power reading over sample period:     5510 Watts
    IPMI timestamp:                           Sat Nov 28 18:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {state}
"""


def program(folder: Path, output: str, status: int = 0) -> None:
    path = folder / "ipmitool"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n")
    path.chmod(0o755)


def always(body: bytes) -> Answer:
    return lambda connection, path: connection.sendall(http(body))


def reason(source: PlugSource, host: str = "gpu-1") -> str:
    missing = read_plug(source, host, RequestLimits())
    assert isinstance(missing, Unavailable) and missing.status == "failing"
    return missing.reason


def instant(*values: object) -> bytes:
    result = [{"metric": {"outlet": str(n)}, "value": [1795374298.16, value]} for n, value in enumerate(values)]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_ipmi_gives_the_instantaneous_reading_while_the_bmc_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, IPMITOOL.format(watts=5590, state="activated"))
    assert read_plug(PlugSource("ipmi"), "gpu-1", RequestLimits()) == PlugReading(5_590_000, "ipmi")
    program(tmp_path, IPMITOOL.format(watts=5590, state="deactivated"))
    assert "deactivated" in reason(PlugSource("ipmi"))
    program(tmp_path, "Could not open device at /dev/ipmi0: Permission denied", status=1)
    assert "Permission denied" in reason(PlugSource("ipmi"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "not on PATH" in reason(PlugSource("ipmi"))


@pytest.mark.parametrize(
    "resource",
    [
        {"PowerControl": [{"MemberId": "0", "PowerConsumedWatts": 5590}, {"PowerConsumedWatts": 90}]},
        {"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "PowerWatts": {"Reading": 5590.0}},
    ],
    ids=["Power", "EnvironmentMetrics"],
)
def test_redfish_gives_the_power_of_a_chassis_or_of_an_outlet(resource: Mapping[str, object]) -> None:
    with answering(pages({"/redfish/v1/Chassis/1/Power": json.dumps(resource).encode()})) as url:
        source = PlugSource("redfish", f"{url}/redfish/v1/Chassis/1/Power")
        assert read_plug(source, "gpu-1", RequestLimits()) == PlugReading(5_590_000, "redfish")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"PowerControl": []}', "neither PowerControl"),
        (b'{"PowerControl": [{"PowerConsumedWatts": null}]}', "neither PowerControl"),
        (b'{"PowerControl": [7], "PowerWatts": []}', "neither PowerControl"),
        (b'{"PowerWatts": {"Reading": true}}', "neither PowerControl"),
        (b'{"PowerWatts": {"Reading": 0}}', "no running server draws"),
        (b'{"PowerWatts": {"Reading": 1e12}}', "no running server draws"),
        (b'{"PowerWatts": {"Reading": NaN}}', "no running server draws"),
        (b'{"PowerWatts": {"Reading": 1' + 400 * b"0" + b"}}", "no running server draws"),
        (b"[]", "no JSON object"),
        (b"[" * 200_000, "no JSON object"),
        (b"\xff", "no JSON object"),
        (b"<html>", "no JSON object"),
    ],
)
def test_a_resource_without_a_plausible_power_gives_none_with_the_reason(body: bytes, why: str) -> None:
    with answering(pages({"/outlet": body})) as url:
        assert why in reason(PlugSource("redfish", f"{url}/outlet"))


def test_prometheus_gives_the_one_series_of_a_query_of_this_host() -> None:
    asked: list[str] = []
    with answering(always(instant("742.5")), asked=asked) as url:
        source = PlugSource("prometheus", url, 'sum(pdu_watts{server="$host"})')
        assert read_plug(source, "gpu-1", RequestLimits()) == PlugReading(742_500, "prometheus")
    assert asked[0].startswith("GET /api/v1/query?query=sum%28pdu_watts%7Bserver%3D%22gpu-1%22%7D%29 ")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (instant(), "gives no series"),
        (instant("1", "2"), "gives 2 series"),
        (instant("abc"), "gives no number"),
        (instant("NaN"), "no running server draws"),
        (b'{"data": {"result": [{"value": []}]}}', "gives no number"),
        (b'{"data": {"result": [7]}}', "gives no number"),
        (b'{"data": {"result": 7}}', "gives no series"),
        (b'{"data": {"result": "742.5"}}', "gives no series"),
        (b'{"data": {"result": {"a": 1}}}', "gives no series"),
        (b'{"data": 7}', "gives no series"),
    ],
)
def test_a_query_without_one_number_gives_none_with_the_reason(body: bytes, why: str) -> None:
    with answering(always(body)) as url:
        assert why in reason(PlugSource("prometheus", url, "up"))


def test_the_first_source_that_answers_counts_and_those_that_do_not_are_reported() -> None:
    replies = {"/first": b'{"PowerWatts": {"Reading": 500}}', "/second": b'{"PowerWatts": {"Reading": 600}}'}
    with answering(pages(replies)) as url:
        sources = [PlugSource("redfish", f"{url}/{name}") for name in ("none", "first", "second", "also-none")]
        watch = PlugWatch(sources, "gpu-1", RequestLimits())
        watch.start_read()
        first = PlugReading(500_000, "redfish")
        until(lambda: watch.newest == first and len(watch.unavailable) == 2, "all sources", 10)
        del replies["/first"]
        watch.start_read()
        until(lambda: len(watch.unavailable) == 3, "the source that fails now", 10)
        until(lambda: watch.newest == PlugReading(600_000, "redfish"), "the next one", 10)
    watch.close()
    assert [missing.metric.rpartition("/")[2] for missing in watch.unavailable] == ["none", "first", "also-none"]


def test_a_source_that_never_answers_delays_no_other_and_is_not_asked_twice_at_once() -> None:
    ended, asked, answered = threading.Event(), list[str](), list[str]()

    def hang(connection: socket.socket, path: str) -> None:
        ended.wait(60)

    with (
        answering(hang, asked=asked) as dead,
        answering(always(b'{"PowerWatts": {"Reading": 500}}'), asked=answered) as alive,
    ):
        sources = [PlugSource("redfish", f"{dead}/bmc"), PlugSource("redfish", f"{alive}/outlet")]
        watch = PlugWatch(sources, "gpu-1", RequestLimits(timeout_s=60))
        watch.start_read()
        until(lambda: watch.newest == PlugReading(500_000, "redfish") and asked, "a reading", 10)
        watch.start_read()
        until(lambda: len(answered) == 2, "the next reading", 10)
        watch.close()
        assert len(asked) == 1 and watch.unavailable == ()
        ended.set()


def test_a_bmc_gets_its_user_and_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("calvin\n")
    asked: list[str] = []
    with answering(always(b'{"PowerWatts": {"Reading": 700}}'), asked=asked) as url:
        access = Access(url, token_file=str(tmp_path / "password"), user="root")
        read_plug(PlugSource("redfish", f"{url}/outlet"), "gpu-1", RequestLimits(access=(access,)))
    assert "\r\nAuthorization: Basic cm9vdDpjYWx2aW4=\r\n" in asked[0]


def test_a_reading_stands_for_the_present_for_a_minute() -> None:
    clock_s = [0.0]
    with answering(always(instant("500"))) as url:
        watch = PlugWatch([PlugSource("prometheus", url, "q")], "gpu-1", RequestLimits(), lambda: clock_s[0])
        watch.start_read()
        until(lambda: watch.newest is not None, "a reading", 10)
    clock_s[0] = MAX_AGE_S
    assert watch.newest == PlugReading(500_000, "prometheus")
    clock_s[0] = MAX_AGE_S + 1
    assert watch.newest is None
    watch.start_read()  # the server is gone
    until(lambda: bool(watch.unavailable), "the reason", 10)
    watch.close()


def test_without_a_source_nothing_is_read() -> None:
    watch = plug_watch(Settings())
    watch.start_read()
    assert watch.newest is None and watch.unavailable == ()
