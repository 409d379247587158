import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.gpu_check import activity_rows, capability_rows, energy_row, latency_rows, overhead_rows, physics, row
from benchmarks.gpu_check import why_not as why
from pertoken.agent.readings import DeviceReading, Gap
from tests.standin_nvml import Machine, eight, environment, installed

GPU = DeviceReading("GPU-1", "gpu", "NVIDIA", "NVIDIA H100", power_mw=400_000, energy_mj=0, util_1e4=9000)


def test_without_a_gpu_it_says_so_in_one_line_and_exits_2() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(Machine(absent=True)), timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "no NVIDIA GPU" in done.stderr


def test_a_driver_that_lists_no_gpu_is_no_gpu() -> None:
    with installed(Machine()):
        assert "lists none" in (why() or "")


def test_each_call_of_a_tick_is_timed_and_what_is_refused_has_no_time() -> None:
    with installed(Machine(gpus=eight(unsupported=("nvmlDeviceGetUtilizationRates",)))):
        times = {each["name"]: each["value"] for each in latency_rows()}
    assert times["latency.util_1e4"] is None
    assert times["latency.memory_used_bytes.worst"] >= times["latency.memory_used_bytes"] > 0


def test_energy_by_both_ways_is_compared_and_a_reset_gives_no_figure() -> None:
    read = [(float(s), replace(GPU, energy_mj=s * 400_000)) for s in range(5)]
    assert energy_row(read)["value"] == 1.0
    assert energy_row([*read, (5.0, GPU)])["value"] is None


def test_what_cannot_be_read_is_listed_with_its_reason() -> None:
    reading = replace(GPU, gaps=(Gap("temperature_c", "unsupported", "not offered"),))
    rows = {each["name"]: each for each in capability_rows(reading)}
    assert rows["capability.power_mw"]["value"] == 1
    assert (rows["capability.temperature_c"]["value"], rows["capability.temperature_c"]["method"]) == (
        0,
        "unsupported: not offered",
    )


@pytest.mark.parametrize(("tensor", "met"), [(8000, True), (3000, False), (None, False)])
def test_a_product_must_work_the_tensor_cores_more_than_a_copy_does(tensor: int | None, met: bool) -> None:
    rows = [
        row("product.tensor_active_1e4", tensor, "", ""),
        row("copy.tensor_active_1e4", 10, "", ""),
    ]
    found: dict[str, Any] = {each["id"]: each["met"] for each in physics(rows)}
    assert found == {"gpu.product_works_tensor_cores": met, "gpu.copy_works_memory": False}


def test_activity_is_the_median_after_the_start() -> None:
    read = [(float(s), replace(GPU, util_1e4=value)) for s, value in enumerate([0, 100, 9000, 9100, 9200])]
    rows = {each["name"]: each["value"] for each in activity_rows("copy", read)}
    assert rows["copy.util_1e4"] == 9100 and rows["copy.dram_active_1e4"] is None


def test_overhead_is_the_median_of_paired_rounds() -> None:
    assert overhead_rows([1.0, 2.0, 4.0], [1.01, 2.02, 8.0])[-1]["value"] == pytest.approx(0.01)
