"""A real Prometheus with the same day in it: remote write in, PromQL out, blocks on disk.

Debian's package `prometheus` is started on loopback with a folder of its own. Samples go in as they come live: one for
each series in a request. Requests are encoded here (protobuf by hand, snappy as literals) and only sending is timed.
"""

import http.client
import json
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from benchmarks.store.serving_day import COUNTERS, GAUGES, GPUS_EACH, LEVELS, Day, Values

ENERGIES = ("energy_counter_mj", "energy_integral_mj")
BLOCK_WAIT_S = 180.0


def installed() -> str | None:
    """Return the version of Prometheus; None if it is not installed."""
    binary = shutil.which("prometheus")
    if binary is None:
        return None
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).split()[2]


@dataclass(slots=True)
class Prometheus:
    """A server that runs."""

    port: int
    folder: Path
    sent_s: float = 0.0

    def write(self, day: Day) -> None:
        """Send the whole day; `sent_s` is the time spent in requests."""
        encoder = _Encoder(day)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        for values in day.values():
            body = _snappy(encoder.request(values))
            started = time.perf_counter()
            connection.request("POST", "/api/v1/write", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            self.sent_s += time.perf_counter() - started
            if answer.status >= 300:
                raise RuntimeError(f"prometheus refused a request: {answer.status} {text[:200]!r}")
        connection.close()

    def query_range(self, query: str, start: int, end: int, step: int) -> dict[tuple[str, int], float]:
        """(model, start of the hour) -> value."""
        words = urlencode({"query": query, "start": start, "end": end, "step": step})
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/query_range?{words}", timeout=60) as answer:
            reply = json.load(answer)
        return {
            (series["metric"]["model"], int(ts) - step): float(value)
            for series in reply["data"]["result"]
            for ts, value in series["values"]
        }

    def bytes_of_blocks(self) -> int:
        """Bytes of all samples as blocks, once the server has compacted what it will; its log is left out."""
        deadline, before = time.monotonic() + BLOCK_WAIT_S, -1.0
        while time.monotonic() < deadline:
            now = self._metric("prometheus_tsdb_compactions_total")
            if now == before and now > 0:
                break
            before = now
            time.sleep(10)
        url = f"http://127.0.0.1:{self.port}/api/v1/admin/tsdb/snapshot"
        with urlopen(Request(url, method="POST"), timeout=120) as answer:
            name = json.load(answer)["data"]["name"]
        files = [file for file in (self.folder / "snapshots" / name).rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files)

    def _metric(self, name: str) -> float:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[1])
        return 0.0


@contextmanager
def running(folder: Path) -> Iterator[Prometheus]:
    """A server over a new folder, ended by its own process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = folder / "prometheus.yml"
    settings.write_text("global: {}\n")
    command = [
        "prometheus",
        f"--config.file={settings}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--web.enable-admin-api",
        "--storage.tsdb.retention.time=60d",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until_ready(port, process)
        yield Prometheus(port, folder / "data")
    finally:
        process.terminate()
        process.wait(60)


def _until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"prometheus ended with {process.returncode}")
        try:
            with urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("prometheus did not become ready")


class _Encoder:
    """`WriteRequest`s of a day: labels are encoded once, values of a tick each time."""

    def __init__(self, day: Day) -> None:
        self._day = day
        self._devices = [
            [_labels(f"gpu_{name}", uuid=f"GPU-{i}", host="gpu-1") for name in GAUGES] for i in range(day.gpus)
        ]
        self._shares = [
            _labels("gpu_share", uuid=f"GPU-{i}", deployment=str(i // GPUS_EACH), model=day.model(i // GPUS_EACH))
            for i in range(day.n * GPUS_EACH)
        ]
        self._deployments = [
            [
                _labels(f"engine_{name}", deployment=str(d), model=day.model(d), host="gpu-1")
                for name in (*COUNTERS, *LEVELS)
            ]
            for d in range(day.n)
        ]
        self._energy = [[0] * len(ENERGIES) for _ in range(day.gpus)]
        self._counted = [[0] * len(COUNTERS) for _ in range(day.n)]

    def request(self, values: Values) -> bytes:
        """One sample of each series."""
        stamp = b"\x10" + _varint(values.ts * 1000)
        parts: list[bytes] = []
        for i, row in enumerate(values.devices):
            for at, name in enumerate(ENERGIES):
                self._energy[i][at] += row[GAUGES.index(name)]
            for labels, name, value in zip(self._devices[i], GAUGES, row, strict=True):
                shown = self._energy[i][ENERGIES.index(name)] if name in ENERGIES else value
                parts.append(_series(labels, shown, stamp))
        parts += [_series(labels, 1, stamp) for labels in self._shares]
        for d, increases in enumerate(values.counters):
            if d in values.restarted:
                self._counted[d] = [0] * len(COUNTERS)
            counted = self._counted[d] = [a + b for a, b in zip(self._counted[d], increases, strict=True)]
            for labels, value in zip(self._deployments[d], (*counted, *values.levels[d]), strict=True):
                parts.append(_series(labels, value, stamp))
        return b"".join(parts)


def _labels(name: str, **labels: str) -> bytes:
    parts = []
    for key, value in sorted({"__name__": name, **labels}.items()):
        pair = b"\x0a" + _sized(key.encode()) + b"\x12" + _sized(value.encode())
        parts.append(b"\x0a" + _sized(pair))
    return b"".join(parts)


def _series(labels: bytes, value: float, stamp: bytes) -> bytes:
    sample = b"\x09" + struct.pack("<d", value) + stamp
    return b"\x0a" + _sized(labels + b"\x12" + _sized(sample))


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _snappy(content: bytes) -> bytes:
    """Snappy's block format with literals alone: as any encoder may write it, and cheap to make."""
    parts = [_varint(len(content))]
    for at in range(0, len(content), 65_536):
        chunk = content[at : at + 65_536]
        parts += [b"\xf4", struct.pack("<H", len(chunk) - 1), chunk]
    return b"".join(parts)
