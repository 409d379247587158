"""A real Prometheus server over history that was written down, and the pages it would have scraped."""

import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.recorded import until

SCRAPE_S = 15
Scrape = tuple[int, str, dict[str, str]]
"""(time, page, labels of the target)"""

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus and promtool are not installed (Debian package prometheus)",
)


def open_metrics(scrapes: Iterable[Scrape]) -> str:
    """Return all samples of these pages with their times, as promtool backfills them."""
    series: dict[str, list[str]] = {}
    for ts, page, target in scrapes:
        more = ",".join(f'{name}="{value}"' for name, value in target.items())
        for line in page.splitlines():
            if line and not line.startswith("#"):
                head, _, value = line.rpartition(" ")
                name, brace, labels = head.partition("{")
                key = f"{name}{{{labels[:-1].rstrip(',') + ',' if brace else ''}{more}}}"
                series.setdefault(key, []).append(f"{key} {value} {ts}")
    by_family = sorted(series.items(), key=lambda series: series[0].partition("{")[0])
    return "\n".join(line for _, lines in by_family for line in lines) + "\n# EOF\n"


@contextmanager
def prometheus(folder: Path, scrapes: Iterable[Scrape]) -> Iterator[str]:
    """URL of a server whose database holds these scrapes; ended afterwards."""
    text, config, data = folder / "history.txt", folder / "prometheus.yml", folder / "data"
    text.write_text(open_metrics(scrapes))
    config.write_text("global: {}\n")
    made = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = folder / "prometheus.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=10y",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=stderr,
        )
    try:
        until(lambda: process.poll() is not None or _ready(url), "prometheus")
        assert process.poll() is None, log.read_text()
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False
