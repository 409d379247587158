import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.probes.amd import AmdProbe, load
from pertoken.agent.readings import DeviceProcess, DeviceReading
from tests.agent.probes.standin_amdsmi import NOT_SUPPORTED, RocmLibrary, rocm
from tests.standin_nvml import ManualClock


def test_without_rocm_nothing_is_printed_nothing_raised_and_the_gap_says_what_to_do(tmp_path: Path) -> None:
    program = """
import sys
from pertoken.agent.probes.amd import AmdProbe
devices, (gap,) = AmdProbe().read(True)
assert devices == () and (gap.metric, gap.status) == ("amd", "missing"), gap
assert "ROCM_PATH" in gap.remedy
assert "amdsmi" not in sys.modules
"""
    env = {**os.environ, "ROCM_PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_library_older_than_the_package_is_a_gap_and_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with rocm(monkeypatch, RocmLibrary({}, without=("amdsmi_get_gpu_xcd_counter",))):
        devices, (gap,) = AmdProbe().read(processes=False)
    assert devices == () and gap.status == "failing" and "share/amd_smi" in (gap.remedy or "")
    assert capfd.readouterr() == ("", "")


def test_gpus_are_read_through_the_real_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with rocm(monkeypatch, RocmLibrary({}, ((4242, 7 * 2**30), (4243, 0), (os.getpid(), 2**20)))):
        (first, second), gaps = AmdProbe().read(processes=True)
    assert gaps == ()
    assert first == DeviceReading(
        uuid="73ff74a1-0000-1000-8000-000000000001",
        kind="gpu",
        vendor="AMD",
        name="AMD Instinct MI300X",
        slot=0,
        memory_bytes=196_592 * 2**20,
        power_limit_mw=750_000,
        driver_version="6.12.12",
        pci_bus_id="0000:11:00.0",
        util_1e4=8700,
        memory_used_bytes=100_000 * 2**20,
        power_mw=512_000,
        energy_mj=15_250,
        processes=(DeviceProcess(4242, 7 * 2**30),),
    )
    assert (second.util_1e4, second.memory_used_bytes) == (None, 100_000 * 2**20)


def test_the_second_die_of_a_card_that_shows_0_watts_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with rocm(monkeypatch, RocmLibrary({})):
        (first, second), _ = AmdProbe().read(processes=False)
    assert (first.power_mw, first.energy_mj, first.power_limit_mw) == (512_000, 15_250, 750_000)
    assert (second.power_mw, second.energy_mj, second.power_limit_mw) == (None, None, None)
    reasons = {gap.metric: gap.reason for gap in second.gaps}
    assert {"power_mw", "energy_mj", "power_limit_mw"} <= reasons.keys() and "other die" in reasons["energy_mj"]


def test_partitions_of_a_card_are_devices_of_their_own_and_its_energy_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with rocm(monkeypatch, RocmLibrary({}, partitioned=True)):
        (first, second), _ = AmdProbe().read(processes=False)
    assert first.uuid != second.uuid and second.uuid.startswith(first.uuid)
    assert (first.pci_bus_id, second.pci_bus_id) == ("0000:11:00.0", "0000:11:00.1")
    assert (first.power_mw, first.energy_mj) == (512_000, 15_250)
    assert (second.power_mw, second.energy_mj, second.power_limit_mw) == (None, None, None)
    assert "first partition" in {gap.metric: gap.reason for gap in second.gaps}["energy_mj"]


def version_of(module: Any) -> str:
    return str(module.__version__)


def test_the_wrapper_that_the_hosts_rocm_ships_is_preferred_and_the_installed_one_is_taken_if_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = importlib.util.find_spec("amdsmi")
    assert found is not None and found.origin is not None
    shipped = tmp_path / "share/amd_smi/amdsmi"
    shutil.copytree(Path(found.origin).parent, shipped)
    (shipped / "_version.py").write_text('__version__ = "99.1.0"\n')
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    with rocm(monkeypatch, RocmLibrary({})):
        assert version_of(load()) == "99.1.0"
    (shipped / "__init__.py").write_text("raise SyntaxError('of another Python')\n")
    with rocm(monkeypatch, RocmLibrary({})):
        assert version_of(load()) != "99.1.0"


def test_what_the_driver_refuses_for_good_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with rocm(
        monkeypatch, RocmLibrary({"amdsmi_get_energy_count": NOT_SUPPORTED, "amdsmi_get_gpu_activity": 16})
    ) as library:
        probe = AmdProbe()
        for _ in range(3):
            (device, _), _ = probe.read(processes=False)
        probe.close()
    assert library.calls["amdsmi_get_energy_count"] == 2, "once for each GPU"
    assert library.calls["amdsmi_get_gpu_activity"] == 6
    assert {gap.metric: gap.status for gap in device.gaps} == {"energy_mj": "unsupported", "util_1e4": "failing"}
    assert device.power_mw == 512_000


def test_a_gpu_that_answers_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("power_info", "energy_count", "gpu_activity", "gpu_vram_usage")
    with rocm(monkeypatch, RocmLibrary({f"amdsmi_get_{name}": 16 for name in names})):
        (device, _), _ = AmdProbe().read(processes=False)
    assert device.lost is not None and device.name == "AMD Instinct MI300X"


def test_rocm_that_does_not_start_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with rocm(monkeypatch, RocmLibrary({"amdsmi_init": 34})) as library:
        probe = AmdProbe(clock)
        for _ in range(3):
            devices, (gap,) = probe.read(processes=False)
            assert devices == () and gap.status == "failing"
        assert library.calls["amdsmi_init"] == 1
        library.refuse.clear()
        clock.now_s += 6
        assert len(probe.read(processes=False)[0]) == 2
