"""A stand-in for vLLM that answers with the pages captured from a real one: `engine.py serve MODEL --port N`.

It runs in the machine under the name `vllm`, with the standard library alone; its pages lie in /opt/engine.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGES = Path("/opt/engine")
STUCK = PAGES / "stuck"
"""While this file is there, requests run and no token comes."""
START_S = time.time()


class Handler(BaseHTTPRequestHandler):
    """Answers GET with a captured page; token counters go up by 100 a second."""

    def do_GET(self) -> None:
        """Send the page of the path."""
        page = PAGES / self.path.strip("/").replace("/", "-").replace("?", "-")
        if not page.is_file():
            self.send_error(404)
            return
        body = page.read_text()
        if self.path == "/metrics":
            body = "\n".join(_counted(line) for line in body.splitlines()) + "\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _counted(line: str) -> str:
    name, _, value = line.rpartition(" ")
    if name.startswith(("vllm:prompt_tokens_total", "vllm:generation_tokens_total")):
        end_s = STUCK.stat().st_mtime if STUCK.exists() else time.time()
        return f"{name} {float(value) + 100 * int(end_s - START_S)}"
    if name.startswith("vllm:num_requests_running") and STUCK.exists():
        return f"{name} 3.0"
    return line


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
