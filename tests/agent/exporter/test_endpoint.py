import logging
import urllib.request

import pytest

from pertoken.agent.exporter import TickTotals, endpoint_of, pusher_of
from pertoken.config import Settings
from tests.agent.exporter.test_totals import EPOCHS, tick
from tests.reports.receivers import receiver


def test_the_endpoint_shows_what_ticks_counted() -> None:
    totals = TickTotals()
    totals.add(tick(60), EPOCHS)
    server = endpoint_of(Settings(agent_metrics_listen=("127.0.0.1", 0)), totals)
    assert server is not None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as reply:
            assert b"pertoken_generated_tokens_total" in reply.read()
    finally:
        server.stop()


def test_without_an_address_there_is_none_and_a_taken_port_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert endpoint_of(Settings(), TickTotals()) is None
    first = endpoint_of(Settings(agent_metrics_listen=("127.0.0.1", 0)), TickTotals())
    assert first is not None
    try:
        with caplog.at_level(logging.ERROR):
            assert endpoint_of(Settings(agent_metrics_listen=("127.0.0.1", first.port)), TickTotals()) is None
        assert "no metrics endpoint" in caplog.text
    finally:
        first.stop()


def test_metrics_are_pushed_to_the_collector_that_is_set() -> None:
    totals = TickTotals()
    with receiver() as collector:
        collector.statuses += [200]
        pusher = pusher_of(Settings(agent_otlp_endpoint=f"{collector.url}/v1/metrics"), totals)
        assert pusher is not None
        totals.add(tick(60), EPOCHS)
        pusher.push()
        pusher.end()
    ((_, _, body),) = collector.posts
    assert b"hw.energy" in body and b"pertoken.generated_tokens" in body
    assert pusher_of(Settings(), totals) is None
