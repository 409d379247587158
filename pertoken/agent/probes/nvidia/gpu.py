"""One NVIDIA GPU and its MIG devices: the driver calls that read them, and how often each is made.

PCIe throughput (20 ms per call) and fan speed are never read. The process list is slow on real drivers (milliseconds,
under a lock that the workload needs). It is read only on request, together with the values that change slowly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pynvml

from pertoken.agent.probes.nvidia import counters, nvml
from pertoken.agent.probes.nvidia.counters import Gpm, GpmRequest, read_processes
from pertoken.agent.probes.nvidia.nvml import DriverCall, DriverFault, DriverSource, FaultScope, NvmlFault, Table, Xid
from pertoken.agent.readings import DeviceProcess, DeviceReading, DriverEvent, Unavailable, reading_of
from pertoken.agent.workers import Backoff
from pertoken.units import SHARE

MAX_DEVICES = 64
"""Nine times what any GPU can be divided into: a larger count is no count."""
_IDENTITY: Table = {"name": (nvml.NAME,), "memory_bytes": nvml.MEMORY["memory_bytes"]}
_TICK: Table = {"memory_used_bytes": nvml.MEMORY["memory_used_bytes"]}
_MODES = {pynvml.NVML_DEVICE_MIG_DISABLE: False, pynvml.NVML_DEVICE_MIG_ENABLE: True}
_MODE = DriverCall("nvmlDeviceGetMigMode", lambda modes: _MODES.get(modes[0]))
_COUNT, _DEVICE = (
    DriverCall[int]("nvmlDeviceGetMaxMigDeviceCount"),
    DriverCall[object]("nvmlDeviceGetMigDeviceHandleByIndex"),
)
_INSTANCE, _COMPUTE_INSTANCE = (
    DriverCall[int]("nvmlDeviceGetGpuInstanceId"),
    DriverCall[int]("nvmlDeviceGetComputeInstanceId"),
)
_COMPUTE_SLICES = DriverCall[int]("nvmlDeviceGetAttributes_v2", lambda attributes: attributes.computeInstanceSliceCount)
_OF_PARENT = "NVIDIA drivers report it for the whole GPU only, not for a MIG device"
_NOT_OF_MIG = ("util_1e4", "power_mw", "energy_mj", "sm_clock_mhz", "memory_clock_mhz", "temperature_c")
_HIDDEN = "the driver does not report which MIG devices this GPU is divided into: {}"
_HIDDEN_PART = "the driver does not report what part of the GPU it is: {}"
_HIDDEN_INSTANCE = "the driver does not report its GPU instance, which its activity is measured by: {}"


@dataclass(slots=True)
class MigDevice:
    """One MIG device."""

    identity: DeviceReading
    handle: object
    gpm: Gpm | None
    """None: the GPU instance that its activity is measured by is not known."""
    gpu_instance: int | None
    compute_instance: int | None

    @property
    def identified(self) -> bool:
        """Whether the driver reported all that identifies it."""
        return None not in (self.gpu_instance, self.compute_instance, self.identity.part_1e6)

    def read(self, source: DriverSource, gpu: object) -> tuple[dict[str, object], dict[str, Unavailable]]:
        """Return its values and gaps now; `gpu` is the handle of its GPU. Raises NvmlFault."""
        values, unavailable = source.values(self.identity.uuid, self.handle, _TICK)
        if self.gpm is not None:
            active, inactive = self.gpm.read(source.nvml, gpu, source.clock())
            values |= active
            unavailable |= inactive
        return values, {missing.metric: missing for missing in self.identity.unavailable} | unavailable


class MigDevices:
    """The MIG devices of one GPU; they come and go while the GPU stays."""

    def __init__(self, source: DriverSource, request: GpmRequest) -> None:
        self._source, self._request = source, request
        self._devices: dict[str, MigDevice] = {}
        self.enabled = False
        """Whether the GPU is in MIG mode, as far as that is known."""
        self.hidden: Unavailable | None = None
        """Why it is not known which MIG devices there are."""

    def __iter__(self) -> Iterator[MigDevice]:
        return iter(self._devices.values())

    def struck(self, gpu_instance: int | None, compute_instance: int | None) -> str | None:
        """Return the UUID of the MIG device that an Xid names by its instances; None if it names none known."""
        if gpu_instance is None:
            return None
        for device in self:
            if device.gpu_instance == gpu_instance and compute_instance in (device.compute_instance, None):
                return device.identity.uuid
        return None

    def restart(self) -> None:
        """Begin their activity again, after the GPU's handle died."""
        for device in self:
            if device.gpm is not None:
                device.gpm = Gpm(device.identity.uuid, self._request, device.gpu_instance)

    def find(self, gpu: DeviceReading, handle: object) -> None:
        """Look for the MIG devices there are now. Raises NvmlFault if the GPU or the library fails.

        An answer that the driver refuses leaves `hidden`, and the earlier devices stay.
        """
        self.hidden = None
        enabled = self._source.answer(gpu.uuid, _MODE, handle)
        if isinstance(enabled, DriverFault) and enabled.status in ("unsupported", "missing"):
            enabled = False  # a GPU or a driver without MIG
        if isinstance(enabled, DriverFault):
            return self._hide(enabled)
        self.enabled = enabled
        if not enabled:
            self._devices = {}
            return None
        count = self._source.answer(gpu.uuid, _COUNT, handle)
        if isinstance(count, DriverFault) or not 0 <= count <= MAX_DEVICES:
            return self._hide(count if isinstance(count, DriverFault) else nvml.NONSENSE)
        devices: dict[str, MigDevice] = {}
        for index in range(count):
            try:
                device = self._device(gpu, handle, index, count)
            except NvmlFault as error:
                self._hide(error.of_call())
                continue
            if device is not None and device.identity.uuid in devices:
                self._hide(replace(nvml.NONSENSE, reason=f"two of them have the UUID {device.identity.uuid}"))
            elif device is not None:
                devices[device.identity.uuid] = device
        self._devices = {**self._devices, **devices} if self.hidden else devices
        return None

    def _hide(self, fault: DriverFault) -> None:
        self.hidden = replace(fault.missing("mig"), reason=_HIDDEN.format(fault.reason))

    def _device(self, gpu: DeviceReading, gpu_handle: object, index: int, count: int) -> MigDevice | None:
        """Return the MIG device at an index of `count`; None if there is none. Raises NvmlFault if it has no UUID."""
        owner = f"{gpu.uuid} slice {index}"
        handle = self._source.answer(owner, _DEVICE, gpu_handle, index)
        if isinstance(handle, DriverFault):
            if handle.code == pynvml.NVML_ERROR_NOT_FOUND:
                return None
            raise NvmlFault(handle)
        uuid = self._source.nvml.ask(owner, nvml.UUID, handle)
        if not uuid:
            raise NvmlFault(nvml.NONSENSE)
        device = self._devices.get(uuid)
        if device is not None and device.identified:
            device.handle = handle
            return device
        return self._identify(gpu, uuid, handle, index, count)

    def _identify(self, gpu: DeviceReading, uuid: str, handle: object, index: int, count: int) -> MigDevice:
        ask = self._source.answer
        values, unavailable = self._source.values(uuid, handle, _IDENTITY)
        name = f"{values.pop('name', f'{gpu.name} MIG')} ({index})"
        gpu_answer, compute_answer = (ask(uuid, call, handle) for call in (_INSTANCE, _COMPUTE_INSTANCE))
        instance: int | None = None
        if isinstance(gpu_answer, DriverFault) or gpu_answer == nvml.NO_INSTANCE:
            fault = gpu_answer if isinstance(gpu_answer, DriverFault) else nvml.NONSENSE
            hidden = replace(fault.missing(""), reason=_HIDDEN_INSTANCE.format(fault.reason))
            unavailable |= {metric: replace(hidden, metric=metric) for metric in counters.METRICS}
        else:
            instance = gpu_answer
        compute = (
            None if isinstance(compute_answer, DriverFault) or compute_answer == nvml.NO_INSTANCE else compute_answer
        )
        slices = ask(uuid, _COMPUTE_SLICES, handle)
        if not isinstance(slices, DriverFault) and not 0 < slices <= count:
            slices = nvml.NONSENSE
        if isinstance(slices, DriverFault):
            unavailable["part_1e6"] = replace(slices.missing("part_1e6"), reason=_HIDDEN_PART.format(slices.reason))
        else:
            values["part_1e6"] = slices * SHARE // count
        identity = DeviceReading(
            uuid=uuid,
            kind="mig",
            vendor="NVIDIA",
            name=name,
            slot=gpu.slot,
            driver_version=gpu.driver_version,
            pci_bus_id=gpu.pci_bus_id,
            parent_uuid=gpu.uuid,
            unavailable=(
                *unavailable.values(),
                *(Unavailable(metric, "unsupported", _OF_PARENT) for metric in _NOT_OF_MIG),
            ),
            **values,
        )
        previous = self._devices.get(uuid)
        gpm = previous.gpm if previous is not None and previous.gpu_instance == instance else None
        if gpm is None and instance is not None:
            gpm = Gpm(uuid, self._request, instance)
        return MigDevice(identity, handle, gpm, instance, compute)


