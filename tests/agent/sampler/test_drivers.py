import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select

from pertoken.agent.sampler.child import VENDORS
from pertoken.agent.sampler.client import RELEASED_S, Drivers
from pertoken.agent.systemd import samplers
from pertoken.errors import StoreError
from pertoken.settings.values import PROBES
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from tests.standin_nvml import Machine, ManualClock, eight, environment, set_machine

PATIENCE_S = 60.0


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        time.sleep(0.2)


def hanging(fifo: Path, nth: int) -> dict[str, str]:
    os.mkfifo(fifo)
    return environment(Machine(gpus=eight(), hang=("nvmlDeviceGetUtilizationRates", nth, str(fifo))))


def test_while_the_sampler_hangs_devices_are_lost_with_the_reason_and_host_and_cpu_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in hanging(tmp_path / "hang", 9).items():
        monkeypatch.setenv(name, value)
    drivers = Drivers(["nvidia"])
    try:
        assert drivers.read(True, PATIENCE_S)[1] == ()
        reading, (event,) = drivers.read(False, 0.2)
        assert event.kind == "sampler_stalled" and "did not answer within 0.2 s" in event.message
        *gpus, cpu = reading.devices
        assert len(gpus) == 8 and cpu.kind == "cpu" and cpu.lost is None and cpu.memory_used_bytes
        assert all(gpu.lost == event.message and gpu.power_mw is gpu.energy_mj is gpu.util_1e4 is None for gpu in gpus)
        assert "sampler" in {missing.metric for missing in reading.unavailable}

        again, silent = drivers.read(False, PATIENCE_S)
        assert silent == () and again.host.cpu_util_1e4 is not None, "the event is recorded once; the host goes on"

        (tmp_path / "hang").open("wb").close()
        until(lambda: drivers.read(False, PATIENCE_S)[0].devices[0].lost is None, "the sampler's return")
        reading, _ = drivers.read(False, PATIENCE_S)
        assert [gpu.lost for gpu in reading.devices] == [None] * 9
        assert "sampler" not in {missing.metric for missing in reading.unavailable}
    finally:
        drivers.close()


def test_driver_events_are_reported_once_and_not_again_while_the_sampler_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo, control, gpus = tmp_path / "hang", tmp_path / "machine", eight()
    os.mkfifo(fifo)
    for name, value in environment(Machine(gpus=gpus), control=control).items():
        monkeypatch.setenv(name, value)
    drivers = Drivers(["nvidia"])
    try:
        drivers.read(False, PATIENCE_S)
        struck = (replace(gpus[2], xids=((time.time(), 79),)), *gpus[3:])
        set_machine(control, Machine(gpus=(*gpus[:2], *struck)))
        until(lambda: drivers.read(False, PATIENCE_S)[0].driver_events, "the Xid")
        assert drivers.read(False, PATIENCE_S)[0].driver_events == ()
        hanging = replace(gpus[0], hang=("nvmlDeviceGetUtilizationRates", str(fifo)))
        set_machine(control, Machine(gpus=(hanging, gpus[1], *struck)))
        reading, (event,) = drivers.read(False, 0.2)
        assert event.kind == "sampler_stalled" and reading.driver_events == ()
        assert drivers.read(False, 0.2)[0].driver_events == ()
        set_machine(control, Machine(gpus=(*gpus[:2], *struck)))
        fifo.open("wb").close()
        until(lambda: not drivers.read(False, PATIENCE_S)[0].devices[0].lost, "the sampler's return")
    finally:
        drivers.close()


def test_only_the_probes_named_are_asked() -> None:
    drivers = Drivers([])
    try:
        reading, _ = drivers.read(False, PATIENCE_S)
    finally:
        drivers.close()
    assert [device.kind for device in reading.devices] == ["cpu"] and reading.driver_calls == 0


