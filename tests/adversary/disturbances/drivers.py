"""GPUs whose driver lies, refuses, hangs, or loses them."""

import os
from dataclasses import dataclass, replace

import pynvml

from tests.adversary.scene import Scene

UINT64_MAX, UINT32_MAX = 2**64 - 1, 2**32 - 1
ENERGY = ("nvmlDeviceGetTotalEnergyConsumption", pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)
POWER = ("nvmlDeviceGetPowerUsage", pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE)

MIG = ("nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex")
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


@dataclass(frozen=True, slots=True)
class _OfGpu:
    gpu: str
    """Its UUID."""
    seconds: float = 5.0

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({self.gpu})


@dataclass(frozen=True, slots=True)
class Values(_OfGpu):
    """Calls answer this number instead of the true one."""

    calls: tuple[str | int, ...] = ENERGY
    value: int = UINT64_MAX

    def begin(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, lies=tuple((call, self.value) for call in self.calls))

    def end(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, lies=())


@dataclass(frozen=True, slots=True)
class Refuses(_OfGpu):
    """Calls fail with an error code."""

    calls: tuple[str, ...] = MIG
    code: int = pynvml.NVML_ERROR_NO_PERMISSION

    def begin(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, failing=tuple((call, self.code) for call in self.calls))

    def end(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, failing=())


@dataclass(frozen=True, slots=True)
class HangingCall(_OfGpu):
    """Each call of one function blocks until the end."""

    call: str = "nvmlDeviceGetUtilizationRates"

    def begin(self, scene: Scene) -> None:
        fifo = scene.folder / f"hang-{self.gpu}-{self.call}"
        if not fifo.exists():
            os.mkfifo(fifo)
        scene.change_gpu(self.gpu, hang=(self.call, str(fifo)))

    def end(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, hang=None)
        fd = os.open(scene.folder / f"hang-{self.gpu}-{self.call}", os.O_RDWR | os.O_NONBLOCK)
        scene.held.setdefault("fifos", []).append(fd)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Lost(_OfGpu):
    """It falls off the bus, and comes back at the end; with `listed` its slot stays."""

    listed: bool = True

    def begin(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, **({"lost_after": 0} if self.listed else {"removed": True}))

    def end(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, lost_after=None, removed=False)


@dataclass(frozen=True, slots=True)
class SameUuid(_OfGpu):
    """The GPU in the last slot shows the UUID of this one, too."""

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({self.gpu, "last GPU"})

    def begin(self, scene: Scene) -> None:
        scene.held["uuid of the last GPU"] = scene.gpus[-1].uuid
        scene.gpus[-1] = replace(scene.gpus[-1], uuid=self.gpu)
        scene.reloads += 1
        scene.show_gpus()

    def end(self, scene: Scene) -> None:
        scene.gpus[-1] = replace(scene.gpus[-1], uuid=str(scene.held["uuid of the last GPU"]))
        scene.reloads += 1
        scene.show_gpus()


@dataclass(frozen=True, slots=True)
class OtherUuid(_OfGpu):
    """Behind the handle of this GPU another one answers; at the end it is there again."""

    @property
    def touches(self) -> frozenset[str]:
        # The other one is a device of its own, which is there for a while.
        return frozenset({self.gpu, f"{self.gpu}-other"})

    def begin(self, scene: Scene) -> None:
        scene.change_gpu(self.gpu, uuid=f"{self.gpu}-other")

    def end(self, scene: Scene) -> None:
        scene.change_gpu(f"{self.gpu}-other", uuid=self.gpu)


@dataclass(frozen=True, slots=True)
class OtherSlot(_OfGpu):
    """It and the GPU in the last slot change places, and the driver is loaded again."""

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({self.gpu, "last GPU"})

    def begin(self, scene: Scene) -> None:
        slot = next(slot for slot, gpu in enumerate(scene.gpus) if gpu.uuid == self.gpu)
        scene.gpus[slot], scene.gpus[-1] = scene.gpus[-1], scene.gpus[slot]
        scene.reloads += 1
        scene.show_gpus()

    def end(self, scene: Scene) -> None:
        """Nothing: they stay there."""
