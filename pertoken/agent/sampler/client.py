"""The agent's side of the sampler: asks the child, notices when it hangs, replaces it when it died."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pertoken
from pertoken.agent import readings
from pertoken.agent.host.processes import mapped_files
from pertoken.agent.probes.cpu import CpuProbe
from pertoken.agent.readings import DeviceProcess, DeviceReading, DriversReading, HostReading, ProbeReading, Unavailable
from pertoken.agent.sampler.wire import decode
from pertoken.agent.workers import Backoff, Clock
from pertoken.errors import PertokenError
from pertoken.settings.values import PROBES
from pertoken.store.schema.rows import Event


class SamplerError(PertokenError):
    """No reading this time; the next request may succeed."""


class SamplerStalled(SamplerError):
    """The sampler did not answer in time: a driver call hangs."""


class SamplerDied(SamplerError):
    """The sampler ends whenever it is asked."""


class _Ended(Exception):
    pass


_REQUESTS = {processes: json.dumps({"processes": processes}).encode() + b"\n" for processes in (False, True)}
"""Lines to the child, by whether it lists processes, too."""


class _SamplerProcess:
    """One process. `owed`: it has not answered its request yet; `ahead`: that was made by `Sampler.ask`."""

    def __init__(self, environment: Mapping[str, str] | None, probes: Iterable[str]) -> None:
        self.owed = self.ahead = False
        self._rest = b""
        # `-m` looks in the working directory first: that must be where this package is, not just anywhere.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pertoken.agent.sampler.child", ",".join(probes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=Path(pertoken.__file__).parents[1],
            env=environment,
            process_group=0,  # Ctrl-C is for the agent.
        )
        self._poll = select.poll()
        self._poll.register(self.process.stdout, select.POLLIN)  # type: ignore[arg-type]  # a pipe, as asked for

    def ask(self, processes: bool) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(_REQUESTS[processes])
        except BrokenPipeError:
            raise _Ended from None
        self.owed = True

    def answer(self, clock: Clock, until_s: float) -> bytes | None:
        """Return its next line, or None if there is none by then. Raises _Ended."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            if not self._poll.poll(max(0.0, until_s - clock()) * 1000):
                return None
            part = self.process.stdout.read(2**16)
            if not part:
                raise _Ended
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        self.owed = False
        return line

    def leave(self, wait_s: float) -> str:
        """Send end of file and return how it ended. One that hangs in a driver is left to end, never killed."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            status = self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self.process.wait, name="sampler-left", daemon=True).start()
            return "still in a driver call"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


class Sampler:
    """A sampler child, started when first asked. For one thread.

    `environment` is the child's (None: ours), `clock` monotonic seconds, `probes` names of `config.PROBES`.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        clock: Clock = time.monotonic,
        probes: Iterable[str] = PROBES,
    ) -> None:
        self._environment = environment
        self._probes = tuple(probes)
        self._clock = clock
        self._child: _SamplerProcess | None = None
        self._backoff = Backoff(clock)

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return self._child.process.pid if self._child else None

    def start(self) -> None:
        """Start the child ahead of the first reading, so that it loads while its parent does."""
        if self._child is None and self._backoff.due:
            self._child = _SamplerProcess(self._environment, self._probes)

    def ask(self, processes: bool) -> None:
        """Start the reading that the next `read` returns, unless the child still owes an answer."""
        self.start()
        if self._child is not None and not self._child.owed:
            with suppress(_Ended):  # `read` replaces it
                self._child.ask(processes)
                self._child.ahead = True

    def read(self, processes: bool, deadline_s: float, late_s: float | None = None) -> DriversReading:
        """Return the readings of all probes. A child that had ended is replaced: `unavailable` reports `sampler` then.

        Raises SamplerStalled if there is no answer within `deadline_s`: the child is left in its call, and its late
        answer is discarded. A child that still owes that answer has `late_s` for it (None: the same deadline) before
        it is asked again. Raises SamplerDied if a new child ends too; after that none is started for a while.
        """
        unavailable: tuple[Unavailable, ...] = ()
        for _ in ("as it is", "replaced"):
            if self._child is None:
                self.start()
            if self._child is None:
                break
            try:
                reading = decode(self._ask(self._child, processes, deadline_s, late_s))
            except (_Ended, ValueError) as error:
                ending = self._child.leave(wait_s=1.0)
                self._child = None
                why = f"the sampler had ended ({ending}{f'; {error}' if str(error) else ''}) and was started again"
                unavailable = (Unavailable("sampler", "failing", why, "see the lines before this in the agent's log"),)
            else:
                self._backoff = Backoff(self._clock)
                return replace(reading, unavailable=reading.unavailable + unavailable) if unavailable else reading
        else:
            self._backoff.failed()
        raise SamplerDied(
            "the sampler ends whenever it is asked: see why with "
            "`echo '{\"processes\": false}' | python -m pertoken.agent.sampler.child`"
        )

    def close(self, wait_s: float = 2.0) -> None:
        """End the child; one that does not end within `wait_s` is left to end on its own."""
        if self._child is not None:
            self._child.leave(wait_s)
            self._child = None

    def _ask(self, child: _SamplerProcess, processes: bool, deadline_s: float, late_s: float | None) -> bytes:
        late_s = deadline_s if late_s is None else late_s
        ahead, child.ahead = child.ahead, False
        if ahead or not child.owed or child.answer(self._clock, self._clock() + late_s) is not None:
            if not ahead:
                child.ask(processes)
            line = child.answer(self._clock, self._clock() + deadline_s)
            if line is not None:
                return line
        raise SamplerStalled(
            f"the sampler (pid {child.process.pid}) did not answer within {deadline_s:g} s: a driver call hangs. "
            f"Nothing is read until it returns; look for driver errors in `dmesg`"
        )


