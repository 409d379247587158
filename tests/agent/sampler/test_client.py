import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.agent.readings import DriversReading, energy_step
from pertoken.agent.sampler.client import Sampler, SamplerDied, SamplerStalled
from tests.agent.sampler.processes import NOTHING, PATIENCE_S, process_of
from tests.standin_nvml import Gpu, Machine, ManualClock, Wave, eight, environment


@contextmanager
def sampler(machine: Machine, **extra: str) -> Iterator[Sampler]:
    child = Sampler(environment(machine) | extra)
    try:
        yield child
    finally:
        child.close(PATIENCE_S)


def gpus_of(reading: DriversReading) -> list[str]:
    return [device.uuid for device in reading.devices if device.kind == "gpu" and device.lost is None]


def test_a_whole_sampler_reads_all_gpus_and_what_that_costs() -> None:
    with sampler(Machine(gpus=eight(processes=((os.getpid(), 5),)))) as child:
        first = child.read(processes=True, deadline_s=PATIENCE_S)
        second = child.read(processes=False, deadline_s=PATIENCE_S)
    assert gpus_of(first) == [gpu.uuid for gpu in eight()]
    assert [device.kind for device in first.devices] == ["gpu"] * 8
    assert all(held and held[0].pid == os.getpid() for held in (gpu.processes for gpu in first.devices))
    assert all(device.processes is None for device in second.devices)
    assert {missing.metric for missing in first.unavailable} <= {"amd"}
    assert first.cpu_ms > second.cpu_ms >= 0 and second.rss_bytes > 2**20
    assert 8 * 20 < first.driver_calls < 8 * 30 and 8 * 5 <= second.driver_calls <= 8 * 7 + 2


def test_energy_through_the_whole_sampler_is_the_truth() -> None:
    gpu = Gpu("GPU-1", power_mw=Wave(400_000), energy_start_mj=0)
    with sampler(Machine(gpus=(gpu,))) as child:
        first = child.read(processes=False, deadline_s=PATIENCE_S).devices[0]
        started_s = time.monotonic()
        while time.monotonic() - started_s < 0.2:
            second = child.read(processes=False, deadline_s=PATIENCE_S).devices[0]
    assert first.energy_mj is not None and second.energy_mj is not None
    elapsed_ms = (second.energy_mj - first.energy_mj) // 400
    assert elapsed_ms >= 100
    assert energy_step(first, second, elapsed_ms).counter_mj == pytest.approx(400 * elapsed_ms, rel=0.01)


def test_a_host_without_gpus_is_read_with_the_reasons_why_there_are_none() -> None:
    with sampler(NOTHING) as child:
        reading = child.read(processes=True, deadline_s=PATIENCE_S)
    assert reading.devices == ()
    assert "nvidia" in {missing.metric for missing in reading.unavailable if missing.status == "missing"}


def test_a_killed_sampler_is_replaced_and_the_reading_reports_it() -> None:
    with sampler(Machine(gpus=eight())) as child:
        child.read(processes=False, deadline_s=PATIENCE_S)
        process = process_of(child)
        process.kill()
        reading = child.read(processes=False, deadline_s=PATIENCE_S)
        assert child.pid != process.pid and len(gpus_of(reading)) == 8
        (restart,) = (missing for missing in reading.unavailable if missing.metric == "sampler")
        assert "SIGKILL" in restart.reason and "started again" in restart.reason
        again = child.read(processes=False, deadline_s=PATIENCE_S)
        assert "sampler" not in {missing.metric for missing in again.unavailable}


def test_a_sampler_outdated_by_a_new_driver_is_replaced_by_one_that_can_read_it() -> None:
    with sampler(Machine(gpus=eight())) as child:
        calls_of_a_first_read = child.read(processes=False, deadline_s=PATIENCE_S).driver_calls
    with sampler(Machine(gpus=eight(), reload_after=calls_of_a_first_read, reload_mismatch=True)) as child:
        assert len(gpus_of(child.read(processes=False, deadline_s=PATIENCE_S))) == 8
        first = child.pid
        stale = child.read(processes=False, deadline_s=PATIENCE_S)
        assert gpus_of(stale) == [] and "nvidia" in {missing.metric for missing in stale.unavailable}
        reading = child.read(processes=False, deadline_s=PATIENCE_S)
        assert child.pid != first and len(gpus_of(reading)) == 8
        assert "sampler" in {missing.metric for missing in reading.unavailable}


