"""A stand-in for the NVIDIA driver library, at its C ABI, for the real `pynvml` to talk to.

In this process: `with installed(Machine(gpus=eight())) as library:`; `library.calls` counts what was asked. For a
whole other process: start it with `environment(machine)`; nothing is compiled.
"""

import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pynvml

from tests.standin_nvml.library import Clock, Library
from tests.standin_nvml.machine import Gpu, Machine, Wave, eight

__all__ = ["Gpu", "Library", "Machine", "ManualClock", "Wave", "eight", "environment", "installed"]

VARIABLE = "PERTOKEN_STANDIN_NVML"


class ManualClock:
    """Seconds that pass only when told."""

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


def environment(machine: Machine, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which any Python process finds this machine's GPUs behind `libnvidia-ml.so.1`."""
    here = Path(__file__).parent
    paths = [str(here / "site"), str(here.parents[1]), base.get("PYTHONPATH", "")]
    return dict(base) | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        VARIABLE: json.dumps(machine.as_json()),
    }
