import json
import subprocess
import sys

import pytest

from benchmarks.agent.gpu_check import activity_rows, capability_rows, energy_row, latency_rows, overhead_rows, physics
from benchmarks.agent.gpu_check import why_not as why
from benchmarks.report import Row, report
from pertoken.agent.readings import DeviceReading, Unavailable
from tests.standin_nvml import Machine, eight, environment, installed

GPU = DeviceReading("GPU-1", "gpu", "NVIDIA", "NVIDIA H100", power_mw=400_000, energy_mj=0, util_1e4=9000)


def test_without_a_gpu_the_check_prints_one_line_and_exits_2() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(Machine(absent=True)), timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "no NVIDIA GPU" in done.stderr


def test_a_driver_that_lists_no_gpu_is_no_gpu() -> None:
    with installed(Machine()):
        assert "lists none" in (why() or "")


def test_each_call_of_a_tick_is_timed_and_a_refused_one_has_no_time() -> None:
    with installed(Machine(gpus=eight(unsupported=("nvmlDeviceGetUtilizationRates",)))):
        times = {latency_row.what: latency_row.value for latency_row in latency_rows()}
    median, worst = times["memory_used_bytes"], times["memory_used_bytes_worst"]
    assert times["util_1e4"] is None
    assert isinstance(median, float) and isinstance(worst, float) and worst >= median > 0


def test_energy_by_both_ways_is_compared_and_a_reset_gives_no_figure() -> None:
    read = [(float(s), GPU._replace(energy_mj=s * 400_000)) for s in range(5)]
    assert energy_row("copy", read).value == 1.0
    reset = energy_row("copy", [*read, (5.0, GPU)])
    assert reset.value is None and "reset" in reset.method


def test_unreadable_metrics_are_listed_with_their_reasons() -> None:
    reading = GPU._replace(unavailable=(Unavailable("temperature_c", "unsupported", "not offered"),))
    rows = {capability_row.what: capability_row for capability_row in capability_rows(reading)}
    assert rows["power_mw"].value == 1
    assert (rows["temperature_c"].value, rows["temperature_c"].method) == (0, "unsupported: not offered")


@pytest.mark.parametrize(
    ("product", "copy", "met"),
    [(0.8, 0.001, [True, True]), (0.3, 0.001, [False, True]), (0.8, 0.6, [True, False]), (None, 0.1, [False, False])],
)
def test_a_product_must_work_the_tensor_cores_and_a_copy_must_not(
    product: float | None, copy: float, met: list[bool]
) -> None:
    rows = [Row("product", "tensor_active", product, "ratio", ""), Row("copy", "tensor_active", copy, "ratio", "")]
    met_by_target = {target.id: target.met for target in physics(rows)}
    assert [met_by_target[f"gpu.product_works_tensor_cores{alone}"] for alone in ("", "_alone")] == met
    assert not met_by_target["gpu.copy_works_memory"], "it was not measured"


def test_activity_is_the_median_after_the_start() -> None:
    read = [(float(s), GPU._replace(util_1e4=value)) for s, value in enumerate([0, 100, 9000, 9100, 9200])]
    rows = {activity_row.what: activity_row for activity_row in activity_rows("copy", read)}
    assert rows["util"].value == pytest.approx(0.91) and rows["util"].unit == "ratio"
    assert rows["dram_active"].value is None and rows["power"].value == 400


def test_overhead_is_the_median_of_paired_rounds() -> None:
    assert overhead_rows([1.0, 2.0, 4.0], [1.01, 2.02, 8.0])[-1].value == pytest.approx(0.01)


def test_a_whole_check_has_the_shape_of_every_result() -> None:
    rows = [Row("product", "tensor_active", 0.8, "ratio", "median")]
    result = json.loads(report("gpu_check", rows, physics(rows)))
    assert result.keys() == {"name", "machine", "rows", "targets"} and "torch" in result["machine"]["versions"]
    assert [target["met"] for target in result["targets"]] == [True, False, False, False]
