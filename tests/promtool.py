"""Debian's package prometheus: `promtool` checks metrics pages, and Prometheus scrapes them."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.llama import free_port

PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
"""None where they are not installed."""


def complaints(page: str) -> str:
    """Return the complaints of `promtool check metrics` about a page; empty if it passes."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr + ("" if done.returncode == 0 else f"status {done.returncode}")


class Prometheus:
    """A server that scrapes each second."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"

    def values(self, query: str) -> list[float]:
        """Return the values of an instant query, one for each series; none before it answers."""
        try:
            with urllib.request.urlopen(f"{self._url}?{urllib.parse.urlencode({'query': query})}", timeout=10) as reply:
                return [float(sample["value"][1]) for sample in json.load(reply)["data"]["result"]]
        except OSError:
            return []


@contextmanager
def scraping(folder: Path, targets: Mapping[str, int], token_file: Path | None = None) -> Iterator[Prometheus]:
    """Run Prometheus over pages on loopback: name of a job -> port."""
    assert PROMETHEUS is not None
    login = {} if token_file is None else {"authorization": {"credentials_file": str(token_file)}}
    jobs = [
        {"job_name": name, "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}], **login}
        for name, port in targets.items()
    ]
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(json.dumps({"scrape_configs": jobs}))
    command = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as run:
        try:
            yield Prometheus(port)
        finally:
            run.terminate()
