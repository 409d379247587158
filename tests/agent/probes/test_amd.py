import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.probes import amd
from pertoken.agent.probes.amd import AmdProbe, load
from pertoken.agent.readings import DeviceProcess, DeviceReading, ProbeReading, bounded
from pertoken.agent.workers import HANGS
from tests.agent.probes import standin_amdsmi
from tests.agent.probes.standin_amdsmi import NOT_SUPPORTED, RocmLibrary, rocm
from tests.agent.values import HOST
from tests.standin_nvml import ManualClock


def test_without_rocm_nothing_is_printed_or_raised_and_the_remedy_is_named(tmp_path: Path) -> None:
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
        devices, (missing,) = AmdProbe().read(processes=False)
    assert devices == () and missing.status == "failing" and "share/amd_smi" in (missing.remedy or "")
    assert capfd.readouterr() == ("", "")


def test_gpus_are_read_through_the_real_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with rocm(monkeypatch, RocmLibrary({}, ((4242, 7 * 2**30), (4243, 0), (os.getpid(), 2**20)))):
        (first, second), unavailable = AmdProbe().read(processes=True)
    assert unavailable == ()
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
    reasons = {missing.metric: missing.reason for missing in second.unavailable}
    assert {"power_mw", "energy_mj", "power_limit_mw"} <= reasons.keys() and "other die" in reasons["energy_mj"]


def test_a_card_in_partitions_is_paid_for_whole_and_its_partitions_are_parts_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with rocm(monkeypatch, RocmLibrary({}, ((4242, 7 * 2**30),), partitioned=True)):
        (card, first, second), _ = AmdProbe().read(processes=True)
    assert (card.kind, card.power_mw, card.energy_mj, card.power_limit_mw) == ("gpu", 512_000, 15_250, 750_000)
    assert card.processes == () and (card.util_1e4, card.memory_used_bytes) == (None, None)
    assert "partitions" in {missing.metric: missing.reason for missing in card.unavailable}["util_1e4"]
    for n, part in enumerate((first, second)):
        assert (part.kind, part.uuid, part.parent_uuid) == ("partition", f"{card.uuid}/{n}", card.uuid)
        assert (part.part_1e6, part.pci_bus_id) == (500_000, f"0000:11:00.{n}")
        assert (part.power_mw, part.energy_mj, part.power_limit_mw) == (None, None, None)
        assert "whole card" in {missing.metric: missing.reason for missing in part.unavailable}["energy_mj"]
        assert part.memory_used_bytes == 100_000 * 2**20
        assert part.processes == (DeviceProcess(4242, 7 * 2**30),)


def version_of(module: Any) -> str:
    return str(module.__version__)


def test_the_wrapper_that_the_hosts_rocm_ships_is_preferred_and_the_installed_one_is_taken_if_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = importlib.util.find_spec("amdsmi")
    assert installed is not None and installed.origin is not None
    shipped = tmp_path / "share/amd_smi/amdsmi"
    shutil.copytree(Path(installed.origin).parent, shipped)
    (shipped / "_version.py").write_text('__version__ = "99.1.0"\n')
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    with rocm(monkeypatch, RocmLibrary({})):
        assert version_of(load()) == "99.1.0"
    (shipped / "__init__.py").write_text("raise SyntaxError('of another Python')\n")
    with rocm(monkeypatch, RocmLibrary({})):
        assert version_of(load()) != "99.1.0"


def test_the_wrapper_and_the_library_of_a_rocm_that_is_a_wheel_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "_rocm_sdk_core"
    package = root / "share/amd_smi/amdsmi"
    package.mkdir(parents=True)
    (root / "__init__.py").touch()
    (package / "__init__.py").touch()
    (root / "lib").mkdir()
    (root / "lib/libamd_smi.so.27").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.delenv("ROCM_HOME", raising=False)
    assert amd._packages()[0] == package
    assert amd._places(package)[0] == str(root / "lib/libamd_smi.so.27")


