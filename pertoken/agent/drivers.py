"""Host and devices at one instant, whatever the drivers do: a call that hangs costs the devices, not the tick."""

from collections.abc import Iterable
from dataclasses import replace

from pertoken.agent.device_rows import unread
from pertoken.agent.namespace import ProcessLists, in_host_pid_namespace
from pertoken.agent.probes.cpu import CpuProbe
from pertoken.agent.readings import Gap, ProbeReading
from pertoken.agent.sampling import Sampler, SamplerError, SamplerStalled
from pertoken.store.rows import Event

LATE_S = 0.05
"""How long a tick waits for a sampler that has hung since an earlier one."""
_REMEDY = "look for driver errors in `dmesg`; it is left alone until its call returns"


class Drivers:
    """The sampler, and beside it a CPU probe of our own for the time it does not answer."""

    def __init__(self, probes: Iterable[str]) -> None:
        self.probes = tuple(probes)
        self._sampler = Sampler(probes=self.probes)
        self._lists = ProcessLists(in_host_pid_namespace())
        self._cpu: CpuProbe | None = None
        self._last: ProbeReading | None = None

    def read(self, processes: bool, deadline_s: float) -> tuple[ProbeReading, tuple[Event, ...]]:
        """What all probes read now, and what happened to the sampler since the reading before.

        While it does not answer, host and CPUs are read here, and every other device known is lost with the reason.
        """
        try:
            reading = self._lists.believed(self._sampler.read(processes, deadline_s, LATE_S))
        except SamplerError as error:
            first = self._cpu is None
            kind = "sampler_stalled" if isinstance(error, SamplerStalled) else "sampler_died"
            self._last = self._without_sampler(str(error))
            return self._last, (Event(kind, str(error)),) if first else ()
        back = self._cpu is not None
        self._last, self._cpu = reading, None
        return reading, (Event("sampler_back", "the sampler answers again"),) if back else ()

    def close(self) -> None:
        """End the sampler; one that hangs is left to end by itself."""
        self._sampler.close()

    def _without_sampler(self, reason: str) -> ProbeReading:
        self._cpu = self._cpu or CpuProbe()
        host, cpu = self._cpu.read()
        known = self._last or ProbeReading(host, ())
        devices = (unread(device, reason) for device in known.devices if device.kind != "cpu")
        gaps = (gap for gap in known.gaps if gap.metric != "sampler")
        return replace(
            known,
            host=host,
            devices=(*devices, cpu),
            gaps=(*gaps, Gap("sampler", "failing", reason, _REMEDY)),
            driver_calls=0,
            cpu_ms=0,
        )
