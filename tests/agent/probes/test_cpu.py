import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pertoken.agent.probes.cpu import CpuProbe
from pertoken.agent.readings import DeviceReading, Unavailable
from tests.standin_nvml import ManualClock

RANGE_UJ = 262_143_328_850


class Tree:
    """A made-up root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n")
        self.write("proc/sys/kernel/random/boot_id", "33487d38-a5f7-4df4-a392-73410525c023\n")
        self.write(
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9654 96-Core Processor\n",
        )

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def zone(self, number: str, energy_uj: int, name: str = "package-0", range_uj: int = RANGE_UJ) -> Path:
        folder = f"sys/class/powercap/intel-rapl:{number}"
        self.write(f"{folder}/name", f"{name}\n")
        self.write(f"{folder}/max_energy_range_uj", f"{range_uj}\n")
        return self.write(f"{folder}/energy_uj", f"{energy_uj}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def energy_unavailable(device: DeviceReading) -> Unavailable:
    assert device.energy_mj is None and device.power_mw is None
    unavailable = {missing.metric: missing for missing in device.unavailable}
    assert unavailable["energy_mj"].reason == unavailable["power_mw"].reason
    return unavailable["energy_mj"]


def test_this_real_host_is_read() -> None:
    probe = CpuProbe()
    first, _ = probe.read()
    while (second := probe.read()[0]).cpu_util_1e4 is None:
        pass
    device = probe.read()[1]
    assert first.cpu_util_1e4 is None and 0 <= (second.cpu_util_1e4 or 0) <= 10_000
    assert second.cpu_count == psutil.cpu_count()
    assert 0 < (second.memory_used_bytes or 0) < (second.memory_bytes or 0) == psutil.virtual_memory().total
    assert second.os.startswith("Linux ") and second.name
    assert second.boot_ms // 1000 == pytest.approx(psutil.boot_time(), abs=2)
    assert (second.network_rx_bytes or 0) >= (first.network_rx_bytes or 0) >= 0
    assert (device.kind, device.memory_bytes) == ("cpu", second.memory_bytes)
    assert device.energy_mj is not None or {missing.metric for missing in device.unavailable} >= {
        "energy_mj",
        "power_mw",
    }


def test_identity_is_of_the_machine_and_the_same_every_time(tree: Tree) -> None:
    host, device = CpuProbe(tree.root).read()
    assert host.machine_id == "3d1219c7c4c5404aaa1f6d2a48adfda4"
    assert host.boot_id == "33487d38-a5f7-4df4-a392-73410525c023"
    assert host.cpu_name == device.name == "AMD EPYC 9654 96-Core Processor"
    assert device.vendor == "AMD"
    assert device.uuid == CpuProbe(tree.root).read()[1].uuid
    assert device.uuid.startswith("CPU-") and host.machine_id not in device.uuid.replace("-", "")
    tree.write("etc/machine-id", "ffffffffffffffffffffffffffffffff")
    assert device.uuid != CpuProbe(tree.root).read()[1].uuid


def test_without_a_machine_id_dbus_then_firmware_then_the_name_stand_in(tree: Tree) -> None:
    tree.write("etc/machine-id", "uninitialized\n")
    tree.write("sys/class/dmi/id/product_uuid", "firmware\n")
    dbus = tree.write("var/lib/dbus/machine-id", "dbus\n")
    assert CpuProbe(tree.root).read()[0].machine_id == "dbus"
    dbus.unlink()
    assert CpuProbe(tree.root).read()[0].machine_id == "firmware"
    (tree.root / "sys/class/dmi/id/product_uuid").unlink()
    host, device = CpuProbe(tree.root).read()
    assert host.machine_id is None and device.uuid == CpuProbe(tree.root).read()[1].uuid


def test_a_cpu_without_a_name_is_named_by_its_architecture(tree: Tree) -> None:
    tree.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
    host, device = CpuProbe(tree.root).read()
    assert host.cpu_name is None and device.name.endswith(" CPU")


def test_packages_are_summed_and_their_subzones_are_not(tree: Tree) -> None:
    tree.zone("0", 5_000_000, "package-0")
    tree.zone("0:0", 99_000_000, "core")
    tree.zone("1", 7_000_999, "package-1")
    tree.zone("2", 99_000_000, "psys")
    _, device = CpuProbe(tree.root).read()
    assert (device.energy_mj, device.energy_wraps_mj) == (12_000, RANGE_UJ // 1000)
    assert device.power_mw is None and {missing.metric for missing in device.unavailable} == {"memory_traffic_bytes"}


def test_power_is_the_energy_since_the_reading_before(tree: Tree) -> None:
    clock = ManualClock()
    tree.zone("0", 5_000_000)
    probe = CpuProbe(tree.root, clock)
    probe.read()
    tree.zone("0", 5_000_000 + 1_500_000_000)
    clock.now_s = 10.0
    assert probe.read()[1].power_mw == 150_000


def test_one_of_two_packages_wrapping_is_no_loss(tree: Tree) -> None:
    clock = ManualClock()
    tree.zone("0", RANGE_UJ - 1_000_000, "package-0")
    tree.zone("1", 40_000_000_000, "package-1")
    probe = CpuProbe(tree.root, clock)
    probe.read()
    tree.zone("0", 2_000_000, "package-0")
    tree.zone("1", 40_007_000_000, "package-1")
    clock.now_s = 0.1
    assert probe.read()[1].power_mw == pytest.approx(100_000, abs=20)


def test_packages_that_wrap_at_different_values_are_not_summed(tree: Tree) -> None:
    tree.zone("0", 1, "package-0")
    tree.zone("1", 1, "package-1", RANGE_UJ // 2)
    assert energy_unavailable(CpuProbe(tree.root).read()[1]).status == "unsupported"


def test_a_host_without_rapl_reports_it_with_the_remedy(tree: Tree) -> None:
    missing = energy_unavailable(CpuProbe(tree.root).read()[1])
    assert missing.status == "missing" and "modprobe" in (missing.remedy or "")
    tree.zone("0", 0)
    assert energy_unavailable(CpuProbe(tree.root).read()[1]) == missing


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to read everything."""
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except OSError:
        pytest.skip("cannot be anyone but root here")
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_counter_only_root_may_read_is_denied_with_the_line_that_grants_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        tree = Tree(Path(folder))
        tree.zone("0", 5).chmod(stat.S_IWUSR)
        with as_nobody():
            missing = energy_unavailable(CpuProbe(tree.root).read()[1])
    assert missing.status == "denied" and "tmpfiles.d" in (missing.remedy or "")


def test_a_counter_that_is_no_number_is_unknown_not_zero(tree: Tree) -> None:
    tree.zone("0", 5).write_text("\n")
    assert energy_unavailable(CpuProbe(tree.root).read()[1]).status == "failing"