def test_a_call_that_the_driver_does_not_support_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with rocm(
        monkeypatch, RocmLibrary({"amdsmi_get_energy_count": NOT_SUPPORTED, "amdsmi_get_gpu_activity": 16})
    ) as library:
        probe = AmdProbe()
        for _ in range(3):
            (device, _), _ = probe.read(processes=False)
        probe.close()
    assert library.calls["amdsmi_get_energy_count"] == 2, "once for each GPU"
    assert library.calls["amdsmi_get_gpu_activity"] == 6
    assert {missing.metric: missing.status for missing in device.unavailable} == {
        "energy_mj": "unsupported",
        "util_1e4": "failing",
    }
    assert device.power_mw == 512_000


def test_a_gpu_that_answers_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("power_info", "energy_count", "gpu_activity", "gpu_vram_usage")
    with rocm(monkeypatch, RocmLibrary({f"amdsmi_get_{name}": 16 for name in names})):
        (device, _), _ = AmdProbe().read(processes=False)
    assert device.lost is not None and device.name == "AMD Instinct MI300X"


def test_a_driver_without_an_answering_gpu_is_restarted_and_its_gpus_return_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, names = ManualClock(), ("power_info", "energy_count", "gpu_activity", "gpu_vram_usage")
    with rocm(monkeypatch, RocmLibrary({})) as library:
        probe = AmdProbe(clock)
        before, _ = probe.read(processes=False)
        library.refuse |= {f"amdsmi_get_{name}": 16 for name in names}
        assert all(device.lost for device in probe.read(processes=False)[0])
        (event,) = probe.driver_events()
        assert (event.uuid, event.kind) == (None, "driver") and library.calls["amdsmi_shut_down"] == 1
        lost, _ = probe.read(processes=False)
        assert [device.uuid for device in lost if device.lost] == [device.uuid for device in before]
        assert library.calls["amdsmi_init"] == 1 and probe.driver_events() == (), (
            "left alone for a while, reported once"
        )
        library.refuse.clear()
        clock.now_s += 6
        assert probe.read(processes=False)[0] == before and library.calls["amdsmi_init"] == 2


def test_one_gpu_without_even_a_name_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with rocm(monkeypatch, RocmLibrary({}, silent=2)) as library:
        probe = AmdProbe(clock)
        (device,), (missing,) = probe.read(processes=False)
        assert device.power_mw == 512_000 and (missing.metric, missing.status) == ("gpu 1", "failing")
        assert [(driver_event.kind, driver_event.uuid) for driver_event in probe.driver_events()] == [
            ("device_lost", None)
        ]
        library.silent = None
        assert len(probe.read(processes=False)[0]) == 1, "left alone for a while"
        clock.now_s += 6
        assert len(probe.read(processes=False)[0]) == 2 and probe.read(processes=False)[1] == ()


def test_a_call_that_hangs_costs_its_gpu_only_and_is_left_until_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = threading.Event()
    with rocm(monkeypatch, RocmLibrary({})) as library:
        probe = AmdProbe(ManualClock(), patience_s=0.1)
        probe.read(processes=False)
        library.hang = ("amdsmi_get_gpu_activity", 1, returned)
        for _ in range(3):
            (hung, other), unavailable = probe.read(processes=False)
            assert hung.lost == HANGS and hung.power_mw is None
            assert other.lost is None and other.memory_used_bytes and unavailable == ()
        assert library.calls["amdsmi_get_gpu_activity"] == 2 + 1 + 3, "left alone in its call"
        library.hang = None
        returned.set()
        deadline = time.monotonic() + 20
        while probe.read(processes=False)[0][0].lost and time.monotonic() < deadline:
            pass
        assert probe.read(processes=False)[0][0].power_mw == 512_000
        probe.close()


def test_a_driver_that_hangs_when_it_is_started_is_a_gap_until_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = threading.Event()
    with rocm(monkeypatch, RocmLibrary({})) as library:
        library.hang = ("amdsmi_init", None, returned)
        probe = AmdProbe(ManualClock(), patience_s=0.1)
        for _ in range(2):
            devices, (missing,) = probe.read(processes=False)
            assert (
                devices == () and (missing.metric, missing.status) == ("amd", "failing") and "hangs" in missing.reason
            )
        assert library.calls["amdsmi_init"] == 1
        library.hang = None
        returned.set()
        deadline = time.monotonic() + 20
        while not probe.read(processes=False)[0] and time.monotonic() < deadline:
            pass
        assert len(probe.read(processes=False)[0]) == 2
        probe.close()


