"""Host and devices at one instant, whatever the drivers do: a call that hangs costs the devices, not the tick."""

import time
from collections.abc import Iterable
from dataclasses import replace

from pertoken.agent.backoff import Clock
from pertoken.agent.bounds import DUPLICATE, HOST_METRICS, bounded
from pertoken.agent.probes.cpu import CpuProbe
from pertoken.agent.readings import DeviceReading, Gap, ProbeReading, unread
from pertoken.agent.sampler.client import Sampler, SamplerError, SamplerStalled
from pertoken.agent.sampler.process_lists import ProcessLists, in_host_pid_namespace
from pertoken.store.schema.rows import Event

LATE_S = 0.05
"""How long a tick waits for a sampler that has hung since an earlier one."""
LET_GO_S = 600
"""How long drivers stay let go: replacing one takes minutes, and what is forgotten costs no more than that."""
_REMEDY = "look for driver errors in `dmesg`; it is left alone until its call returns"
_RELEASED = "the drivers were let go by `pertoken agent release`"
_RESUME = "`pertoken agent resume`, or wait: they are taken up again after 10 minutes"


class Drivers:
    """The sampler, and beside it a CPU probe of our own for the time it does not answer."""

    def __init__(self, probes: Iterable[str], clock: Clock = time.monotonic) -> None:
        self.probes = tuple(probes)
        self._sampler = Sampler(probes=self.probes)
        self._lists = ProcessLists(in_host_pid_namespace())
        self._clock = clock
        self._let_go_until_s = 0.0
        self._cpu: CpuProbe | None = None
        self._last: ProbeReading | None = None
        self._answered_s: dict[str, float] = {}
        """When each device last answered, by UUID."""

    def start(self) -> None:
        """Start the sampler, so that it is ready when it is first read."""
        self._sampler.start()

    def read(self, processes: bool, deadline_s: float) -> tuple[ProbeReading, tuple[Event, ...]]:
        """What all probes read now, and what happened to the sampler since the reading before.

        A device that does not answer tells for how long. While the sampler does not, host and CPUs are read here, and
        every other device known is lost with the reason.
        """
        reading, events = self._read(processes, deadline_s)
        now_s = self._clock()
        self._answered_s |= {device.uuid: now_s for device in reading.devices if not device.lost}
        if any(device.lost for device in reading.devices):
            reading = replace(reading, devices=tuple(self._aged(device, now_s) for device in reading.devices))
        return reading, events

    def close(self) -> None:
        """End the sampler; one that hangs is left to end by itself."""
        self._sampler.close()

    def release(self) -> None:
        """Let go of the drivers, so that they can be unloaded, until `resume` or for `LET_GO_S`."""
        self._let_go_until_s = self._clock() + LET_GO_S
        self._sampler.close()

    def resume(self) -> None:
        """Read the drivers again from the next reading on."""
        self._let_go_until_s = 0.0

    def _read(self, processes: bool, deadline_s: float) -> tuple[ProbeReading, tuple[Event, ...]]:
        if self._clock() < self._let_go_until_s:
            return self._without_sampler("drivers_released", _RELEASED, _RESUME)
        known = {device.uuid: device for device in self._last.devices} if self._last else {}
        try:
            answer = bounded(self._sampler.read(processes, deadline_s, LATE_S), known)
        except SamplerError as error:
            kind = "sampler_stalled" if isinstance(error, SamplerStalled) else "sampler_died"
            return self._without_sampler(kind, str(error), _REMEDY)
        reading = self._lists.believed(answer, processes)
        events = self._new_faults(reading)
        if self._cpu is not None:
            events.append(Event("sampler_back", "the sampler answers again"))
        self._last, self._cpu = reading, None
        return reading, tuple(events)

    def _new_faults(self, reading: ProbeReading) -> list[Event]:
        """Events for gaps of the whole host that the reading before did not have."""
        known = {gap.metric for gap in self._last.gaps} if self._last else set()
        if self._cpu is not None:
            known.discard("sampler")  # that gap was of a sampler that did not answer
        new = [gap for gap in reading.gaps if gap.metric not in known]
        restarted = [Event("sampler_restarted", gap.reason) for gap in new if gap.metric == "sampler"]
        return restarted + [Event("device_duplicate", gap.reason) for gap in new if gap.metric.startswith(DUPLICATE)]

    def _aged(self, device: DeviceReading, now_s: float) -> DeviceReading:
        if not device.lost:
            return device
        answered_s = self._answered_s.get(device.uuid)
        return device._replace(silent_s=None if answered_s is None else round(now_s - answered_s))

    def _without_sampler(self, kind: str, reason: str, remedy: str) -> tuple[ProbeReading, tuple[Event, ...]]:
        events = (Event(kind, reason),) if self._cpu is None else ()
        self._cpu = self._cpu or CpuProbe()
        host, cpu = self._cpu.read()
        known = self._last or ProbeReading(host, ())
        devices = (unread(device, reason) for device in known.devices if device.kind != "cpu")
        gaps = (gap for gap in known.gaps if gap.metric != "sampler" and gap.metric not in HOST_METRICS)
        reading = replace(
            known,
            host=host,
            devices=(*devices, cpu),
            gaps=(*gaps, Gap("sampler", "failing", reason, remedy)),
            happened=(),
            driver_calls=0,
            cpu_ms=0,
        )
        self._last = bounded(reading, {device.uuid: device for device in known.devices})
        return self._last, events
