"""A scripted engine as a process: run through a link named `vllm` or `llama-server`, which gives its kind.

`ADVERSARY_ENGINE` names a folder: `behaviour` there (see `behaviour.Behaviour`) is followed as it changes; `truth` is
written ahead of every page, so that no page shows what it does not hold: tokens by model. The process ends with its
standard input.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.adversary.behaviour import Behaviour, Served

STEP_S = 0.05
CACHED = 0.25
"""Part of the prompt tokens that is cached."""
FAR = 5 * 10**17
"""More than any server ever served, and less than a page's number may be."""
BOOT_S = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Engine:
    """Counts what it serves, in steps of `STEP_S`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._folder = kind, folder
        self.start_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.behaviour = Behaviour("")
        self._changed_ns = 0
        self._by_model: dict[str, Served] = {}
        self._due = [0.0, 0.0, 0.0]
        """Parts of prompt, cached and generated tokens that are not whole yet."""
        self.counted = Served()
        """By the process, whatever the model."""
        self.pages = 0
        self.read()

    def read(self) -> None:
        """Follow the behaviour if it changed."""
        file = self._folder / "behaviour"
        changed_ns = file.stat().st_mtime_ns
        if changed_ns != self._changed_ns:
            self.behaviour, self._changed_ns = Behaviour.from_json(file.read_text()), changed_ns
            self._keep()

    def step(self, seconds: float) -> None:
        """Serve for so long. The truth is written first."""
        self.read()
        now = self.behaviour
        rates = now.prompt_tok_s, now.prompt_tok_s * CACHED, now.generated_tok_s
        due = [before + rate * seconds for before, rate in zip(self._due, rates, strict=True)]
        prompt, cached, generated = (int(tokens) for tokens in due)
        cached = min(cached, prompt)
        self._due = [due[0] - prompt, due[1] - cached, due[2] - generated]
        if not prompt and not generated and not now.busy:
            return
        more = Served(prompt, cached, generated, now.busy * seconds)
        self._by_model[now.model] = self._by_model.get(now.model, Served()) + more
        self._keep()
        self.counted = self.counted + more

    def _keep(self) -> None:
        self._by_model.setdefault(self.behaviour.model, Served())
        new = self._folder / f"truth.{os.getpid()}.new"
        new.write_text(json.dumps({model: asdict(served) for model, served in self._by_model.items()}))
        new.replace(self._folder / f"truth.{os.getpid()}")

    def page(self) -> bytes:
        """Return its metrics page, lies included."""
        self.pages += 1
        lie, odd = self.behaviour.lie, self.pages % 2
        lines = list(self._lines())
        if lie == "missing":
            lines = [line for line in lines if "generation_tokens" not in line and "tokens_predicted_total" not in line]
        if lie == "twice":
            lines += [
                f"{line.rpartition(' ')[0]} 7" for line in lines if "_tokens" in line and not line.startswith("#")
            ]
        if lie == "large":
            lines += [f"# {'x' * 100_000}"] * 100
        body = "\n".join([*lines, ""]).encode()
        return body[: len(body) // 2 - odd] if lie == "cut" else body

    def _shown(self, value: int) -> str:
        # Two pages alike: a page on which a counter fell is read again, and shows the same.
        lie, odd = self.behaviour.lie, self.pages // 2 % 2
        if lie in ("nan", "overflow"):
            return {"nan": "NaN", "overflow": "1e400"}[lie]
        changed = {
            "one_less": max(0, value - odd),
            "half": value // 2,
            "far": value + FAR,
            "alternating": 10**18 * odd,
            "beyond_int64": 2**63,
        }
        return str(changed.get(lie, value))

    def _lines(self) -> Iterator[str]:
        now, counted = self.behaviour, self.counted
        running = int(now.generated_tok_s > 0)
        if self.kind == "vllm":
            labels = f'{{engine="0",model_name="{now.model}"}}'
            for name, value in (
                ("prompt_tokens", counted.prompt),
                ("prompt_tokens_cached", counted.cached),
                ("generation_tokens", counted.generated),
            ):
                yield f"# TYPE vllm:{name}_total counter"
                yield f"vllm:{name}_total{labels} {self._shown(value)}"
            yield f"vllm:num_requests_running{labels} {running}"
            yield f"vllm:num_requests_waiting{labels} 0"
            yield f"process_start_time_seconds {BOOT_S + self.start_s:.2f}"
            return
        for name, value in (
            ("prompt_tokens_total", counted.prompt - counted.cached),
            ("prompt_tokens_cached_total", counted.cached),
            ("tokens_predicted_total", counted.generated),
        ):
            yield f"# TYPE llamacpp:{name} counter"
            yield f"llamacpp:{name} {self._shown(value)}"
        yield "llamacpp:prompt_seconds_total 0"
        yield f"llamacpp:tokens_predicted_seconds_total {counted.busy_s:.5f}"
        yield f"llamacpp:requests_processing {running}"

    def models(self) -> bytes:
        """Return what it answers at /v1/models."""
        owner = {"vllm": "vllm", "llama-server": "llamacpp"}[self.kind]
        return json.dumps({"data": [{"id": self.behaviour.model, "owned_by": owner}]}).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers as the engine would."""

    engine: Engine

    def do_GET(self) -> None:
        time.sleep(self.engine.behaviour.delay_s)
        paths = {"/metrics": self.engine.page, "/v1/models": self.engine.models}
        body = paths[self.path]() if self.path in paths else None
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("Content-Type", "text/plain" if self.path == "/metrics" else "application/json")
        if self.engine.kind == "llama-server":
            self.send_header("Process-Start-Time-Unix", str(round(self.engine.start_s * 1e6)))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """On an address and a port, which others may share."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler, bind_and_activate=False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int("ADVERSARY_SHARED" in os.environ))
        self.server_bind()
        self.server_activate()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may leave."""


def main() -> None:
    arguments = sys.argv
    host, port = arguments[arguments.index("--host") + 1], int(arguments[arguments.index("--port") + 1])
    Handler.engine = engine = Engine(Path(arguments[0]).name, Path(os.environ["ADVERSARY_ENGINE"]))
    server = Server(host, port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=_end_with_input, daemon=True).start()
    before_s = time.monotonic()
    while True:
        time.sleep(STEP_S)
        now_s = time.monotonic()
        # A process that was stopped served nothing meanwhile.
        engine.step(min(now_s - before_s, 4 * STEP_S))
        before_s = now_s


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