def test_rocm_that_does_not_start_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with rocm(monkeypatch, RocmLibrary({"amdsmi_init": 34})) as library:
        probe = AmdProbe(clock)
        for _ in range(3):
            devices, (missing,) = probe.read(processes=False)
            assert devices == () and missing.status == "failing"
        assert library.calls["amdsmi_init"] == 1
        library.refuse.clear()
        clock.now_s += 6
        assert len(probe.read(processes=False)[0]) == 2


ALL_ONES = 2**64 - 1


def lying(patch: pytest.MonkeyPatch, function: str, **fields: Any) -> None:
    """Make a C function of the stand-in fill these fields with what is not true."""

    def answer(library: RocmLibrary, gpu: Any, out: Any) -> None:
        for name, value in fields.items():
            setattr(out, name, value)

    patch.setattr(standin_amdsmi, f"_{function}", answer)


@pytest.mark.parametrize(
    ("function", "fields", "metrics"),
    [
        ("amdsmi_get_gpu_vram_usage", {"vram_total": ALL_ONES, "vram_used": ALL_ONES}, {"memory_bytes"}),
        ("amdsmi_get_gpu_vram_usage", {"vram_total": ALL_ONES, "vram_used": 5}, {"memory_bytes"}),
        ("amdsmi_get_gpu_activity", {"gfx_activity": 2**31}, {"util_1e4"}),
        ("amdsmi_get_power_info", {"current_socket_power": 2**31, "average_socket_power": 5}, {"power_mw"}),
        ("amdsmi_get_gpu_asic_info", {"market_name": b"\xff\xfe"}, {"name"}),
    ],
)
def test_an_implausible_value_costs_only_its_own_metric(
    monkeypatch: pytest.MonkeyPatch, function: str, fields: dict[str, Any], metrics: set[str]
) -> None:
    lying(monkeypatch, function, **fields)
    with rocm(monkeypatch, RocmLibrary({}, ((4242, 7 * 2**30),))):
        devices, unavailable = AmdProbe().read(processes=True)
    (first, _) = bounded(ProbeReading(HOST, devices, unavailable), {}).devices
    assert metrics <= {missing.metric for missing in first.unavailable}
    assert {name for name in metrics if getattr(first, name) is not None} <= {"name"}
    assert first.energy_mj == 15_250 and first.name == ("AMD GPU" if "name" in metrics else "AMD Instinct MI300X")


def test_a_process_list_without_memory_is_unknown_and_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    with rocm(monkeypatch, RocmLibrary({}, ((4242, ALL_ONES), (4243, 5)))):
        (first, _), _ = AmdProbe().read(processes=True)
    assert first.processes is None
    assert "whose memory" in {missing.metric: missing.reason for missing in first.unavailable}["processes"]


@pytest.mark.parametrize("row", [(2**32 - 1, 5), (4242, 2**60)])
def test_a_process_that_cannot_be_makes_the_list_unknown(monkeypatch: pytest.MonkeyPatch, row: tuple[int, int]) -> None:
    with rocm(monkeypatch, RocmLibrary({}, (row, (4243, 5)))):
        devices, unavailable = AmdProbe().read(processes=True)
    (first, _) = bounded(ProbeReading(HOST, devices, unavailable), {}).devices
    assert first.processes is None
    assert {missing.metric: missing.status for missing in first.unavailable}["processes"] == "failing"


def test_a_driver_without_an_answering_card_for_an_hour_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with rocm(monkeypatch, RocmLibrary({})) as library:
        probe = AmdProbe(clock)
        probe.read(processes=False)
        for function in ("power_info", "energy_count", "gpu_activity", "gpu_vram_usage"):
            library.refuse[f"amdsmi_get_{function}"] = 16
        kinds = []
        for _ in range(360):
            clock.now_s += 10
            probe.read(processes=False)
            kinds += [driver_event.kind for driver_event in probe.driver_events()]
        assert kinds == ["driver"]
        library.refuse.clear()
        clock.now_s += 600
        assert not any(device.lost for device in probe.read(processes=False)[0])
        probe.close()
