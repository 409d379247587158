"""Gaudi by a stand-in `hl-smi`: a script that prints what a test wrote into a file."""

import os
import time
from pathlib import Path

import pytest

from pertoken.agent.probes.gaudi import QUERIES, GaudiProbe
from pertoken.agent.readings import DeviceReading, ProbeReading, bounded
from tests.agent.values import HOST
from tests.standin_nvml import ManualClock

FIRST = "0, 01P0-100, HL-325L, 0000:33:00.0, 1.21.0-f00d, 131072 MiB, 10240 MiB, 40 %, 226 W, 41 C"
SECOND = "1, 01P0-101, HL-325L, 0000:34:00.0, 1.21.0-f00d, 131072 MiB, 672 MiB, 0 %, 210.5 W, 39 C"


class HlSmi:
    """The program in a folder, with what it prints, and the arguments of each run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "hl-smi"
        self.path.write_text(f'#!/bin/sh\necho "$@" >> {folder}/runs\n. {folder}/answer\n')
        self.path.chmod(0o755)
        self.prints(FIRST, SECOND)

    def prints(self, *rows: str) -> None:
        (self._folder / "rows").write_text("".join(f"{row}\n" for row in rows))
        self.does(f"cat {self._folder}/rows")

    def does(self, command: str) -> None:
        (self._folder / "answer").write_text(command)

    @property
    def runs(self) -> list[str]:
        return (self._folder / "runs").read_text().splitlines() if (self._folder / "runs").exists() else []


@pytest.fixture
def hl_smi(tmp_path: Path) -> HlSmi:
    return HlSmi(tmp_path)


def probe(hl_smi: HlSmi, clock: ManualClock | None = None, timeout_s: float = 20.0) -> GaudiProbe:
    return GaudiProbe(clock or ManualClock(), str(hl_smi.path), timeout_s=timeout_s)


def test_on_a_host_without_gaudi_nothing_is_run_or_reported(tmp_path: Path) -> None:
    assert GaudiProbe(program="no-such-hl-smi", driver=tmp_path / "none").read(processes=True) == ((), ())


def test_a_loaded_driver_without_the_program_is_reported_with_what_to_install(tmp_path: Path) -> None:
    devices, (missing,) = GaudiProbe(program="no-such-hl-smi", driver=tmp_path).read(processes=True)
    assert devices == () and missing.status == "missing" and "not on PATH" in missing.reason


def test_each_row_is_a_device_in_our_units(hl_smi: HlSmi) -> None:
    (first, second), unavailable = probe(hl_smi).read(processes=True)
    assert unavailable == () and (second.uuid, second.util_1e4, second.power_mw) == ("01P0-101", 0, 210_500)
    assert first == DeviceReading(
        uuid="01P0-100",
        kind="gpu",
        vendor="Intel",
        name="HL-325L",
        slot=0,
        driver_version="1.21.0-f00d",
        memory_bytes=128 * 2**30,
        pci_bus_id="0000:33:00.0",
        util_1e4=4000,
        memory_used_bytes=10 * 2**30,
        power_mw=226_000,
        temperature_c=41,
        unavailable=first.unavailable,
    )
    assert [(missing.metric, missing.status) for missing in first.unavailable] == [("processes", "unsupported")]
    assert hl_smi.runs == [f"-Q {','.join(QUERIES)} -f csv,noheader"]


@pytest.mark.parametrize(
    ("text", "status"),
    [("N/A", "unsupported"), ("226", "failing"), ("226 kW", "failing"), ("-1 W", "failing"), ("9" * 40, "failing")],
)
def test_a_value_that_is_missing_or_no_amount_costs_only_its_metric(hl_smi: HlSmi, text: str, status: str) -> None:
    hl_smi.prints(FIRST.replace("226 W", text))
    ((device,), _) = probe(hl_smi).read(processes=True)
    assert device.power_mw is None and device.util_1e4 == 4000
    assert {missing.metric: missing.status for missing in device.unavailable}["power_mw"] == status


def test_an_implausible_value_costs_only_its_own_metric(hl_smi: HlSmi) -> None:
    hl_smi.prints(FIRST.replace("226 W", "4294967 W"))
    devices, unavailable = probe(hl_smi).read(processes=True)
    (first,) = bounded(ProbeReading(HOST, devices, unavailable), {}).devices
    assert first.power_mw is None and first.util_1e4 == 4000
    assert "cannot be true" in {missing.metric: missing.reason for missing in first.unavailable}["power_mw"]


def test_a_device_that_is_listed_no_more_is_lost_without_values_until_it_is_back(hl_smi: HlSmi) -> None:
    gaudi = probe(hl_smi)
    gaudi.read(processes=False)
    hl_smi.prints(SECOND)
    second, first = gaudi.read(processes=False)[0]
    assert second.lost is None and first.uuid == "01P0-100"
    assert first.lost is not None and (first.power_mw, first.util_1e4) == (None, None)
    hl_smi.prints(FIRST, SECOND)
    assert [device.lost for device in gaudi.read(processes=False)[0]] == [None, None]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo 'no driver' >&2; exit 3", "status 3: no driver"),
        ("echo 1,2,3", "3 values instead of 10"),
        ("true", "lists no device"),
        (f"echo '{FIRST.replace('01P0-100', 'N/A')}'", "without a UUID"),
        ("printf '\\377\\376,\\n'", "values instead of 10"),
    ],
)
def test_a_program_that_fails_is_reported_once_as_an_event_and_run_again_later(
    hl_smi: HlSmi, command: str, reason: str
) -> None:
    clock = ManualClock()
    gaudi = probe(hl_smi, clock)
    hl_smi.does(command)
    for _ in range(3):
        devices, (missing,) = gaudi.read(processes=False)
        assert devices == () and missing.metric == "gaudi" and reason in missing.reason
    assert len(hl_smi.runs) == 1 and len(gaudi.driver_events()) == 1 and gaudi.driver_events() == ()
    hl_smi.prints(FIRST)
    clock.now_s += 6
    assert len(gaudi.read(processes=False)[0]) == 1


def test_devices_that_were_read_are_lost_while_the_program_fails(hl_smi: HlSmi) -> None:
    gaudi = probe(hl_smi)
    gaudi.read(processes=False)
    hl_smi.does("exit 1")
    devices, (missing,) = gaudi.read(processes=False)
    assert [device.lost for device in devices] == [missing.reason] * 2
    assert [(device.power_mw, device.util_1e4) for device in devices] == [(None, None)] * 2
    assert missing.status == "failing"


def test_a_program_that_hangs_is_ended_and_a_second_one_is_not_started_beside_it(hl_smi: HlSmi, tmp_path: Path) -> None:
    clock = ManualClock()
    hl_smi.does(f"echo $$ > {tmp_path}/pid; exec sleep 600")
    gaudi = probe(hl_smi, clock, timeout_s=1.0)
    devices, (missing,) = gaudi.read(processes=False)
    assert devices == () and "did not answer within 1 s" in missing.reason
    process_id = int((tmp_path / "pid").read_text())
    hl_smi.prints(FIRST)
    deadline = time.monotonic() + 20
    while not gaudi.read(processes=False)[0] and time.monotonic() < deadline:
        clock.now_s += 301
    assert len(gaudi.read(processes=False)[0]) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
    gaudi.close()
