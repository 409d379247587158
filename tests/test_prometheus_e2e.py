"""Import from Debian's Prometheus that scraped live: a pair of servers, relabelling, restarts of servers and engine.

`PERTOKEN_E2E_PROMETHEUS=1` runs it: three minutes. Two servers scrape one page each second and write to a third one, as
a pair with a common store does.
"""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket

import pytest
from sqlalchemy import func, select

from pertoken.agent.history.prometheus import PrometheusApi
from pertoken.agent.history.run import import_prometheus
from pertoken.agent.history.series import SeriesSource
from pertoken.agent.scrape import RequestLimits
from pertoken.migrations import upgrade
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.write.retention import Ages
from tests.agent.servers import answering, http
from tests.llama import free_port
from tests.promtool import PROMETHEUS, Prometheus
from tests.recorded import until

pytestmark = [
    pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus (Debian: prometheus)"),
    pytest.mark.skipif(
        os.environ.get("PERTOKEN_E2E_PROMETHEUS") != "1", reason="PERTOKEN_E2E_PROMETHEUS=1 runs it, for three minutes"
    ),
]
COUNTERS = {"prompt_tokens": "prompt_tokens_total", "generated_tokens": "generation_tokens_total"}
SETTLE_S = 5.0
"""Time in which both servers scrape, and write to the third one."""


@dataclass
class Engine:
    """Page of an engine whose counters are known."""

    started_s: float = field(default_factory=lambda: time.time() - 600)
    life: Counter[str] = field(default_factory=lambda: Counter(prompt_tokens=90_000, generated_tokens=7_000))
    """Tokens since its start."""
    served: Counter[str] = field(default_factory=Counter)
    """Tokens since the test began."""

    def serve(self) -> None:
        """Count one request."""
        tokens = Counter(prompt_tokens=211, generated_tokens=17)
        self.life, self.served = self.life + tokens, self.served + tokens

    def restart(self) -> None:
        """Begin at nothing."""
        self.started_s, self.life = time.time(), Counter(prompt_tokens=0, generated_tokens=0)

    def answer(self, connection: socket, path: str) -> None:
        """Send the page."""
        lines = [f"process_start_time_seconds {self.started_s}"]
        lines += [f'vllm:{name}{{model_name="chat",engine="0"}} {self.life[own]}' for own, name in COUNTERS.items()]
        connection.sendall(http("\n".join([*lines, ""]).encode(), "Connection: close"))


def _scraping(address: str, store_port: int, replica: str, **labels: str) -> str:
    """Return the settings of one of a pair: an address and names that relabelling changes."""
    constant = {"instance": "10.0.0.5:8000", **labels}
    job = {
        "job_name": "vllm",
        "static_configs": [{"targets": [address]}],
        "relabel_configs": [{"target_label": name, "replacement": value} for name, value in constant.items()],
        "metric_relabel_configs": [
            {"source_labels": ["__name__"], "regex": "vllm:(.+)", "target_label": "__name__", "replacement": "vllm_$1"}
        ],
    }
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "external_labels": {"prometheus_replica": replica}},
        "scrape_configs": [job],
        "remote_write": [{"url": f"http://127.0.0.1:{store_port}/api/v1/write"}],
    }
    return json.dumps(settings)


@contextmanager
def _server(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server on what its folder holds; ended afterwards."""
    files = (f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}")
    with (folder / "log").open("ab") as log:
        command = [str(PROMETHEUS), *files, f"--web.listen-address=127.0.0.1:{port}", *options]
        process = subprocess.Popen(command, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def test_an_import_is_exact_of_a_pair_that_scraped_live_under_relabelling_and_restarts(tmp_path: Path) -> None:
    engine, store_port, folders = Engine(), free_port(), {name: tmp_path / name for name in ("store", "a", "b")}
    ports = {name: free_port() for name in ("a", "b")}
    for folder in folders.values():
        folder.mkdir()
    central = Prometheus(store_port)

    def stored(labels: str) -> bool:
        """Return whether the third server has the present counts under these labels."""
        names = COUNTERS.items()
        return all(central.values(f"vllm_{name}{{{labels}}}") == [engine.life[own]] for own, name in names)

    def serve_until(ts: float) -> None:
        """Serve requests until then, and wait until both servers have written the last one."""

        def served() -> bool:
            engine.serve()
            return time.time() >= ts

        until(served, "the traffic", 90)
        until(lambda: stored('prometheus_replica="a"') and stored('prometheus_replica="b"'), "the last request", 30)

    with ExitStack() as stack:
        address = stack.enter_context(answering(engine.answer)).removeprefix("http://")
        (folders["store"] / "prometheus.yml").write_text("{}")
        for name in ports:
            (folders[name] / "prometheus.yml").write_text(_scraping(address, store_port, name))
        stack.enter_context(_server(folders["store"], store_port, "--web.enable-remote-write-receiver"))
        first = stack.enter_context(_server(folders["a"], ports["a"]))
        with _server(folders["b"], ports["b"]):
            until(lambda: stored('prometheus_replica="a"') and stored('prometheus_replica="b"'), "both servers", 60)
            start = int(time.time()) // 60 * 60 + 60
            until(lambda: time.time() >= start + SETTLE_S, "the minute", 90)
            serve_until(start + 15)
            (folders["a"] / "prometheus.yml").write_text(_scraping(address, store_port, "a", team="search"))
            first.send_signal(signal.SIGHUP)
            until(lambda: stored('prometheus_replica="a",team="search"'), "the label that was added", 30)
            serve_until(start + 45)
            assert time.time() < start + 60 - SETTLE_S, "this machine is too slow to hold to minutes"
            until(lambda: time.time() >= start + 60 + SETTLE_S, "the next minute", 60)
            engine.restart()
            serve_until(start + 80)
        engine.serve()  # one server sees it at first
        with _server(folders["b"], ports["b"]):
            serve_until(start + 105)
            assert time.time() < start + 120 - SETTLE_S, "this machine is too slow to hold to minutes"
            until(lambda: time.time() >= start + 120 + SETTLE_S, "the last minute", 60)
            place = StoreLocation(tmp_path / "db")
            upgrade(place, "telemetry")
            store = open_store(place)
            source = SeriesSource(PrometheusApi(f"http://127.0.0.1:{store_port}", RequestLimits(timeout_s=20)))
            ages = Ages(raw_s=48 * 3600, minutes_s=30 * 86_400, hours_s=730 * 86_400)
            import_prometheus(source, store, place, start, start + 120, ages, lambda _: None)
    assert min(engine.served.values()) > 0
    table = t.deployment_rollup[60]
    with store.read() as connection:
        sums = connection.execute(select(*(func.sum(table.c[name]).label(name) for name in COUNTERS))).one()
        deployments = connection.execute(select(func.count()).select_from(t.deployment)).scalar_one()
    assert (dict(sums._mapping), deployments) == (dict(engine.served), 1)
