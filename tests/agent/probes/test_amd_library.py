"""The whole sampler, torch and vLLM over the real `amdsmi` package over a compiled stand-in for ROCm's library."""

import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.probes.amd import load
from pertoken.agent.readings import JUMPED, DeviceProcess, energy_step
from pertoken.agent.sampler.client import Drivers, Sampler
from tests.agent.probes.standin_amdsmi import RocmLibrary, rocm
from tests.vllm import FOLDER

SOURCE = Path(__file__).parent / "standin_amdsmi.c"
PATIENCE_S = 60.0
FIELDS = {
    "asic_info": ("amdsmi_asic_info_t", "market_name"),
    "driver_info": ("amdsmi_driver_info_t", "driver_version"),
    "power_info": ("amdsmi_power_info_t", "current_socket_power"),
    "power_cap_info": ("amdsmi_power_cap_info_t", "power_cap"),
    "engine_usage": ("amdsmi_engine_usage_t", "gfx_activity"),
}
WORDS = {2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


def defines(wrapper: Any) -> dict[str, object]:
    """Return where the package expects each field."""
    vram, process = wrapper.amdsmi_vram_usage_t, wrapper.amdsmi_proc_info_t
    usage = process.memory_usage
    nested = dict(process._fields_)["memory_usage"]
    constants: dict[str, object] = {
        f"AT_{name}_{field}": getattr(getattr(wrapper, struct), field).offset
        for name, (struct, field) in FIELDS.items()
    }
    return constants | {
        "AT_vram_usage_vram_total": vram.vram_total.offset,
        "AT_vram_usage_vram_used": vram.vram_used.offset,
        "AT_proc_info_pid": process.pid.offset,
        "AT_proc_info_memory_usage_vram_mem": usage.offset + nested.vram_mem.offset,
        "PowerWord": WORDS[wrapper.amdsmi_power_info_t.current_socket_power.size],
    }


@pytest.fixture(scope="module")
def rocm_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A ROCm folder whose library answers every call the package binds: those in the source, others NOT_SUPPORTED."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    with pytest.MonkeyPatch.context() as patch, rocm(patch, RocmLibrary({})):
        module: Any = load()
        given = defines(module.amdsmi_interface.amdsmi_wrapper)
    spec = importlib.util.find_spec("amdsmi")
    assert spec is not None and spec.origin is not None
    bound = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text()
    symbols = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", bound))
    written = set(re.findall(r"^int (amdsmi_\w+)", SOURCE.read_text(), re.MULTILINE))
    assert written <= symbols
    root = tmp_path_factory.mktemp("rocm")
    (root / "lib").mkdir()
    stubs = root / "stubs.c"
    stubs.write_text("".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(symbols - written)))
    options = [f"-D{name}={value}" for name, value in given.items()]
    library = root / "lib/libamd_smi.so"
    subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", library, SOURCE, stubs], check=True)
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    yield root


def test_a_whole_sampler_reads_an_amd_gpu_at_the_c_abi(rocm_path: Path) -> None:
    child = Sampler({**os.environ, "ROCM_PATH": str(rocm_path)}, probes=["amd"])
    try:
        first, second = (child.read(processes=listed, deadline_s=PATIENCE_S) for listed in (True, False))
    finally:
        child.close(PATIENCE_S)
    (gpu,) = first.devices
    assert first.unavailable == ()
    assert (gpu.name, gpu.vendor, gpu.pci_bus_id) == ("AMD Instinct MI300X", "AMD", "0000:11:00.0")
    assert (gpu.memory_bytes, gpu.memory_used_bytes) == (196_592 * 2**20, 100_000 * 2**20)
    assert (gpu.power_mw, gpu.power_limit_mw, gpu.util_1e4) == (512_000, 750_000, 8700)
    assert gpu.processes == (DeviceProcess(4242, 7 * 2**30),)
    assert gpu.unavailable == () and first.driver_calls >= 9
    assert energy_step(gpu, second.devices[0], 1000).counter_mj == 1525, "accumulator times resolution"


def test_an_energy_accumulator_that_jumps_past_the_cards_power_limit_is_not_believed(rocm_path: Path) -> None:
    child = Sampler({**os.environ, "ROCM_PATH": str(rocm_path)}, probes=["amd"])
    try:
        first, _, third = (child.read(processes=False, deadline_s=PATIENCE_S).devices[0] for _ in range(3))
    finally:
        child.close(PATIENCE_S)
    step = energy_step(first, third, elapsed_ms=1)
    assert step.counter_mj is None and step.integral_mj == 512 and step.fault == JUMPED


def test_the_daemons_drivers_read_it_too(rocm_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(rocm_path))
    drivers = Drivers(["amd"])
    try:
        reading, events = drivers.read(False, PATIENCE_S)
    finally:
        drivers.close()
    assert [device.vendor for device in reading.devices if device.kind == "gpu"] == ["AMD"] and events == ()


def beside_torch(tmp_path: Path, *, wheel: bool, rocm: Path | None) -> dict[str, object]:
    """Import torch as a ROCm build, with pertoken's `amdsmi` in its environment or without."""
    python = FOLDER / "bin/python"
    if not python.exists():
        pytest.skip("needs the environment of python -m tests.vllm")
    arguments: list[str] = []
    if wheel:
        spec = importlib.util.find_spec("amdsmi")
        assert spec is not None and spec.origin is not None
        (tmp_path / "amdsmi").symlink_to(Path(spec.origin).parent)
        arguments = [str(tmp_path)]
    paths = {} if rocm is None else {"ROCM_PATH": str(rocm)}
    script = Path(__file__).with_name("beside_torch.py")
    done = subprocess.run(
        [python, script, *arguments], env=os.environ | paths, check=True, capture_output=True, text=True
    )
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_torch_for_rocm_does_not_start_beside_the_wheel_where_rocms_library_is_not_found(tmp_path: Path) -> None:
    assert beside_torch(tmp_path, wheel=True, rocm=None) == {"torch": "KeyError('libamd_smi.so')"}


def test_torch_for_rocm_starts_in_an_environment_of_its_own(tmp_path: Path) -> None:
    assert beside_torch(tmp_path, wheel=False, rocm=None) == {"torch": "imported", "amdsmi": False, "vllm": None}


def test_torch_for_rocm_and_vllm_find_a_card_through_the_wheel_over_rocms_library(
    tmp_path: Path, rocm_path: Path
) -> None:
    answer = {"torch": "imported", "amdsmi": True, "vllm": "vllm.platforms.rocm.RocmPlatform"}
    assert beside_torch(tmp_path, wheel=True, rocm=rocm_path) == answer
