"""A stand-in ROCm library under the real `amdsmi` package: two GPUs behind the C functions the probe uses.

Struct layouts are the package's own.
"""

import ctypes
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NOT_SUPPORTED = 2


class RocmLibrary:
    """`refuse` maps C functions to the error code they answer; `without` are symbols it lacks; `calls` counts.

    `partitioned`: both are partitions of one card, under one UUID, and both report the card's power. `silent` is the
    number (1 or 2) of a GPU that does not report its UUID. `hang`: that C function, asked of that GPU (None: of any),
    does not return before the event.
    """

    hang: tuple[str, int | None, threading.Event] | None = None

    def __init__(
        self,
        refuse: dict[str, int],
        processes: tuple[tuple[int, int], ...] = (),
        without: tuple[str, ...] = (),
        partitioned: bool = False,
        silent: int | None = None,
    ) -> None:
        self.silent = silent
        self.partitioned = partitioned
        self.without = without
        self.refuse = refuse
        self.processes = processes
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("amdsmi_") or name in self.without:
            raise AttributeError(name)
        function = _Function(self, name)
        setattr(self, name, function)
        return function


class _Function:
    def __init__(self, library: RocmLibrary, name: str) -> None:
        self.library, self.name = library, name

    def __call__(self, *given: Any) -> int:
        self.library.calls[self.name] += 1
        gpu = getattr(given[0], "value", None) if given else None
        hang = self.library.hang
        if hang and hang[0] == self.name and hang[1] in (None, gpu):
            hang[2].wait()
        if self.name in self.library.refuse:
            return self.library.refuse[self.name]
        if self.name == "amdsmi_get_gpu_device_uuid" and gpu == self.library.silent:
            return 16
        body: Callable[..., None] | None = globals().get(f"_{self.name}")
        if body is None:
            return NOT_SUPPORTED
        body(self.library, *(getattr(value, "_obj", value) for value in given))
        return 0


def _amdsmi_init(library: RocmLibrary, flags: Any) -> None: ...


def _amdsmi_shut_down(library: RocmLibrary) -> None: ...


def _amdsmi_get_socket_handles(library: RocmLibrary, count: Any, out: Any) -> None:
    count.value = 2
    if out:
        out[0], out[1] = 1, 2


def _amdsmi_get_processor_handles(library: RocmLibrary, socket: Any, count: Any, out: Any) -> None:
    count.value = 1
    if out:
        out[0] = socket.value


def _amdsmi_get_gpu_device_uuid(library: RocmLibrary, gpu: Any, length: Any, out: Any) -> None:
    number = 1 if library.partitioned else gpu.value
    out.value = f"73ff74a1-0000-1000-8000-00000000000{number}".encode()


def _amdsmi_get_gpu_asic_info(library: RocmLibrary, gpu: Any, out: Any) -> None:
    out.market_name, out.vendor_name, out.asic_serial = b"AMD Instinct MI300X", b"AMD", b"0x1234"


def _amdsmi_get_gpu_device_bdf(library: RocmLibrary, gpu: Any, out: Any) -> None:
    out.struct_amdsmi_bdf_t.bus_number = 0x11 if library.partitioned else 0x10 + gpu.value
    out.struct_amdsmi_bdf_t.function_number = gpu.value - 1 if library.partitioned else 0


def _amdsmi_get_gpu_driver_info(library: RocmLibrary, gpu: Any, out: Any) -> None:
    out.driver_name, out.driver_version = b"amdgpu", b"6.12.12"


def _amdsmi_get_gpu_vram_usage(library: RocmLibrary, gpu: Any, out: Any) -> None:
    out.vram_total, out.vram_used = 196_592, 100_000


def _amdsmi_get_power_info(library: RocmLibrary, gpu: Any, out: Any) -> None:
    out.socket_power = out.current_socket_power = 512 if gpu.value == 1 or library.partitioned else 0
    out.average_socket_power = 0xFFFF


def _amdsmi_get_power_cap_info(library: RocmLibrary, gpu: Any, sensor: Any, out: Any) -> None:
    out.power_cap = 750_000_000  # microwatts


def _amdsmi_get_energy_count(library: RocmLibrary, gpu: Any, accumulator: Any, resolution: Any, ts: Any) -> None:
    accumulator.value, resolution.value = 1_000_000, 15.25


def _amdsmi_get_gpu_activity(library: RocmLibrary, gpu: Any, out: Any) -> None:
    out.gfx_activity = 87 if gpu.value == 1 else 0xFFFF


def _amdsmi_get_gpu_process_list(library: RocmLibrary, gpu: Any, count: Any, out: Any) -> None:
    count.value = len(library.processes)
    for row, (pid, vram) in zip(out, library.processes, strict=False):
        row.pid, row.memory_usage.vram_mem = pid, vram


@contextmanager
def rocm(patch: pytest.MonkeyPatch, library: RocmLibrary) -> Iterator[RocmLibrary]:
    """The real amdsmi package, imported again, finds this library."""
    real = ctypes.CDLL

    def load(name: Any = None, *args: Any, **kwargs: Any) -> Any:
        return library if str(name).endswith("libamd_smi.so") else real(name, *args, **kwargs)

    patch.setattr(ctypes, "CDLL", load)
    try:
        yield library
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
            del sys.modules[name]
