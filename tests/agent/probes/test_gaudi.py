import ctypes
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.bounds import bounded
from pertoken.agent.probes.gaudi import LIBRARY, GaudiProbe
from pertoken.agent.probes.patience import HANGS
from pertoken.agent.readings import DeviceReading, ProbeReading
from tests.agent.values import HOST
from tests.standin_nvml import ManualClock

NOT_SUPPORTED = 3


class HlmlLibrary:
    """A stand-in libhlml.so with two devices. `refuse` maps C functions to the code they answer; `hang` names one that
    does not return for a device before the event."""

    hang: tuple[str, int, threading.Event] | None = None

    def __init__(self, refuse: dict[str, int] | None = None) -> None:
        self.refuse = refuse or {}
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        def function(*given: Any) -> int:
            self.calls[name] += 1
            if self.hang and self.hang[:2] == (name, getattr(given[0], "value", None) if given else None):
                self.hang[2].wait()
            if name in self.refuse:
                return self.refuse[name]
            body = globals().get(f"_{name}")
            if body is not None:
                body(*(getattr(value, "_obj", value) for value in given))
            return 0

        return function


def _hlml_device_get_count(count: Any) -> None:
    count.value = 2


def _hlml_device_get_handle_by_index(index: int, device: Any) -> None:
    device.value = 100 + index


def _hlml_device_get_name(device: Any, name: Any, size: Any) -> None:
    name.value = b"HL-225"


def _hlml_device_get_uuid(device: Any, uuid: Any, size: Any) -> None:
    uuid.value = f"01P0-{device.value}".encode()


def _hlml_device_get_pci_info(device: Any, info: Any, size: Any) -> None:
    info.bus_id = b"0000:33:00.0"


def _hlml_device_get_memory_info(device: Any, memory: Any) -> None:
    memory.total, memory.used = 96 * 2**30, 10 * 2**30


def _hlml_device_get_power_management_default_limit(device: Any, power: Any) -> None:
    power.value = 600_000


def _hlml_device_get_utilization_rates(device: Any, rates: Any) -> None:
    rates.aip = 40 + device.value - 100


def _hlml_device_get_power_usage(device: Any, power: Any) -> None:
    power.value = 400_000


def _hlml_device_get_total_energy_consumption(device: Any, energy: Any) -> None:
    energy.value = 5_000_000


def _hlml_device_get_temperature(device: Any, sensor: Any, temperature: Any) -> None:
    temperature.value = 50


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[HlmlLibrary]:
    """The real pyhlml, imported again, finds this library at the path it knows."""
    pytest.importorskip("pyhlml")
    hlml, real = HlmlLibrary(), ctypes.CDLL
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name=None, *a, **k: hlml if name == str(LIBRARY) else real(name, *a, **k)
    )
    forget()
    yield hlml
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyhlml"]:
        del sys.modules[name]


def probe(folder: Path, clock: ManualClock | None = None) -> GaudiProbe:
    (folder / "libhlml.so").touch()
    return GaudiProbe(clock or ManualClock(), folder / "libhlml.so")


def test_on_a_host_without_gaudi_nothing_is_imported_printed_or_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    forget()
    assert GaudiProbe(library=tmp_path / "none.so").read(processes=True) == ((), ())
    assert "pyhlml" not in sys.modules and capfd.readouterr() == ("", "")


def test_devices_are_read_through_the_real_package_each_by_its_own_handle(library: HlmlLibrary, tmp_path: Path) -> None:
    (first, second), unavailable = probe(tmp_path).read(processes=True)
    assert unavailable == () and second.uuid == "01P0-101" and second.util_1e4 == 4100
    assert first == DeviceReading(
        uuid="01P0-100",
        kind="gpu",
        vendor="Intel",
        name="HL-225",
        slot=0,
        memory_bytes=96 * 2**30,
        power_limit_mw=600_000,
        pci_bus_id="0000:33:00.0",
        util_1e4=4000,
        memory_used_bytes=10 * 2**30,
        power_mw=400_000,
        energy_mj=5_000_000,
        temperature_c=50,
        unavailable=first.unavailable,
    )
    assert [(missing.metric, missing.status) for missing in first.unavailable] == [("processes", "unsupported")]