def test_a_hung_call_stalls_the_sampler_which_is_left_alone_and_then_goes_on(tmp_path: Path) -> None:
    fifo = tmp_path / "hang"
    os.mkfifo(fifo)
    with sampler(Machine(gpus=eight(), hang=("nvmlDeviceGetUtilizationRates", 9, str(fifo)))) as child:
        assert len(gpus_of(child.read(processes=False, deadline_s=PATIENCE_S))) == 8
        before = child.pid
        for _ in range(2):
            reading = child.read(processes=False, deadline_s=PATIENCE_S)
            assert len(gpus_of(reading)) == 7
        fifo.open("wb").close()
        deadline = time.monotonic() + PATIENCE_S
        while len(gpus_of(reading)) < 8 and time.monotonic() < deadline:
            reading = child.read(processes=True, deadline_s=PATIENCE_S)
        assert child.pid == before and len(gpus_of(reading)) == 8


def test_a_sampler_that_hangs_at_the_end_is_not_killed_but_left_to_end(tmp_path: Path) -> None:
    fifo = tmp_path / "hang"
    os.mkfifo(fifo)
    child = Sampler(environment(Machine(gpus=eight(), hang=("nvmlDeviceGetCount_v2", 1, str(fifo)))))
    with pytest.raises(SamplerStalled, match="a driver call hangs"):
        child.read(processes=False, deadline_s=0.1)
    assert {missing.metric for missing in child.read(processes=False, deadline_s=PATIENCE_S).unavailable} >= {"nvidia"}
    process = process_of(child)
    child.close(wait_s=0.1)
    assert process.is_running()
    fifo.open("wb").close()
    process.wait(PATIENCE_S)


def test_a_child_that_was_asked_ahead_is_asked_once_and_answers_the_next_read() -> None:
    with sampler(Machine(gpus=eight())) as child:
        first = child.read(processes=False, deadline_s=PATIENCE_S)
        child.ask(processes=True)
        ahead, plain = (child.read(processes=listed, deadline_s=PATIENCE_S) for listed in (True, False))
    assert [all(gpu.processes is None for gpu in reading.devices) for reading in (first, ahead, plain)] == [
        True,
        False,
        True,
    ]


def test_a_child_that_ended_after_an_early_request_is_replaced_and_asked_again() -> None:
    with sampler(Machine(gpus=eight())) as child:
        child.read(processes=False, deadline_s=PATIENCE_S)
        process = process_of(child)
        process.suspend()
        child.ask(processes=False)
        process.kill()
        reading = child.read(processes=False, deadline_s=PATIENCE_S)
    assert child.pid != process.pid and len(gpus_of(reading)) == 8
    assert "sampler" in {missing.metric for missing in reading.unavailable}


def test_slow_calls_are_waited_for() -> None:
    with sampler(Machine(gpus=eight()[:2], slow_s=0.01)) as child:
        assert len(gpus_of(child.read(processes=False, deadline_s=PATIENCE_S))) == 2


def test_a_sampler_that_always_dies_is_reported_and_not_restarted_in_a_loop(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(2, b'.')\nos._exit(7)\n")
    clock = ManualClock()
    child = Sampler({**os.environ, "PYTHONPATH": str(tmp_path)}, clock)
    with pytest.raises(SamplerDied, match="ends whenever it is asked"):
        child.read(processes=False, deadline_s=PATIENCE_S)
    assert child.pid is None
    (tmp_path / "sitecustomize.py").unlink()
    with pytest.raises(SamplerDied):
        child.read(processes=False, deadline_s=PATIENCE_S)
    clock.now_s += 6
    assert child.read(processes=False, deadline_s=PATIENCE_S).rss_bytes
    child.close(PATIENCE_S)


def test_an_answer_that_is_no_reading_replaces_the_sampler(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(1, b'hello\\n')\n")
    child = Sampler({**os.environ, "PYTHONPATH": str(tmp_path)})
    with pytest.raises(SamplerDied):
        child.read(processes=False, deadline_s=PATIENCE_S)
    child.close(PATIENCE_S)
