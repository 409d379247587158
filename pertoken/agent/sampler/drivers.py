"""Host and devices at one instant, whatever the drivers do: a call that hangs costs the devices, not the tick."""

import time
from collections.abc import Iterable
from dataclasses import replace

from pertoken.agent.backoff import Clock
from pertoken.agent.bounds import DUPLICATE, HOST_METRICS, bounded
from pertoken.agent.probes.cpu import CpuProbe
from pertoken.agent.readings import DeviceReading, HostReading, ProbeReading, Unavailable, unread
from pertoken.agent.sampler.client import Sampler, SamplerError, SamplerStalled
from pertoken.agent.sampler.process_lists import ProcessLists, in_host_pid_namespace
from pertoken.store.schema.rows import Event

LATE_S = 0.05
"""How long a tick waits for a sampler that has hung since an earlier one."""
LET_GO_S = 600
"""How long drivers stay released: replacing one takes minutes, and what is forgotten costs no more than that."""
_REMEDY = "look for driver errors in `dmesg`; it is left alone until its call returns"
_RELEASED = "the drivers were released by `pertoken agent release`"
_RESUME = "`pertoken agent resume`, or wait: they are taken up again after 10 minutes"


class Drivers:
    """Reads the host and its CPUs here, where nothing hangs, and all other devices by the sampler."""

    def __init__(self, probes: Iterable[str], clock: Clock = time.monotonic) -> None:
        self.probes = tuple(probes)
        self._sampler = Sampler(probes=self.probes)
        self._cpu = CpuProbe()
        self._lists = ProcessLists(in_host_pid_namespace())
        self._clock = clock
        self._let_go_until_s = 0.0
        self._last: ProbeReading | None = None
        self._away = False
        """Whether the last reading is without the sampler."""
        self._answered_s: dict[str, float] = {}
        """When each device last answered, by UUID."""
        self._started: tuple[bool, HostReading, DeviceReading] | None = None
        """Since `start_read`: whether processes are listed, the host and its CPUs."""

    def start(self) -> None:
        """Start the sampler, so that it is ready when it is first read."""
        self._sampler.start()

    def start_read(self, processes: bool) -> None:
        """Have the sampler read the drivers, and read the host and its CPUs meanwhile; `take` returns both."""
        if not self._let_go:
            self._sampler.ask(processes)
        self._started = processes, *self._cpu.read()

    def read(self, processes: bool, deadline_s: float) -> tuple[ProbeReading, tuple[Event, ...]]:
        """Return everything as it is now, as `take` does."""
        self.start_read(processes)
        return self.take(deadline_s)

    def take(self, deadline_s: float) -> tuple[ProbeReading, tuple[Event, ...]]:
        """Return what was begun to be read, and what happened to the sampler since the reading before.

        A device that does not answer has the time for which it has not. While the sampler does not, every device but
        the CPUs is lost with the reason.
        """
        assert self._started is not None
        reading, events = self._take(*self._started, deadline_s)
        now_s = self._clock()
        self._answered_s |= {device.uuid: now_s for device in reading.devices if not device.lost}
        if any(device.lost for device in reading.devices):
            reading = replace(reading, devices=tuple(self._aged(device, now_s) for device in reading.devices))
        return reading, events

    def close(self) -> None:
        """End the sampler; one that hangs is left to end on its own."""
        self._sampler.close()

    def release(self) -> None:
        """Release the drivers, so that they can be unloaded, until `resume` or for `LET_GO_S`."""
        self._let_go_until_s = self._clock() + LET_GO_S
        self._sampler.close()

    def resume(self) -> None:
        """Read the drivers again from the next reading on."""
        self._let_go_until_s = 0.0

    @property
    def _let_go(self) -> bool:
        return self._clock() < self._let_go_until_s

    def _take(
        self, processes: bool, host: HostReading, cpu: DeviceReading, deadline_s: float
    ) -> tuple[ProbeReading, tuple[Event, ...]]:
        if self._let_go:
            return self._without_sampler(host, cpu, "drivers_released", _RELEASED, _RESUME)
        try:
            answer = self._sampler.read(processes, deadline_s, LATE_S)
        except SamplerError as error:
            kind = "sampler_stalled" if isinstance(error, SamplerStalled) else "sampler_died"
            return self._without_sampler(host, cpu, kind, str(error), _REMEDY)
        whole = ProbeReading(
            host,
            (*answer.devices, cpu),
            answer.unavailable,
            answer.driver_events,
            answer.driver_calls,
            answer.cpu_ms,
            answer.rss_bytes,
        )
        reading = self._lists.believed(self._bounded(whole), processes)
        events = self._new_faults(reading)
        if self._away:
            events.append(Event("sampler_back", "the sampler answers again"))
        self._last, self._away = reading, False
        return reading, tuple(events)

    def _bounded(self, reading: ProbeReading) -> ProbeReading:
        return bounded(reading, {device.uuid: device for device in self._last.devices} if self._last else {})

    def _new_faults(self, reading: ProbeReading) -> list[Event]:
        """Return events for gaps of the whole host that the reading before did not have."""
        known = {missing.metric for missing in self._last.unavailable} if self._last else set()
        if self._away:
            known.discard("sampler")  # that gap was of a sampler that did not answer
        new = [missing for missing in reading.unavailable if missing.metric not in known]
        restarted = [Event("sampler_restarted", missing.reason) for missing in new if missing.metric == "sampler"]
        return restarted + [
            Event("device_duplicate", missing.reason) for missing in new if missing.metric.startswith(DUPLICATE)
        ]

    def _aged(self, device: DeviceReading, now_s: float) -> DeviceReading:
        if not device.lost:
            return device
        answered_s = self._answered_s.get(device.uuid)
        return device._replace(silent_s=None if answered_s is None else round(now_s - answered_s))

    def _without_sampler(
        self, host: HostReading, cpu: DeviceReading, kind: str, reason: str, remedy: str
    ) -> tuple[ProbeReading, tuple[Event, ...]]:
        events = () if self._away else (Event(kind, reason),)
        known = self._last or ProbeReading(host, ())
        devices = (unread(device, reason) for device in known.devices if device.kind != "cpu")
        unavailable = (
            missing
            for missing in known.unavailable
            if missing.metric != "sampler" and missing.metric not in HOST_METRICS
        )
        reading = replace(
            known,
            host=host,
            devices=(*devices, cpu),
            unavailable=(*unavailable, Unavailable("sampler", "failing", reason, remedy)),
            driver_events=(),
            driver_calls=0,
            cpu_ms=0,
        )
        self._last, self._away = self._bounded(reading), True
        return self._last, events