_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""Its inode is the same on every kernel: PROC_PID_INIT_INO in include/linux/proc_ns.h."""
_DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so", "libhsa-runtime64.so", "libamdhip64.so")
_PROCESS_REMEDY = "run it in the host's pid namespace: `docker run --pid=host`, or hostPID: true on Kubernetes"

_CONTAINER = Unavailable(
    "processes of the host",
    "denied",
    "this agent runs in a container's pid namespace: processes outside of it, and which of them hold a GPU, are not "
    "seen",
    _PROCESS_REMEDY,
)


def in_host_pid_namespace(proc: Path = Path("/proc")) -> bool:
    """Return whether pids here are the host's, as drivers name processes."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def lives(pid: int) -> bool:
    """Return whether there is such a process here."""
    return Path(f"/proc/{pid}").exists()


def uses_driver(pid: int) -> bool:
    """Return whether there is such a process here that has a GPU driver's library mapped."""
    return any(name in path for path in mapped_files(pid) or () for name in _DRIVER_LIBRARIES)


class ProcessLists:
    """Filter of process lists: only lists that can be joined to processes seen here stay in a reading.

    In the host's pid namespace, processes that ended meanwhile are left out, and a list without any process of this
    host is withdrawn. Elsewhere the driver's pid may be of nobody here, or by chance of another process: a list with
    a pid that no process using the driver has is withdrawn as a whole, with the reason.
    """

    def __init__(
        self,
        in_host: bool,
        uses: Callable[[int], bool] = uses_driver,
        lives: Callable[[int], bool] = lives,
    ) -> None:
        self._in_host, self._uses, self._lives = in_host, uses, lives
        self._withheld: dict[str, Unavailable] = {}
        """Devices without a process list, by UUID."""

    def believed(self, probe: ProbeReading, listed: bool = True) -> ProbeReading:
        """Return the reading without lists that cannot be believed: these are unknown until they are listed again.

        `listed`: whether processes were asked for.
        """
        if self._in_host and not listed and not self._withheld:
            return probe
        devices = tuple(self._believed(device) for device in probe.devices)
        unavailable = probe.unavailable if self._in_host else (*probe.unavailable, _CONTAINER)
        return replace(probe, devices=devices, unavailable=unavailable)

    def _believed(self, device: DeviceReading) -> DeviceReading:
        withheld = next((missing for missing in device.unavailable if missing.metric == "processes"), None)
        if withheld is not None:
            self._withheld[device.uuid] = withheld
            return device
        if device.processes is not None:
            self._withheld.pop(device.uuid, None)
            device = self._joined(device, device.processes)
        missing = self._withheld.get(device.uuid)
        if missing is None or device.lost:
            return device
        return device._replace(processes=None, unavailable=(*device.unavailable, missing))

    def _joined(self, device: DeviceReading, named: tuple[DeviceProcess, ...]) -> DeviceReading:
        living = tuple(process for process in named if not self._in_host or self._lives(process.pid))
        if self._in_host:
            strangers = () if living else named
        else:
            strangers = tuple(process for process in named if not self._uses(process.pid))
        if not strangers:
            return device._replace(processes=living) if len(living) < len(named) else device
        pids = ", ".join(str(stranger.pid) for stranger in strangers)
        where = "that are not on this host" if self._in_host else "that this agent's container does not hold"
        reason = f"the driver names processes {where} (pid {pids})"
        self._withheld[device.uuid] = Unavailable("processes", "denied", reason, _PROCESS_REMEDY)
        return device


