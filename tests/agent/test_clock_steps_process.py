"""A real agent process whose wall clock is set, beside a real server: what clients were served is stored once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.recorded import DEADLINE_S, incomplete, newest, totals, until

_AGENT = """
import sys, time
from pathlib import Path
offset, real = Path(sys.argv.pop(1)), time.time
time.time = lambda: real() + float(offset.read_text())
from pertoken.cli import main
main()
"""
"""`pertoken` by a wall clock that is off by the seconds a file holds."""
_SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        metrics = self.path == "/metrics"
        body = Path(sys.argv[1]).read_bytes() if metrics else b'{"data": [{"id": "tiny", "owned_by": "vllm"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
Path(sys.argv[2]).write_text(str(server.server_port))
server.serve_forever()
"""
COUNTS = {"prompt_tokens": 1000, "cached_tokens": 200, "generated_tokens": 500}
NAMES = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "cached_tokens": "vllm:prompt_tokens_cached_total",
    "generated_tokens": "vllm:generation_tokens_total",
}


class World:
    """A server, an agent and the wall clock it reads, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.db = folder, folder / "db"
        self.set_clock(0)
        self.serve({})

    def set_clock(self, off_s: float) -> None:
        self._write("offset", f"{off_s}")

    def serve(self, counts: dict[str, int]) -> None:
        self.counts = dict.fromkeys(NAMES, 0) | counts
        lines = [f'{name}{{model_name="tiny"}} {self.counts[word]}' for word, name in NAMES.items()]
        self._write("page", "\n".join(["vllm:num_requests_running 0", *lines, ""]))

    def _write(self, name: str, text: str) -> None:
        """At once: a reader never finds half of it."""
        (self.folder / f"{name}.new").write_text(text)
        (self.folder / f"{name}.new").rename(self.folder / name)

    @contextmanager
    def server(self) -> Iterator[Any]:
        port = self.folder / "port"
        port.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", _SERVER, self.folder / "page", port])
        try:
            until(lambda: port.exists() and port.read_text(), "the server")
            yield SimpleNamespace(port=int(port.read_text()))
        finally:
            process.kill()
            process.wait(DEADLINE_S)

    @contextmanager
    def agent(self, server: Any, ending: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """Run an agent past its first tick."""
        program = [sys.executable, "-c", _AGENT, str(self.folder / "offset"), "agent", "--db", str(self.db)]
        settings = {"PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_PROBES": "nvidia"}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*program, "--interval", "1s", "--engine", f"http://127.0.0.1:{server.port}"],
                stderr=log,
                env={**os.environ, **settings},
            )
            try:
                before = newest(self.db)
                until(lambda: process.poll() is not None or newest(self.db) > before, "the first tick")
                assert process.poll() is None, (self.folder / "log").read_text()
                yield
            finally:
                process.send_signal(ending)
                process.wait(DEADLINE_S)

    def until_stored(self, server: Any) -> None:
        self.until(server, self.counts)

    def until(self, server: Any, counts: dict[str, int]) -> None:
        until(lambda: self.stored(server) == counts, f"{counts} to be stored, not {self.stored(server)}")

    def stored(self, server: Any) -> dict[str, int]:
        return {word: count for word, count in totals(self.db, server).items() if word in NAMES}


@pytest.mark.parametrize(
    ("step_s", "ending"), [(1.0, signal.SIGTERM), (86_400.0, signal.SIGKILL), (-1.0, signal.SIGKILL)]
)
def test_idle_counters_are_not_counted_again_after_a_clock_step_and_two_restarts(
    tmp_path: Path, step_s: float, ending: signal.Signals
) -> None:
    world = World(tmp_path)
    with world.server() as server:
        with world.agent(server, ending):
            world.until_stored(server)
            world.serve(COUNTS)
            world.until_stored(server)
        world.set_clock(step_s)
        for n in range(2):
            with world.agent(server, ending):
                world.serve({**COUNTS, "generated_tokens": 500 + 100 * n})
                world.until_stored(server)
        with world.agent(server):
            pass
        assert world.stored(server) == world.counts
        assert incomplete(world.db, server) == 0
