"""The MIG devices of one NVIDIA GPU: which there are, what identifies them, and what the driver hides of that.

An unprivileged process may be refused any of these calls. What is refused is unknown with its reason: a MIG device
that is not seen may be in use, so its GPU must not look free.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from pertoken.agent.probes.nvidia.gpm import METRICS as ACTIVITY
from pertoken.agent.probes.nvidia.gpm import Gpm, GpmRequest
from pertoken.agent.probes.nvidia.nvml import NONSENSE, Call, Fault, NvmlFault, Scope
from pertoken.agent.probes.nvidia.source import MEMORY, NAME, UUID, Source, Table
from pertoken.agent.probes.nvidia.xid import NO_INSTANCE
from pertoken.agent.readings import DeviceReading, Unavailable
from pertoken.units import SHARE

MAX_DEVICES = 64
"""Nine times what any GPU can be divided into: a larger count is no count."""
_IDENTITY: Table = {"name": (NAME,), "memory_bytes": MEMORY["memory_bytes"]}
_TICK: Table = {"memory_used_bytes": MEMORY["memory_used_bytes"]}
_MODES = {pynvml.NVML_DEVICE_MIG_DISABLE: False, pynvml.NVML_DEVICE_MIG_ENABLE: True}
_MODE = Call("nvmlDeviceGetMigMode", lambda modes: _MODES.get(modes[0]))
_COUNT, _DEVICE = Call("nvmlDeviceGetMaxMigDeviceCount"), Call("nvmlDeviceGetMigDeviceHandleByIndex")
_INSTANCE, _COMPUTE_INSTANCE = Call("nvmlDeviceGetGpuInstanceId"), Call("nvmlDeviceGetComputeInstanceId")
_COMPUTE_SLICES = Call("nvmlDeviceGetAttributes_v2", lambda attributes: attributes.computeInstanceSliceCount)
_OF_PARENT = "NVIDIA drivers report it for the whole GPU only, not for a MIG device"
_NOT_OF_MIG = ("util_1e4", "power_mw", "energy_mj", "sm_clock_mhz", "memory_clock_mhz", "temperature_c")
_HIDDEN = "the driver does not report which MIG devices this GPU is divided into: {}"
_HIDDEN_PART = "the driver does not report what part of the GPU it is: {}"
_HIDDEN_INSTANCE = "the driver does not report its GPU instance, which its activity is measured by: {}"


@dataclass(slots=True)
class MigDevice:
    """One MIG device as it is known, and the way to it."""

    known: DeviceReading
    handle: Any
    gpm: Gpm | None
    """None: its GPU instance is not known, which its activity is measured by."""
    gpu_instance: int | None
    compute_instance: int | None

    @property
    def identified(self) -> bool:
        """Whether the driver reported all that identifies it."""
        return None not in (self.gpu_instance, self.compute_instance, self.known.part_1e6)

    def read(self, source: Source, gpu: Any) -> tuple[dict[str, Any], dict[str, Unavailable]]:
        """Return its values and gaps now; `gpu` is the handle of its GPU. Raises NvmlFault."""
        values, unavailable = source.values(self.known.uuid, self.handle, _TICK)
        if self.gpm is not None:
            active, inactive = self.gpm.read(source.nvml, gpu, source.clock())
            values |= active
            unavailable |= inactive
        return values, {missing.metric: missing for missing in self.known.unavailable} | unavailable


class MigDevices:
    """The MIG devices of one GPU; they come and go while the GPU stays."""

    def __init__(self, source: Source, request: GpmRequest) -> None:
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
        for device in self:
            named = gpu_instance is not None and device.gpu_instance == gpu_instance
            if named and compute_instance in (device.compute_instance, None):
                return device.known.uuid
        return None

    def restart(self) -> None:
        """Begin their activity again, after the GPU's handle died."""
        for device in self:
            if device.gpm is not None:
                device.gpm = Gpm(device.known.uuid, self._request, device.gpu_instance)

    def find(self, gpu: DeviceReading, handle: Any) -> None:
        """Look for the MIG devices there are now. Raises NvmlFault if the GPU or the library fails.

        What the driver refuses to report of them leaves `hidden`, and those known before stay.
        """
        self.hidden = None
        enabled = self._source.answer(gpu.uuid, _MODE, handle)
        if isinstance(enabled, Fault) and enabled.status in ("unsupported", "missing"):
            enabled = False  # a GPU or a driver without MIG
        if isinstance(enabled, Fault):
            return self._hide(enabled)
        self.enabled = enabled
        if not enabled:
            self._devices = {}
            return None
        count = self._source.answer(gpu.uuid, _COUNT, handle)
        if isinstance(count, Fault) or not 0 <= count <= MAX_DEVICES:
            return self._hide(count if isinstance(count, Fault) else NONSENSE)
        devices: dict[str, MigDevice] = {}
        for index in range(count):
            try:
                device = self._at(gpu, handle, index, count)
            except NvmlFault as error:
                if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                    raise
                self._hide(error.fault)
                continue
            if device is not None and device.known.uuid in devices:
                self._hide(replace(NONSENSE, reason=f"two of them have the UUID {device.known.uuid}"))
            elif device is not None:
                devices[device.known.uuid] = device
        self._devices = {**self._devices, **devices} if self.hidden else devices
        return None

    def _hide(self, fault: Fault) -> None:
        self.hidden = replace(fault.missing("mig"), reason=_HIDDEN.format(fault.reason))

    def _at(self, gpu: DeviceReading, gpu_handle: Any, index: int, count: int) -> MigDevice | None:
        """Return the MIG device at an index of `count`; None if there is none. Raises NvmlFault if it has no UUID."""
        owner = f"{gpu.uuid} slice {index}"
        handle = self._source.answer(owner, _DEVICE, gpu_handle, index)
        if isinstance(handle, Fault):
            if handle.code == pynvml.NVML_ERROR_NOT_FOUND:
                return None
            raise NvmlFault(handle)
        uuid = self._source.nvml.ask(owner, UUID, handle)
        if not uuid:
            raise NvmlFault(NONSENSE)
        before = self._devices.get(uuid)
        if before is not None and before.identified:
            before.handle = handle
            return before
        return self._identify(gpu, uuid, handle, index, count)

    def _identify(self, gpu: DeviceReading, uuid: str, handle: Any, index: int, count: int) -> MigDevice:
        ask = self._source.answer
        values, unavailable = self._source.values(uuid, handle, _IDENTITY)
        values["name"] = f"{values.get('name', f'{gpu.name} MIG')} ({index})"
        instance, compute_instance = (ask(uuid, call, handle) for call in (_INSTANCE, _COMPUTE_INSTANCE))
        if instance == NO_INSTANCE:
            instance = NONSENSE
        if isinstance(instance, Fault):
            hidden = replace(instance.missing(""), reason=_HIDDEN_INSTANCE.format(instance.reason))
            unavailable |= {metric: replace(hidden, metric=metric) for metric in ACTIVITY}
            instance = None
        if isinstance(compute_instance, Fault) or compute_instance == NO_INSTANCE:
            compute_instance = None
        slices = ask(uuid, _COMPUTE_SLICES, handle)
        if not isinstance(slices, Fault) and not 0 < slices <= count:
            slices = NONSENSE
        if isinstance(slices, Fault):
            unavailable["part_1e6"] = replace(slices.missing("part_1e6"), reason=_HIDDEN_PART.format(slices.reason))
        else:
            values["part_1e6"] = slices * SHARE // count
        known = DeviceReading(
            uuid=uuid,
            kind="mig",
            vendor="NVIDIA",
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
        before = self._devices.get(uuid)
        gpm = before.gpm if before is not None and before.gpu_instance == instance else None
        if gpm is None and instance is not None:
            gpm = Gpm(uuid, self._request, instance)
        return MigDevice(known, handle, gpm, instance, compute_instance)