LATE_S = 0.05
"""Wait of a tick for a sampler that has hung since an earlier one."""
RELEASED_S = 600
"""Longest release of the drivers: replacing one takes minutes."""
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
        self._released_until_s = 0.0
        self._last: ProbeReading | None = None
        self._away = False
        """Whether the last reading is without the sampler."""
        self._answered_s: dict[str, float] = {}
        """Time of the last answer of each device, by UUID."""
        self._started: tuple[bool, HostReading, DeviceReading] | None = None
        """Since `start_read`: whether processes are listed, the host and its CPUs."""

    def start(self) -> None:
        """Start the sampler, so that it is ready when it is first read."""
        self._sampler.start()

    def start_read(self, processes: bool) -> None:
        """Start the sampler's reading, and read the host and its CPUs meanwhile; `take` returns both."""
        if not self._released:
            self._sampler.ask(processes)
        self._started = processes, *self._cpu.read()

    def read(self, processes: bool, deadline_s: float) -> tuple[ProbeReading, tuple[Event, ...]]:
        """Return everything as it is now, as `take` does."""
        self.start_read(processes)
        return self.take(deadline_s)

    def take(self, deadline_s: float) -> tuple[ProbeReading, tuple[Event, ...]]:
        """Return the reading that `start_read` began, and the sampler's events since the previous reading.

        A device that does not answer carries the time since its last answer. While the sampler does not answer,
        every device but the CPUs is lost with the reason.
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
        """Release the drivers, so that they can be unloaded, until `resume` or for `RELEASED_S`."""
        self._released_until_s = self._clock() + RELEASED_S
        self._sampler.close()

    def resume(self) -> None:
        """Read the drivers again from the next reading on."""
        self._released_until_s = 0.0

    @property
    def _released(self) -> bool:
        return self._clock() < self._released_until_s

    def _take(
        self, processes: bool, host: HostReading, cpu: DeviceReading, deadline_s: float
    ) -> tuple[ProbeReading, tuple[Event, ...]]:
        if self._released:
            return self._without_sampler(host, cpu, "drivers_released", _RELEASED, _RESUME)
        try:
            answer = self._sampler.read(processes, deadline_s, LATE_S)
        except SamplerError as error:
            kind = "sampler_stalled" if isinstance(error, SamplerStalled) else "sampler_died"
            return self._without_sampler(host, cpu, kind, str(error), _REMEDY)
        costs = (answer.driver_calls, answer.cpu_ms, answer.rss_bytes)
        combined = ProbeReading(host, (*answer.devices, cpu), answer.unavailable, answer.driver_events, *costs)
        reading = self._lists.believed(self._bounded(combined), processes)
        events = self._new_faults(reading)
        if self._away:
            events.append(Event("sampler_back", "the sampler answers again"))
        self._last, self._away = reading, False
        return reading, tuple(events)

    def _bounded(self, reading: ProbeReading) -> ProbeReading:
        return readings.bounded(reading, {device.uuid: device for device in self._last.devices} if self._last else {})

    def _new_faults(self, reading: ProbeReading) -> list[Event]:
        """Return events for gaps of the whole host that the previous reading did not have."""
        metrics = {missing.metric for missing in self._last.unavailable} if self._last else set()
        if self._away:
            metrics.discard("sampler")  # that gap was of a sampler that did not answer
        new = [missing for missing in reading.unavailable if missing.metric not in metrics]
        restarted = [Event("sampler_restarted", missing.reason) for missing in new if missing.metric == "sampler"]
        duplicates = [missing for missing in new if missing.metric.startswith(readings.DUPLICATE)]
        return restarted + [Event("device_duplicate", missing.reason) for missing in duplicates]

    def _aged(self, device: DeviceReading, now_s: float) -> DeviceReading:
        if not device.lost:
            return device
        answered_s = self._answered_s.get(device.uuid)
        return device._replace(silent_s=None if answered_s is None else round(now_s - answered_s))

    def _without_sampler(
        self, host: HostReading, cpu: DeviceReading, kind: str, reason: str, remedy: str
    ) -> tuple[ProbeReading, tuple[Event, ...]]:
        events = () if self._away else (Event(kind, reason),)
        last = self._last or ProbeReading(host, ())
        devices = (readings.unread(device, reason) for device in last.devices if device.kind != "cpu")
        replaced = {"sampler", *readings.HOST_METRICS}
        unavailable = (missing for missing in last.unavailable if missing.metric not in replaced)
        reading = replace(
            last,
            host=host,
            devices=(*devices, cpu),
            unavailable=(*unavailable, Unavailable("sampler", "failing", reason, remedy)),
            driver_events=(),
            driver_calls=0,
            cpu_ms=0,
        )
        self._last, self._away = self._bounded(reading), True
        return self._last, events
