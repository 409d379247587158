"""NVIDIA GPUs through `nvidia-ml-py`: the library, the GPUs it lists, and the faults of both."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pynvml

from pertoken.agent.probes.nvidia import nvml
from pertoken.agent.probes.nvidia.gpu import Gpu
from pertoken.agent.probes.nvidia.nvml import (
    DriverCall,
    DriverFault,
    DriverSource,
    FaultScope,
    Nvml,
    NvmlFault,
    XidWatch,
)
from pertoken.agent.readings import DeviceReading, DriverEvent, Unavailable
from pertoken.agent.workers import HANGS, PATIENCE_S, Backoff, Clock, Patience

# The words of `state.fleet.LINKS`, which this process does without.
NVLINK, SWITCH, HOST, SOCKET = "nvlink", "pcie_switch", "pcie_host", "cross_socket"
_PEER = DriverCall[int]("nvmlDeviceGetP2PStatus", arguments=(pynvml.NVML_P2P_CAPS_INDEX_NVLINK,))
_ANCESTOR = DriverCall[int]("nvmlDeviceGetTopologyCommonAncestor")
BY_ANCESTOR = {
    pynvml.NVML_TOPOLOGY_INTERNAL: SWITCH,
    pynvml.NVML_TOPOLOGY_SINGLE: SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: SWITCH,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: HOST,
    pynvml.NVML_TOPOLOGY_NODE: HOST,
    pynvml.NVML_TOPOLOGY_SYSTEM: SOCKET,
}


def link(source: DriverSource, owner: str, *handles: object) -> str | None:
    """Return the link between two GPUs; None where the driver does not report whether it is NVLink.

    Raises NvmlFault if the device or the library fails.
    """
    peer = source.answer(owner, _PEER, *handles)
    if isinstance(peer, DriverFault) or peer == pynvml.NVML_P2P_STATUS_UNKNOWN:
        return None
    if peer == pynvml.NVML_P2P_STATUS_OK:
        return NVLINK
    ancestor = source.answer(owner, _ANCESTOR, *handles)
    return None if isinstance(ancestor, DriverFault) else BY_ANCESTOR.get(ancestor)


def links_by_gpu(pairs: Mapping[tuple[str, str], str | None], uuids: Iterable[str]) -> dict[str, str | None]:
    """Return the links of each GPU as text for its row; None for a GPU without any that is known."""
    links: dict[str, dict[str, list[str]]] = {uuid: defaultdict(list) for uuid in uuids}
    for pair, kind in pairs.items():
        if kind is not None:
            for uuid, peer in (pair, pair[::-1]):
                links[uuid][kind].append(peer)
    return {uuid: json.dumps(kinds, sort_keys=True) if kinds else None for uuid, kinds in links.items()}


_INIT, _SHUTDOWN = DriverCall[object]("nvmlInit"), DriverCall[object]("nvmlShutdown")
_DRIVER_VERSION, _COUNT = DriverCall[str]("nvmlSystemGetDriverVersion"), DriverCall[int]("nvmlDeviceGetCount")
_BY_SLOT = DriverCall[object]("nvmlDeviceGetHandleByIndex")
MAX_GPUS = 1024
"""Limit of a believable count, above that of any host."""
_UNCOUNTED = "the driver does not report how many GPUs there are ({}): those known before are read"
_DUPLICATE = "the driver reports the UUID {} for the GPU at {} and for the GPU at {}: only the first is recorded"
_LIBRARY = ""
"""Owner of the calls that belong to no device."""
_HANGS = Unavailable(
    "nvidia", "failing", "a call of the NVIDIA driver hangs: nothing is asked of it until it returns", "dmesg"
)


class NvidiaProbe:
    """Reads all NVIDIA GPUs of this host; one that fails or hangs costs only itself.

    `clock` is monotonic seconds, `proc` the /proc to look up pids and host memory in. `watch`, if given, waits for
    Xids. A call that takes longer than `patience_s` hangs.
    """

    def __init__(
        self,
        clock: Clock = time.monotonic,
        proc: Path = Path("/proc"),
        watch: XidWatch | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.nvml = Nvml()
        self.outdated = False
        """The driver changed under the library this process has loaded: only a new process can read it."""
        self._clock = clock
        self._source = DriverSource(self.nvml, clock, proc)
        self._watch = watch
        self._patience = Patience("nvidia", patience_s)
        self._gpus: dict[str, Gpu] = {}
        self._unseen: dict[int, tuple[Unavailable, Backoff]] = {}
        """Slots with a GPU that does not report its UUID."""
        self._listed = 0
        """Number of GPUs by the driver's count."""
        self._linked: frozenset[str] | None = None
        """GPUs with links that were read; None before the second look."""
        self._uncounted: Unavailable | None = None
        """Why that could not be read again."""
        self._reported: DriverFault | None = None
        """The fault of the library that was reported, and after which nothing was read."""
        self._driver_version: str | None = None
        self._up = self._was_up = self._ready = False
        """Initialised; ever initialised; its GPUs looked for."""
        self._no_xids: dict[str, Unavailable] = {}
        self._events: list[DriverEvent] = []
        self._down: tuple[Unavailable, ...] = ()
        self._backoff = Backoff(clock)

    @property
    def calls(self) -> int:
        """Driver calls made so far."""
        return self.nvml.calls + (self._watch.calls if self._watch else 0)

    def read(self, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Unavailable, ...]]:
        """Return every GPU ever seen, by slot, and the gaps of the whole host. No driver error is raised."""
        once_more = self._up
        while self._up or self._backoff.due:
            if not self._ready and self._patience.hung:
                break
            try:
                if not self._ready and not self._start():
                    break
                self._look_again(processes)
                readings = self._read(processes)
                self._reported = None
                uncounted = (self._uncounted,) if self._uncounted else ()
                return readings, (*(missing for missing, _ in self._unseen.values()), *uncounted)
            except NvmlFault as error:
                self._stop(error.fault)
                if not once_more:
                    self._backoff.failed()
                once_more = False
        down = (*self._down, _HANGS) if self._patience.hung else self._down
        return _by_slot([reading for gpu in self._gpus.values() for reading in gpu.unread(gpu.lost or HANGS)]), down

    def driver_events(self) -> tuple[DriverEvent, ...]:
        """Return the driver's events since the last call."""
        events, self._events = self._events, []
        xids = self._watch.pending() if self._watch else ()
        # The same error may strike a thousand times between two readings.
        return tuple(dict.fromkeys((*events, *(self._gpus[xid.uuid].struck(xid) for xid in xids))))

    def close(self) -> None:
        """Release the driver, so that it can be unloaded. A call that hangs is left to return."""
        self._release()
        self._patience.close()

    # -- the library -----------------------------------------------------------------------------------------------

    def _start(self) -> bool:
        """Initialise and find the GPUs; False if that hangs. Raises NvmlFault."""
        if not self._up and self._patience.map(lambda _: self._initialise(), [_LIBRARY]) != [True]:
            return False
        for gpu in self._gpus.values():
            gpu.lose(nvml.GONE.reason)
        self._unseen.clear()
        self._find_all(range(self._listed))
        self._backoff = Backoff(self._clock)
        self._watch_for_xids()
        self._ready = True
        return True

    def _initialise(self) -> bool:
        try:
            self.nvml.ask(_LIBRARY, _INIT)
        except NvmlFault as error:
            raise NvmlFault(nvml.NO_ENTRY) if error.fault is nvml.DENIED else error from None
        self._up = self._was_up = True
        version = self._source.answer(_LIBRARY, _DRIVER_VERSION)
        self._driver_version = None if isinstance(version, DriverFault) else version
        count = self._count()
        if isinstance(count, DriverFault):
            raise NvmlFault(replace(count, scope=FaultScope.LIBRARY))
        self._listed = count
        return True

    def _count(self) -> int | DriverFault:
        """Return the number of GPUs, or the fault of the driver's answer. Raises NvmlFault."""
        count = self._source.answer(_LIBRARY, _COUNT)
        return count if isinstance(count, DriverFault) or 0 <= count <= MAX_GPUS else nvml.NONSENSE

    def _stop(self, fault: DriverFault) -> None:
        if self._up and fault != self._reported:
            self._events.append(DriverEvent(None, "driver", f"{fault.reason}: its GPUs were released"))
            self._reported = fault
        self._release()
        self.nvml.forget()
        self.outdated = fault is nvml.OUTDATED and self._was_up
        self._down = (fault.missing("nvidia"),)
        for gpu in self._gpus.values():
            gpu.lose(fault.reason)

    def _release(self) -> None:
        if not self._up:
            return
        self._up = self._ready = False
        if self._watch:
            self._watch.stop()
        if self._patience.hung:
            return  # shutting a library down under its own call is asking for more trouble
        with suppress(NvmlFault):
            for gpu in self._gpus.values():
                gpu.free()
        with suppress(NvmlFault):
            self.nvml.ask(_LIBRARY, _SHUTDOWN)

    # -- finding GPUs ----------------------------------------------------------------------------------------------

    def _look_again(self, listing: bool) -> None:
        """Try slots that failed; now and then, see whether GPUs were added or pulled out."""
        swapped = [gpu for gpu in self._gpus.values() if gpu.swapped_for is not None]
        for gpu in swapped:
            text = f"the handle of this GPU leads to {gpu.swapped_for} now, which is looked for"
            self._events.append(DriverEvent(gpu.identity.uuid, "device_swapped", text))
            gpu.swapped_for = None
        if listing or swapped:
            count = self._count()
            if isinstance(count, DriverFault):
                self._uncounted = replace(count.missing("gpus"), reason=_UNCOUNTED.format(count.reason))
                count = self._listed
            else:
                self._uncounted = None
            if swapped or count != self._listed:
                self._listed = count
                self._unseen.clear()
                self._find_all(range(count))
            self._watch_for_xids()
            self._read_links()
        due = [slot for slot, (_, backoff) in self._unseen.items() if backoff.due]
        if due:
            self._find_all(due)

    def _read_links(self) -> None:
        """Read how the GPUs reach each other when there are new ones; not before the first reading, which waits."""
        gpus = [gpu for gpu in self._gpus.values() if gpu.handle is not None]
        present = frozenset(gpu.identity.uuid for gpu in gpus)
        if self._linked is None or present <= self._linked:
            self._linked = self._linked or frozenset()
            return
        self._linked = present
        pairs: dict[tuple[str, str], str | None] = {}
        for pairs_of_gpu in self._patience.map(partial(self._links_of, gpus), gpus):
            pairs |= pairs_of_gpu or {}
        for uuid, links in links_by_gpu(pairs, present).items():
            self._gpus[uuid].identity = self._gpus[uuid].identity._replace(links=links)

    def _links_of(self, gpus: Sequence[Gpu], gpu: Gpu) -> dict[tuple[str, str], str | None]:
        """Return how a GPU reaches the ones after it: a link is the same in both directions."""
        uuid = gpu.identity.uuid
        peers = gpus[gpus.index(gpu) + 1 :]
        return {(uuid, peer.identity.uuid): link(self._source, uuid, gpu.handle, peer.handle) for peer in peers}

    def _watch_for_xids(self) -> None:
        if self._watch:
            hung = self._patience.hung
            handles = {key: gpu.handle for key, gpu in self._gpus.items() if gpu.handle is not None and gpu not in hung}
            self._no_xids = self._watch.watch(self.nvml, handles)

    def _find_all(self, slots: range | list[int]) -> None:
        """Ask each slot for its GPU; a GPU that is already listed and not lost stays as it is."""
        placed: set[str] = set()
        for slot, result in zip(slots, self._patience.map(self._find, slots), strict=True):
            backoff = self._unseen[slot][1] if slot in self._unseen else Backoff(self._clock)
            if result is None:
                result = replace(_HANGS, metric=f"gpu {slot}")
            kind = "device_lost"
            listed = None if isinstance(result, Unavailable) else self._gpus.get(result.identity.uuid)
            if not isinstance(result, Unavailable) and listed is not None and listed.handle is not None:
                again = result.identity.uuid in placed or (slot in self._unseen and slot != listed.identity.slot)
                if listed.is_beside(result, again):
                    reason = _DUPLICATE.format(listed.identity.uuid, listed.place, result.place)
                    result = Unavailable(f"gpu {slot}", "failing", reason, "update the NVIDIA driver")
                    kind = "device_duplicate"
            if isinstance(result, Unavailable):
                if slot not in self._unseen and not any(gpu.identity.slot == slot for gpu in self._gpus.values()):
                    self._events.append(DriverEvent(None, kind, f"{result.metric}: {result.reason}"))
                backoff.failed()
                self._unseen[slot] = result, backoff
                continue
            self._unseen.pop(slot, None)
            placed.add(result.identity.uuid)
            if listed is None or listed.handle is None:
                self._gpus[result.identity.uuid] = result

    def _find(self, slot: int) -> Gpu | Unavailable:
        try:
            handle = self.nvml.ask(f"slot {slot}", _BY_SLOT, slot)
            return Gpu.open(self._source, handle, slot, self._driver_version)
        except NvmlFault as error:
            if error.fault.scope is FaultScope.LIBRARY:
                raise
            return error.fault.missing(f"gpu {slot}")

    # -- reading them ----------------------------------------------------------------------------------------------

    def _read(self, processes: bool) -> tuple[DeviceReading, ...]:
        read = partial(Gpu.read, processes=processes)
        gpus = list(self._gpus.values())
        devices: list[DeviceReading] = []
        for gpu, readings in zip(gpus, self._patience.map(read, gpus), strict=True):
            devices += gpu.unread(HANGS) if readings is None else readings
        return _by_slot([self._with_xids(reading) for reading in devices])

    def _with_xids(self, reading: DeviceReading) -> DeviceReading:
        missing = self._no_xids.get(reading.uuid)
        return (
            reading._replace(unavailable=(*reading.unavailable, missing)) if missing and not reading.lost else reading
        )


def _by_slot(readings: list[DeviceReading]) -> tuple[DeviceReading, ...]:
    return tuple(sorted(readings, key=lambda reading: reading.slot or 0))
