"""A stand-in for a busy vLLM server: `python -m benchmarks.agent.engine_page`.

Prints its base URL and serves until its standard input ends. Its page is one captured under load; in every second
each counter and histogram bucket grows by what it grew by between the two pages captured before and after that load.
"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CAPTURES = Path(__file__).parents[2] / "tests" / "captures"


def growth() -> tuple[tuple[str, float, float], ...]:
    """Lines of the page: the text before the value, the value, and what it grows by in a second.

    A line that is a comment is text alone, with NaN as its value.
    """
    before, during, after = ((CAPTURES / f"vllm-0.32.0-metrics-{when}.prom").read_text() for when in _PAGES)
    counting = {line.split()[2] for line in during.splitlines() if line.startswith("# TYPE") and _counts(line)}
    first, last = _values(before), _values(after)
    lines = []
    for line in during.splitlines():
        if line.startswith("#"):
            lines.append((line, float("nan"), 0.0))
            continue
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        family = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        moves = bool({name, family} & counting) and series in first and series in last
        lines.append((series, float(value), last[series] - first[series] if moves else 0.0))
    return tuple(lines)


_PAGES = ("before", "during", "after")


def _counts(line: str) -> bool:
    return line.endswith((" counter", " histogram"))


def _values(page: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


class EnginePage(BaseHTTPRequestHandler):
    """Answers what the agent asks of a vLLM server."""

    lines = growth()
    started_s = time.monotonic()
    files = {  # noqa: RUF012
        "/v1/models": (CAPTURES / "vllm-0.32.0-v1-models.json").read_bytes(),
        "/version": (CAPTURES / "vllm-0.32.0-version.json").read_bytes(),
    }

    def do_GET(self) -> None:
        body = self._page() if self.path == "/metrics" else self.files.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("Content-Type", "text/plain" if self.path == "/metrics" else "application/json")
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _page(self) -> bytes:
        seconds = int(time.monotonic() - self.started_s)
        lines = (
            text if value != value else f"{text} {value + seconds * growth:.17g}" for text, value, growth in self.lines
        )
        return "\n".join([*lines, ""]).encode()


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), EnginePage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()
    server.shutdown()
    thread.join()


if __name__ == "__main__":
    main()
