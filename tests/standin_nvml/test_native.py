"""That the stand-in in C is the stand-in in Python: the same readings at the same moments."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from pertoken.agent.probes.nvidia.probe import NvidiaProbe
from pertoken.agent.readings import DeviceReading
from tests.standin_nvml import Gpu, Machine, ManualClock, Slice, Wave, eight, installed
from tests.standin_nvml.native import COMPILER, build, calls_made, environment

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
PIDS = ((os.getpid(), 40 * 2**30), (os.getppid(), None))
MOMENTS_S = (12.5, 13.5, 14.75, 90.0)
GPUS = (
    *eight(processes=PIDS, process_sm=((os.getpid(), 40), (os.getppid(), 2))),
    Gpu("GPU-grace", module_power_mw=Wave(600_000, 9_000, 7), memory_power_mw=Wave(80_000), energy_start_mj=5),
    Gpu("GPU-older", gpm="no", power_averaged=False, ecc_errors=(3, 1), temperature_c=70, throttle_reasons=0x20),
)


def readings(clock: ManualClock, at: Callable[[float], None] = lambda now_s: None) -> list[tuple[DeviceReading, ...]]:
    probe, readings_made = NvidiaProbe(clock), []
    for clock.now_s in MOMENTS_S:
        at(clock.now_s)
        readings_made.append(probe.read(processes=True)[0])
    probe.close()
    return readings_made


def test_the_native_driver_returns_the_readings_of_the_python_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, clock = Machine(gpus=GPUS), ManualClock()
    with installed(machine, clock) as python:
        expected = readings(clock)
        asked = python.calls.total()
    library = build(machine, tmp_path)
    monkeypatch.setenv("PERTOKEN_STANDIN_CALLS", str(tmp_path / "calls"))
    native = ctypes.CDLL(str(library))
    now_s = ctypes.c_double.in_dll(native, "standin_now_s")
    monkeypatch.setattr(pynvml, "CDLL", lambda name: native)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        assert readings(clock, lambda s: setattr(now_s, "value", s)) == expected
    finally:
        pynvml._nvmlGetFunctionPointer_cache.clear()
    assert calls_made(tmp_path / "calls") == asked


def test_any_process_finds_it_by_the_librarys_name(tmp_path: Path) -> None:
    library = build(Machine(gpus=GPUS), tmp_path)
    assert environment(library, {"LD_LIBRARY_PATH": "/x"})["LD_LIBRARY_PATH"] == f"{tmp_path}:/x"


@pytest.mark.parametrize(
    "machine",
    [
        Machine(gpus=(replace(GPUS[0], lost_after=3),)),
        Machine(gpus=(replace(GPUS[0], slices=(Slice("MIG-1", 1),)),)),
        Machine(gpus=GPUS, slow_s=1.0),
    ],
)
def test_the_native_driver_refuses_planted_faults(tmp_path: Path, machine: Machine) -> None:
    with pytest.raises(ValueError, match="no faults"):
        build(machine, tmp_path)
