"""A proxy on loopback that keeps every metrics page that it forwarded: the pages that an agent read."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen

PASSED_ON = ("Content-Type", "Process-Start-Time-Unix")
PATH = "/recorded"
"""Under which it answers: an agent of another test that looks for servers finds none, and is not recorded."""


@dataclass
class RecordingProxy:
    """Hands on what an agent asks of a server. `lives` holds the last page of each, in the order they were seen."""

    url: str
    port: int
    pages: list[tuple[str, str]] = field(default_factory=list)
    """(start of the server by the page or its headers, page)."""

    @property
    def lives(self) -> list[tuple[str, str]]:
        """(first, last) page of each life of the server."""
        by_life: dict[str, tuple[str, str]] = {}
        for life, page in self.pages:
            by_life[life] = (by_life[life][0] if life in by_life else page), page
        return list(by_life.values())


def counted(page: str, name: str) -> int:
    """Return a counter of a page, summed over its series, read without the code under test."""
    series = re.compile(rf"{re.escape(name)}(?:\{{.*\}})? (\S+)")
    return round(sum(float(match[1]) for line in page.splitlines() if (match := series.fullmatch(line))))


@contextmanager
def recording_proxy(server_url: str) -> Iterator[RecordingProxy]:
    """Until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{PATH}/"):
                self.send_error(404)
                return
            path = self.path.removeprefix(PATH)
            try:
                with urlopen(server_url + path, timeout=30) as reply:
                    status, headers, body = 200, reply.headers, reply.read()
            except HTTPError as error:
                status, headers, body = error.code, error.headers, error.read()
            except (OSError, HTTPException):
                self.close_connection = True
                return
            self.send_response(status)
            for name in PASSED_ON:
                if name in headers:
                    self.send_header(name, headers[name])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if status == 200 and path == "/metrics":
                page = body.decode()
                match = re.search(r"^process_start_time_seconds (\S+)$", page, re.M)
                proxy.pages.append((match[1] if match else headers.get(PASSED_ON[1], ""), page))

        def log_message(self, format: str, *args: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    port = listener.server_address[1]
    proxy = RecordingProxy(f"http://127.0.0.1:{port}{PATH}", port)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
