"""The sampler: the agent's child that alone talks to drivers, so that it can hang or die alone.

`python -m pertoken.agent.sampler.child [PROBE,...]` reads one request line `{"processes": true|false}` at a time from
stdin, answers each with one `DriversReading` line (`pertoken.agent.sampler.wire`) on stdout, and ends at end of file.
It ignores SIGTERM: a process must not end inside a driver call, and its parent's end is its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from pertoken.agent.host.proc import own_rss_bytes
from pertoken.agent.probes.amd import AmdProbe
from pertoken.agent.probes.gaudi import GaudiProbe
from pertoken.agent.probes.nvidia.nvml import XidWatch
from pertoken.agent.probes.nvidia.probe import NvidiaProbe
from pertoken.agent.readings import DeviceReading, DriverEvent, DriversReading, Unavailable
from pertoken.agent.sampler.wire import encode
from pertoken.process import settle

Readings = tuple[tuple[DeviceReading, ...], tuple[Unavailable, ...]]
"""Devices, and gaps of the whole host."""


class Probe(Protocol):
    """The devices of one vendor."""

    outdated: bool
    """Whether only a new process can read its driver."""

    @property
    def calls(self) -> int:
        """Calls of its driver so far."""

    def read(self, processes: bool) -> Readings:
        """Return every device, and the gaps of the whole host; the process lists only if asked for."""

    def driver_events(self) -> tuple[DriverEvent, ...]:
        """Return its driver's events since the last call."""

    def close(self) -> None:
        """Release the driver, so that it can be unloaded."""


VENDORS: dict[str, Callable[[], Probe]] = {
    "nvidia": lambda: NvidiaProbe(watch=XidWatch()),
    "amd": AmdProbe,
    "gaudi": GaudiProbe,
}


class Probes:
    """Probes of this host by their names, and the costs of this process."""

    def __init__(self, names: Iterable[str] = VENDORS) -> None:
        self._vendors: dict[str, Probe] = {name: VENDORS[name]() for name in names}
        self._calls = 0
        self._cpu_ms = 0

    def read(self, processes: bool) -> DriversReading:
        """Return everything at one instant; the process lists only if asked for."""
        readings = [_read(name, probe, processes) for name, probe in self._vendors.items()]
        calls = sum(probe.calls for probe in self._vendors.values())
        cpu_ms = int(time.process_time() * 1000)
        reading = DriversReading(
            devices=tuple(device for devices, _ in readings for device in devices),
            unavailable=tuple(missing for _, unavailable in readings for missing in unavailable),
            driver_events=tuple(event for probe in self._vendors.values() for event in probe.driver_events()),
            driver_calls=calls - self._calls,
            cpu_ms=cpu_ms - self._cpu_ms,
            rss_bytes=own_rss_bytes(),
        )
        self._calls, self._cpu_ms = calls, cpu_ms
        return reading

    def close(self) -> None:
        """Release the drivers, so that they can be unloaded."""
        for probe in self._vendors.values():
            probe.close()

    @property
    def outdated(self) -> bool:
        """Whether only a new process can read some driver."""
        return any(probe.outdated for probe in self._vendors.values())


def _read(vendor: str, probe: Probe, processes: bool) -> Readings:
    """Return a vendor's devices; an error of its library costs no other vendor."""
    try:
        return probe.read(processes)
    except Exception as error:
        return (), (Unavailable(vendor, "failing", f"the probe failed: {error!r}", "please report this"),)


def _protocol_fd() -> int:
    """Return a descriptor of our own for answers; the output of libraries to stdout goes to stderr from here on."""
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def main() -> None:
    """Answer until end of file."""
    answers = _protocol_fd()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    probes = Probes(filter(None, sys.argv[1].split(",")) if sys.argv[1:] else VENDORS)
    for n, request in enumerate(sys.stdin.buffer):
        line = memoryview(encode(probes.read(json.loads(request)["processes"])).encode() + b"\n")
        try:
            while line:
                line = line[os.write(answers, line) :]
        except BrokenPipeError:
            break
        if probes.outdated:
            break
        if n == 0:
            settle()
    probes.close()


if __name__ == "__main__":
    main()