def test_released_drivers_have_no_open_handle_until_they_are_taken_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment(Machine(gpus=eight())).items():
        monkeypatch.setenv(name, value)
    clock = ManualClock()
    drivers = Drivers(["nvidia"], clock)
    try:
        drivers.read(False, PATIENCE_S)
        assert len(samplers(os.getpid())) == 1
        drivers.release()
        assert samplers(os.getpid()) == []
        reading, (event,) = drivers.read(False, PATIENCE_S)
        assert event.kind == "drivers_released" and samplers(os.getpid()) == []
        assert {gpu.silent_s for gpu in reading.devices[:8]} == {0}
        clock.now_s += 42
        assert {gpu.silent_s for gpu in drivers.read(False, PATIENCE_S)[0].devices} == {42, None}
        assert [gpu.lost for gpu in reading.devices] == [event.message] * 8 + [None]
        drivers.resume()
        reading, (event,) = drivers.read(False, PATIENCE_S)
        assert event.kind == "sampler_back" and {gpu.lost for gpu in reading.devices} == {None}
        drivers.release()
        assert drivers.read(False, PATIENCE_S)[0].devices[0].lost
        clock.now_s += RELEASED_S
        assert drivers.read(False, PATIENCE_S)[0].devices[0].lost is None, "nobody has to remember to take them up"
    finally:
        drivers.close()


def test_a_whole_agent_keeps_ticking_while_its_sampler_hangs_and_reports_it(tmp_path: Path) -> None:
    folder = tmp_path / "db"

    def ask(query: object) -> list[tuple[object, ...]]:
        with open_store(locate(str(folder))).read() as connection:
            return [tuple(row) for row in connection.execute(query)]  # type: ignore[call-overload]

    def events() -> set[object]:
        try:
            return {kind for (kind,) in ask(select(t.event.c.kind))}
        except StoreError:
            return set()

    def ticks() -> int:
        try:
            return int(str(ask(select(func.count()).select_from(t.host_sample))[0][0]))
        except StoreError:
            return 0

    options = ["--db", str(folder), "--interval", "1s"]
    settings = {"PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_PROBES": "nvidia"}
    machine = environment(Machine(gpus=eight()))
    with (tmp_path / "log").open("ab") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "pertoken", "agent", *options], env=machine | settings, stderr=log
        )
        try:
            until(lambda: samplers(agent.pid), "the sampler")
            sampler = psutil.Process(samplers(agent.pid)[0])
            until(ticks, "the first tick")
            sampler.suspend()
            until(lambda: "sampler_stalled" in events(), "the stall")
            before = ticks()
            until(lambda: ticks() > before, "a tick without the driver")
            gpu = select(t.device_sample.c.observed_ms, t.device_sample.c.power_mw).join(
                t.device, t.device.c.device_id == t.device_sample.c.device_id
            )
            newest = gpu.where(t.device.c.kind == "gpu").order_by(t.device_sample.c.ts.desc()).limit(8)
            assert ask(newest) == [(0, None)] * 8
            sampler.resume()
            until(lambda: "sampler_back" in events(), "the return")
            until(lambda: all(power for _, power in ask(newest)), "watts again")

            pertoken = [sys.executable, "-m", "pertoken", "agent"]
            subprocess.run([*pertoken, "release", "--db", str(folder)], check=True, capture_output=True, timeout=60)
            assert samplers(agent.pid) == []
            until(lambda: ask(newest) == [(0, None)] * 8, "rows without the driver")
            subprocess.run([*pertoken, "resume", "--db", str(folder)], check=True, capture_output=True, timeout=60)
            until(lambda: all(power for _, power in ask(newest)), "watts once more")
            assert {"drivers_released", "device_lost", "device_back"} <= events()
        finally:
            agent.terminate()
            agent.wait(PATIENCE_S)
    assert agent.returncode == 0
    (energy,) = ask(select(func.sum(t.device_sample.c.energy_counter_mj)))
    assert energy[0] is not None


def test_the_sampler_has_a_probe_for_each_name_of_the_setting() -> None:
    assert tuple(VENDORS) == PROBES
