"""A stand-in for the NVIDIA driver library, at its C ABI, for the real `pynvml` to talk to.

In this process: `with installed(Machine(gpus=eight())) as library:`; `library.calls` counts what was asked. For a
whole other process: start it with `environment(machine)`; nothing is compiled.
"""

import ctypes
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pynvml

from tests.standin_nvml.controlled import VARIABLE
from tests.standin_nvml.library import Library
from tests.standin_nvml.machine import ALL_ONES, Gpu, Machine, Slice, Wave, eight
from tests.standin_nvml.symbols import Clock

__all__ = [
    "ALL_ONES",
    "Gpu",
    "Library",
    "Machine",
    "ManualClock",
    "Slice",
    "Wave",
    "eight",
    "environment",
    "installed",
]


class ManualClock:
    """Clock that moves only when asked to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def installed(machine: Machine, clock: Clock | None = None) -> Iterator[Library]:
    """`pynvml` of this process talks to the stand-in (or finds no library at all) until the block ends."""
    library = Library(machine, clock or ManualClock())

    def load(name: str) -> Library:
        if machine.absent:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    pynvml.nvmlLib, pynvml.CDLL = None, load
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield library
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
        pynvml.nvmlLib, pynvml.CDLL = None, ctypes.CDLL
        pynvml._nvmlGetFunctionPointer_cache.clear()


def environment(machine: Machine, base: Mapping[str, str] = os.environ, control: Path | None = None) -> dict[str, str]:
    """Return the environment in which any Python process finds this machine's GPUs behind `libnvidia-ml.so.1`.

    `control` is the file that describes the machine; `set_machine(control, machine)` changes the machine while the
    process runs.
    """
    folder = Path(__file__).parent
    control = control or Path(tempfile.mkstemp(prefix="standin-", suffix=".machine")[1])
    set_machine(control, machine)
    paths = [str(folder / "site"), str(folder.parents[1]), base.get("PYTHONPATH", "")]
    return dict(base) | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        VARIABLE: str(control),
    }


def set_machine(control: Path, machine: Machine) -> None:
    """Make the processes of a control file see this machine from their next driver call on."""
    new = control.with_suffix(".new")
    new.write_text(repr(machine))
    new.replace(control)
