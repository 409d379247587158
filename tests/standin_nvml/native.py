"""The healthy stand-in as a plain C library: what is measured over it is the process that asks, not a driver in Python.

It is built for one machine that never changes; faults are those of the other stand-ins.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.standin_nvml.machine import Gpu, Machine, Wave

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
CALLS = "PERTOKEN_STANDIN_CALLS"
"""Names the file in which a process's driver calls are counted; see `calls_made`."""
LIBRARY = "libnvidia-ml.so.1"
_NUMBERS = (
    "memory_bytes",
    "memory_used_bytes",
    "memory_reserved_bytes",
    "throttle_reasons",
    "energy_start_mj",
    "power_limit_mw",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
)
_WAVES = (
    "power_mw",
    "module_power_mw",
    "memory_power_mw",
    "util_percent",
    "sm_percent",
    "occupancy_percent",
    "tensor_percent",
    "dram_percent",
    "nvlink_mib_s",
)
_NOT_AVAILABLE = "~0ull"


def build(machine: Machine, folder: Path) -> Path:
    """Compile the library of a machine without faults into `folder`; its path.

    Raises ValueError for a machine this one cannot be, CalledProcessError if C fails.
    """
    assert COMPILER is not None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.h").write_text(_header(machine))
    library, source = folder / LIBRARY, Path(__file__).with_suffix(".c")
    flags = ("-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-I", folder)
    subprocess.run([COMPILER, *flags, "-o", library, source, "-lm"], check=True)
    return library


def environment(library: Path, base: Mapping[str, str] = os.environ, calls: Path | None = None) -> dict[str, str]:
    """Return the environment in which any process finds this library, and counts its driver calls in the file
    `calls`."""
    path = os.pathsep.join(filter(None, (str(library.parent), base.get("LD_LIBRARY_PATH"))))
    return dict(base) | {"LD_LIBRARY_PATH": path} | ({CALLS: str(calls)} if calls else {})


def calls_made(calls: Path) -> int:
    """Return driver calls made so far by the processes that count in this file."""
    return int.from_bytes(calls.read_bytes(), "little")


def _header(machine: Machine) -> str:
    if machine != Machine(gpus=machine.gpus, driver_version=machine.driver_version):
        raise ValueError("the stand-in in C has no faults")
    gpus = ",\n".join(_gpu(gpu) for gpu in machine.gpus)
    defined = f"#define GPU_N {len(machine.gpus)}\n#define DRIVER_VERSION {json.dumps(machine.driver_version)}\n"
    return f"{defined}static const gpu gpus[] = {{\n{gpus}\n}};\n"


def _gpu(gpu: Gpu) -> str:
    healthy: dict[str, object] = {"lost_after": None, "removed": False, "hang": None, "slices": None}
    healthy |= dict.fromkeys(("xids", "unsupported", "failing", "lies"), ())
    if gpu.gpm == "lies" or gpu.energy_reset_at_s is not None or any(getattr(gpu, k) != v for k, v in healthy.items()):
        raise ValueError(f"{gpu.uuid}: the stand-in in C has no faults and no MIG devices")
    fields = {name: str(getattr(gpu, name)) for name in _NUMBERS}
    fields |= {name: _wave(getattr(gpu, name)) for name in _WAVES}
    running = ", ".join(f"{{{pid}, {_NOT_AVAILABLE if size is None else size}}}" for pid, size in gpu.processes)
    timed = ", ".join(f"{{{pid}, {percent}}}" for pid, percent in gpu.process_sm)
    fields |= {
        "uuid": json.dumps(gpu.uuid),
        "name": json.dumps(gpu.name),
        "ecc_corrected": str(gpu.ecc_errors[0]),
        "ecc_uncorrected": str(gpu.ecc_errors[1]),
        "power_averaged": str(int(gpu.power_averaged)),
        "gpm": str(int(gpu.gpm == "yes")),
        "process_n": str(len(gpu.processes)),
        "sm_time_n": str(len(gpu.process_sm)),
        "processes": f"(const process[]){{{running}}}" if running else "NULL",
        "sm_times": f"(const sm_time[]){{{timed}}}" if timed else "NULL",
    }
    return "    {" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"


def _wave(wave: Wave | None) -> str:
    if wave is None:
        return "NULL"
    return f"&(const wave){{{wave.mean!r}, {wave.swing!r}, {wave.period_s!r}, {int(wave.shape == 'square')}}}"
