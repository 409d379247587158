"""A server on loopback with the price lists that gpuhunt reads."""

import io
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

HEADER = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
    "provider_data"
)


def row(instance: str, region: str, usd: float, count: int, gpu: str, memory_gb: float, spot: bool = False) -> str:
    """Return a line of a list."""
    return f"{instance},{region},{usd},96,1024.0,{count},{gpu},{memory_gb},{spot},,nvidia,,x86,{{}}"


def pages(rows_by_provider: Mapping[str, Sequence[str]], version: str) -> dict[str, bytes]:
    """Return the pages of the lists of these providers by path; other providers have none."""
    found: dict[str, bytes] = {}
    for provider, rows in rows_by_provider.items():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(f"{provider}.csv", "\n".join((HEADER, *rows)))
        found |= {f"/{provider}/version": version.encode(), f"/{provider}/{version}/catalog.zip": packed.getvalue()}
    return found


PROVIDERS = ("aws", "azure", "verda", "gcp", "lambdalabs", "nebius", "oci", "runpod", "cloudrift")
"""Providers that gpuhunt asks for."""


def all_pages(rows_by_provider: Mapping[str, Sequence[str]], broken: str, version: str) -> dict[str, bytes]:
    """Return the pages of every provider, without rows where none are given; one provider's list is no archive."""
    found = pages(dict.fromkeys(PROVIDERS, ()) | dict(rows_by_provider), version)
    return found | {f"/{broken}/{version}/catalog.zip": b"no archive"}


@contextmanager
def served(found: Mapping[str, bytes]) -> Iterator[str]:
    """Serve pages by path, and yield the address."""

    class Lists(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = found.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Lists)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