IDENTITY: Table = {
    "name": (nvml.NAME,),
    "memory_bytes": nvml.MEMORY["memory_bytes"],
    "power_limit_mw": (DriverCall("nvmlDeviceGetEnforcedPowerLimit"),),
    "pci_bus_id": (DriverCall("nvmlDeviceGetPciInfo", lambda pci: pci.busId),),
}
"""Read when a GPU is found. The power limit is read again with the slow values, because caps change."""
TICK: Table = {
    "util_1e4": (DriverCall("nvmlDeviceGetUtilizationRates", lambda rates: rates.gpu * 100),),
    "memory_used_bytes": nvml.MEMORY["memory_used_bytes"],
    "sm_clock_mhz": (DriverCall("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_SM,)),),
    "throttle_reasons": (
        DriverCall("nvmlDeviceGetCurrentClocksEventReasons"),
        DriverCall("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
}
"""Read at each tick, beside field values and GPM."""
SLOW: Table = {
    "memory_clock_mhz": (DriverCall("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_MEM,)),),
    "temperature_c": (
        DriverCall("nvmlDeviceGetTemperatureV", arguments=(pynvml.NVML_TEMPERATURE_GPU,)),
        DriverCall("nvmlDeviceGetTemperature", arguments=(pynvml.NVML_TEMPERATURE_GPU,)),
    ),
}
"""Read with the processes, and kept until they are read again."""
_BY_UUID = DriverCall[object]("nvmlDeviceGetHandleByUUID")
_NO_UUID = DriverFault(
    FaultScope.DEVICE, "failing", "the driver reports no UUID for this GPU", "update the NVIDIA driver"
)
_SWAPPED = "its handle leads to another GPU now ({}): it was replaced, or the driver was reloaded"


class Gpu:
    """A GPU with its identity and its handle; None as the handle: it must be looked up by its UUID again."""

    def __init__(self, source: DriverSource, identity: DeviceReading, handle: object) -> None:
        self._source = source
        self.identity, self.handle = identity, handle
        self.lost: str | None = None
        self._backoff = Backoff(source.clock)
        self._energy_mj: object = None
        self.swapped_for: str | None = None
        """UUID of the GPU that the handle leads to now, if it is another one."""
        self._slow: tuple[dict[str, object], dict[str, Unavailable]] | None = None
        self._seen_us = 0
        # One buffer per GPU: a call that hangs on one GPU may write its result while another GPU is read.
        self._gpm_request, self._field_requests = GpmRequest(), counters.Requests()
        self._gpm = Gpm(identity.uuid, self._gpm_request)
        self._mig = MigDevices(source, self._gpm_request)

    @classmethod
    def open(cls, source: DriverSource, handle: object, slot: int, driver_version: str | None) -> Gpu:
        """Return the GPU behind a handle. Raises NvmlFault if the driver does not report its UUID."""
        uuid = source.nvml.ask(f"slot {slot}", nvml.UUID, handle)
        if not uuid:
            raise NvmlFault(_NO_UUID)
        values, unavailable = source.values(uuid, handle, IDENTITY)
        name = str(values.pop("name", "NVIDIA GPU"))
        gaps = tuple(unavailable.values())
        identity = DeviceReading(
            uuid, "gpu", "NVIDIA", name, slot, driver_version=driver_version, unavailable=gaps, **values
        )
        return cls(source, identity, handle)

    @property
    def place(self) -> str:
        """Its bus id, else its slot, as text for people."""
        return self.identity.pci_bus_id or f"slot {self.identity.slot}"

    def is_beside(self, namesake: Gpu, in_another_slot: bool) -> bool:
        """Return whether a GPU of the same UUID is another card: by their bus ids, else by their slots."""
        if self.identity.pci_bus_id and namesake.identity.pci_bus_id:
            return self.identity.pci_bus_id != namesake.identity.pci_bus_id
        return in_another_slot

    def unread(self, why: str | None = None) -> tuple[DeviceReading, ...]:
        """Return readings of the GPU and its MIG devices without values, with the reason."""
        identities = (self.identity, *(device.identity for device in self._mig))
        return tuple(reading._replace(lost=why or self.lost) for reading in identities)

    def lose(self, why: str) -> None:
        """Drop its handle, and the GPM samples that were started with it."""
        self.handle, self.lost = None, why
        self._gpm = Gpm(self.identity.uuid, self._gpm_request)
        self._mig.restart()

    def struck(self, xid: Xid) -> DriverEvent:
        """Return an Xid as an event: of the MIG device if the driver names one, else of the GPU."""
        text = f"the driver reported Xid {xid.number}; NVIDIA's Xid list explains it"
        uuid = self._mig.struck(xid.gpu_instance, xid.compute_instance)
        if uuid is None and self._mig.enabled:
            named = "no MIG device, as it does for an unprivileged agent or an error of the whole GPU"
            if xid.gpu_instance is not None:
                named = f"GPU instance {xid.gpu_instance}, where no MIG device is known"
            text += f". It struck a GPU in MIG devices; the driver names {named}"
        return DriverEvent(uuid or self.identity.uuid, "xid", text)

    def free(self) -> None:
        """Free the memory that the driver keeps for its GPM samples. Raises NvmlFault."""
        for gpm in (self._gpm, *(device.gpm for device in self._mig)):
            if gpm is not None:
                gpm.free(self._source.nvml)

    def read(self, processes: bool) -> tuple[DeviceReading, ...]:
        """Return readings of the GPU and its MIG devices. Raises NvmlFault only for a fault of the whole library."""
        if self.lost and not self._backoff.due:
            return self.unread()
        try:
            if self.handle is None:
                self.handle = self._source.nvml.ask(self.identity.uuid, _BY_UUID, self.identity.uuid)
                self._slow = self._energy_mj = None
            readings = self._read(processes)
        except NvmlFault as error:
            if error.fault.scope is FaultScope.LIBRARY:
                raise
            gone = self.handle is None and error.fault.code == pynvml.NVML_ERROR_NOT_FOUND
            self.lose(nvml.GONE.reason if gone else error.fault.reason)
            self._backoff.failed()
            return self.unread()
        if self.lost:
            self.lost, self._backoff = None, Backoff(self._source.clock)
        return readings

    def _read(self, processes: bool) -> tuple[DeviceReading, ...]:
        source, uuid = self._source, self.identity.uuid
        slow = processes or self._slow is None
        values, unavailable = source.values(uuid, self.handle, TICK)
        fields = counters.ALL if slow else counters.TICK
        field_values, hidden = counters.read_fields(source.nvml, uuid, self.handle, fields, self._field_requests)
        values |= field_values
        unavailable |= hidden
        if not values:
            raise NvmlFault(replace(nvml.LOST, reason=f"the GPU answers nothing: {unavailable['power_mw'].reason}"))
        energy_mj, earlier_mj = values.get("energy_mj"), self._energy_mj
        fell = isinstance(energy_mj, int) and isinstance(earlier_mj, int) and energy_mj < earlier_mj
        self._energy_mj = energy_mj
        if processes or fell:
            self._check_identity()
        if slow:
            self._read_slow(processes, values, unavailable)
        for metric, value in self._slow[0].items() if self._slow else ():
            values.setdefault(metric, value)
        for metric, missing in self._slow[1].items() if self._slow else ():
            unavailable.setdefault(metric, missing)
        if not self._mig.enabled:
            activity, hidden = self._gpm.read(source.nvml, self.handle, source.clock())
            values |= activity
            unavailable |= hidden
        if processes:
            values["processes"], hidden = self._processes(self.identity, self.handle)
            unavailable |= hidden
        unavailable = {missing.metric: missing for missing in self.identity.unavailable} | unavailable
        reading = reading_of(self.identity, **values, unavailable=tuple(unavailable.values()))
        return (reading, *(self._read_mig(device, processes) for device in self._mig))

    def _check_identity(self) -> None:
        """Raise NvmlFault if the handle leads to another GPU than before: a driver may exchange them."""
        uuid = self._source.answer(self.identity.uuid, nvml.UUID, self.handle)
        if isinstance(uuid, DriverFault) or uuid == self.identity.uuid:
            return
        # A driver that reports another UUID each time has swapped nothing.
        if uuid and uuid == self._source.answer(self.identity.uuid, nvml.UUID, self.handle):
            self.swapped_for = uuid
            raise NvmlFault(replace(nvml.GONE, reason=_SWAPPED.format(uuid)))

    def _read_slow(self, processes: bool, values: dict[str, object], unavailable: dict[str, Unavailable]) -> None:
        """Read the values that change slowly: memory clock, temperature, memory errors, power cap, MIG."""
        slow_values, slow_unavailable = self._source.values(self.identity.uuid, self.handle, SLOW)
        for metric in (field.metric for field in counters.SLOW):
            if metric in values:
                slow_values[metric] = values[metric]
            if metric in unavailable:
                slow_unavailable[metric] = unavailable[metric]
        if self._slow is not None or processes:
            self._complete_identity()
        self._slow = slow_values, slow_unavailable
        self._mig.find(self.identity, self.handle)
        if self._mig.hidden is not None:
            slow_unavailable["mig"] = self._mig.hidden

    def _complete_identity(self) -> None:
        """Read the power cap again, which may change, and the metrics that were not readable at first."""
        unread_metrics = {missing.metric for missing in self.identity.unavailable} | {"power_limit_mw"}
        table = {metric: calls for metric, calls in IDENTITY.items() if metric in unread_metrics}
        values, unavailable = self._source.values(self.identity.uuid, self.handle, table)
        self.identity = self.identity._replace(**values, unavailable=tuple(unavailable.values()))

    def _processes(
        self, device: DeviceReading, handle: object
    ) -> tuple[tuple[DeviceProcess, ...] | None, dict[str, Unavailable]]:
        """Return the processes on this GPU or on one of its MIG devices, or the reason why they are unknown."""
        hidden = self._mig.hidden if device is self.identity else None
        unseen = {} if hidden is None else {"processes": replace(hidden, metric="processes")}
        if device is self.identity and self._mig.enabled:
            return None if unseen else (), unseen  # they run on its MIG devices
        listed = read_processes(self._source.nvml, device.uuid, handle, device.memory_bytes, self._seen_us)
        self._seen_us = listed.seen_us
        if listed.missing is not None:
            return None, {"processes": listed.missing}
        if unseen and not listed.processes:
            return None, unseen
        return listed.processes, {}

    def _read_mig(self, device: MigDevice, processes: bool) -> DeviceReading:
        values, unavailable = device.read(self._source, self.handle)
        if processes:
            values["processes"], hidden = self._processes(device.identity, device.handle)
            unavailable |= hidden
        return reading_of(device.identity, **values, unavailable=tuple(unavailable.values()))
