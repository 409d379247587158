"""A real Prometheus scrapes agent and advisor as whole processes: tokens of the clients, dollars of the screens."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.cli.screens.up import screen_source
from pertoken.config import Settings
from pertoken.store.connect.location import locate
from pertoken.text.amounts import amount
from pertoken.tui.app import PertokenApp
from tests.llama import ALIAS, LlamaServer, free_port, write_model
from tests.promtool import PROMETHEUS, scraping
from tests.recorded import agent_reading, totals, until
from tests.tui.screens import until_shown

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus (Debian: prometheus)")
SCRAPED_S = 60.0
TOKENS = ("generated_tokens", "prompt_tokens")


async def test_tokens_are_those_of_the_clients_and_dollars_those_of_the_screens(tmp_path: Path) -> None:
    folder, settings = tmp_path / "db", tmp_path / "pertoken.toml"
    ports = {"agent": free_port(), "advisor": free_port()}
    tables = (f'[{name}]\nmetrics_listen = "127.0.0.1:{port}"\n' for name, port in ports.items())
    settings.write_text("".join(tables).replace("[agent]", "[agent]\ndiscover = false"))
    with scraping(tmp_path, ports) as prometheus:
        with (
            LlamaServer(write_model(tmp_path / "tiny.gguf")) as server,
            agent_reading(server, folder, "--config", str(settings), "--engine", server.url),
        ):
            before = totals(folder, server)
            usages = [server.complete([10 + n for n in range(8 + i)], 12) for i in range(5)]
            counted = {name: sum(getattr(usage, name) for usage in usages) for name in TOKENS}
            for name, count in counted.items():
                series = f'pertoken_{name}_total{{model="{ALIAS}"}}'
                until(lambda of=series, n=count: prometheus.values(of) == [n], series, SCRAPED_S)  # type: ignore[misc]
            assert prometheus.values('up{job="agent"}') == [1]
            assert prometheus.values("pertoken_host_memory_used_bytes")
            stored = totals(folder, server)
        assert {name: stored[name] - before[name] for name in TOKENS} == counted
        pertoken("prices", "set", "1.5", "--for", "cpu", "--from", "ever", "--yes", "--db", str(folder))
        with _advisor(folder, settings):
            until(lambda: prometheus.values("pertoken_fleet_usd_per_mtok"), "the dollars in Prometheus", SCRAPED_S)
            (scraped,) = prometheus.values("pertoken_fleet_usd_per_mtok")
    fleet = json.loads(pertoken("top", "--json", "--screen", "fleet", "--db", str(folder)))["fleet"]
    assert scraped == fleet["nano_usd_per_mtok"] / 1e9 > 0
    app = PertokenApp(screen_source(locate(str(folder)), Settings(db=str(folder))), refresh_s=3600.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, amount(round(scraped * 1e9)))


def pertoken(*arguments: str) -> str:
    """Run a command as a process; return what it printed."""
    done = subprocess.run([sys.executable, "-m", "pertoken", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _advisor(folder: Path, settings: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "pertoken", "advise", "--every", "1h", "--db", str(folder)]
    with (folder / "advise.log").open("wb") as log:
        process = subprocess.Popen([*command, "--config", str(settings)], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)