def test_unsupported_calls_are_made_once_and_a_silent_device_is_lost(library: HlmlLibrary, tmp_path: Path) -> None:
    gaudi = probe(tmp_path)
    library.refuse["hlml_device_get_total_energy_consumption"] = NOT_SUPPORTED
    for _ in range(3):
        (first, _), _ = gaudi.read(processes=False)
    assert first.energy_mj is None and first.power_mw == 400_000
    assert {missing.metric: missing.status for missing in first.unavailable}["energy_mj"] == "unsupported"
    assert library.calls["hlml_device_get_total_energy_consumption"] == 2, "once for each device"
    ticked = ("utilization_rates", "memory_info", "power_usage", "temperature")
    library.refuse |= {f"hlml_device_get_{name}": 15 for name in ticked}
    (first, _), _ = gaudi.read(processes=False)
    assert first.lost is not None and first.power_mw is None
    gaudi.close()
    assert library.calls["hlml_shutdown"] == 1


def test_a_driver_that_does_not_start_is_reported_and_retried_later(library: HlmlLibrary, tmp_path: Path) -> None:
    clock = ManualClock()
    gaudi = probe(tmp_path, clock)
    library.refuse["hlml_init"] = 9
    for _ in range(3):
        devices, (missing,) = gaudi.read(processes=False)
        assert devices == () and (missing.metric, missing.status) == ("gaudi", "failing")
    assert library.calls["hlml_init"] == 1
    library.refuse.clear()
    clock.now_s += 6
    assert len(gaudi.read(processes=False)[0]) == 2


def test_a_call_that_hangs_costs_its_device_only_and_is_left_until_it_returns(
    library: HlmlLibrary, tmp_path: Path
) -> None:
    (tmp_path / "libhlml.so").touch()
    gaudi, returned = GaudiProbe(ManualClock(), tmp_path / "libhlml.so", patience_s=0.1), threading.Event()
    gaudi.read(processes=False)
    library.hang = ("hlml_device_get_power_usage", 100, returned)
    for _ in range(2):
        (hung, other), _ = gaudi.read(processes=False)
        assert hung.lost == HANGS and hung.power_mw is None and other.power_mw == 400_000
    library.hang = None
    returned.set()
    deadline = time.monotonic() + 20
    while gaudi.read(processes=False)[0][0].lost and time.monotonic() < deadline:
        pass
    assert gaudi.read(processes=False)[0][0].power_mw == 400_000
    gaudi.close()
    assert library.calls["hlml_shutdown"] == 1


def test_without_the_python_package_the_remedy_names_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyhlml", None)
    devices, (missing,) = probe(tmp_path).read(processes=False)
    assert devices == () and missing.status == "missing" and "pertoken[gaudi]" in (missing.remedy or "")


def test_an_implausible_value_of_a_gaudi_costs_only_its_own_metric(library: HlmlLibrary, tmp_path: Path) -> None:
    real = globals()["_hlml_device_get_power_usage"]

    def all_ones(device: Any, power: Any) -> None:
        power.value = 2**32 - 1

    globals()["_hlml_device_get_power_usage"] = all_ones
    try:
        devices, unavailable = probe(tmp_path).read(processes=True)
    finally:
        globals()["_hlml_device_get_power_usage"] = real
    (first, _) = bounded(ProbeReading(HOST, devices, unavailable), {}).devices
    assert (first.power_mw, first.energy_mj) == (None, 5_000_000)
    assert "cannot be true" in {missing.metric: missing.reason for missing in first.unavailable}["power_mw"]


def test_a_name_that_is_no_text_costs_the_name(library: HlmlLibrary, tmp_path: Path) -> None:
    real = globals()["_hlml_device_get_name"]

    def garbage(device: Any, name: Any, size: Any) -> None:
        name.value = b"\xff\xfe"

    globals()["_hlml_device_get_name"] = garbage
    try:
        devices, _ = probe(tmp_path).read(processes=True)
    finally:
        globals()["_hlml_device_get_name"] = real
    assert [(device.name, device.power_mw) for device in devices] == [("Intel Gaudi", 400_000)] * 2
    assert "makes no sense" in {missing.metric: missing.reason for missing in devices[0].unavailable}["name"]
