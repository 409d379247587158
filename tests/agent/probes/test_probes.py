"""Drivers that answer with what cannot be true: the value is unknown with a reason, and recording goes on."""

import os
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pynvml
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from pertoken.metrics import MAX_POWER_MW
from pertoken.store.schema import telemetry as t
from tests.agent.recorded_devices import copied, recording
from tests.agent.whole_agent import agent, until
from tests.examples import examples
from tests.standin_nvml import ALL_ONES, Gpu, Machine, Slice, Wave
from tests.standin_nvml.lies import FIELD_IDS, OF_A_GPU
from tests.standin_nvml.shared import COMPILER
from tests.values import new_store

ME, PARENT = os.getpid(), os.getppid()
MIG = (Slice("MIG-0", 1, processes=((ME, 2**30),)), Slice("MIG-1", 2))
ROW = {
    "nvmlDeviceGetMemoryInfo_v2": "memory_used_bytes",
    "nvmlDeviceGetUtilizationRates": "util_1e4",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
    "nvmlDeviceGetTemperatureV": "temperature_c",
    "nvmlDeviceGetCurrentClocksEventReasons": "throttle_reasons",
    pynvml.NVML_FI_DEV_POWER_AVERAGE: "power_mw",
    pynvml.NVML_FI_DEV_POWER_INSTANT: "power_instant_mw",
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: "energy_counter_mj",
    pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: "ecc_corrected",
    pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL: "ecc_uncorrected",
}
"""Calls and field ids -> the column of a row that has their value and no other."""
METRIC = {"energy_counter_mj": "energy_mj"}
"""Columns -> metrics of gaps, where these differ."""
SECONDS = 10
"""What a row of these tests covers."""
MOST = {
    "util_1e4": 10_000,
    "memory_used_bytes": 80 * 2**30,
    "power_mw": 3 * 700_000,
    "power_instant_mw": 3 * 700_000,
    "energy_counter_mj": 10 * 10_000_000,
    "energy_integral_mj": 10 * 3 * 700_000,
    "sm_clock_mhz": 10_000,
    "memory_clock_mhz": 50_000,
    "temperature_c": 150,
    "throttle_reasons": 2**16 - 1,
    "sm_active_1e4": 10_100,
    "sm_occupancy_1e4": 10_100,
    "tensor_active_1e4": 10_100,
    "dram_active_1e4": 10_100,
    "nvlink_rx_mib_s": 10**7,
    "nvlink_tx_mib_s": 10**7,
    "ecc_corrected": 10**9,
    "ecc_uncorrected": 10**9,
}
"""What no value of the stand-in's H100 can be above, in a row of 10 s."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables that is copied for every recording."""
    folder = tmp_path_factory.mktemp("empty")
    new_store(folder)
    return folder


def busy(uuid: str = "GPU-1", **more: Any) -> Gpu:
    """Return a GPU on which two processes compute."""
    return Gpu(uuid, processes=((ME, 2**30), (PARENT, 2**30)), process_sm=((ME, 50), (PARENT, 10)), **more)


def impossible(row: Any) -> dict[str, int]:
    """Return values of a row that cannot be true."""
    return {
        name: value
        for name, most in MOST.items()
        if (value := getattr(row, name)) is not None and not 0 <= value <= most
    }


@pytest.mark.parametrize("lie", [*ROW], ids=str)
def test_a_getter_that_answers_all_ones_costs_its_metric_and_nothing_else(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str | int
) -> None:
    gpus = (busy(lies=((lie, ALL_ONES),)), busy("GPU-2"))
    with recording(copied(empty, tmp_path), Machine(gpus=gpus), monkeypatch) as recorded:
        recorded.tick(4)
        assert recorded.hosts() == 3
        row, healthy = recorded.rows("GPU-1")[-1], recorded.rows("GPU-2")[-1]
        column = ROW[lie]
        assert getattr(row, column) is None and getattr(healthy, column) is not None
        assert "cannot be true" in recorded.reasons("GPU-1")[METRIC.get(column, column)]
        touched = {column, "energy_integral_mj"} if column == "power_mw" else {column}
        touched |= {"memory_clock_mhz"} if column == "sm_clock_mhz" else set()
        lost = {name for name in MOST if getattr(row, name) is None and getattr(healthy, name) is not None}
        assert lost == touched
        assert column not in {metric for metric in recorded.reasons("GPU-2")}
        assert impossible(row) == {}


@pytest.mark.parametrize("lie", [*OF_A_GPU, *FIELD_IDS], ids=str)
@pytest.mark.parametrize("sliced", [False, True], ids=["whole", "in MIG devices"])
def test_no_lie_of_one_getter_stops_the_host_or_another_gpu(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str | int, sliced: bool
) -> None:
    gpus = (busy(lies=((lie, ALL_ONES),), slices=MIG if sliced else None), busy("GPU-2"))
    with recording(copied(empty, tmp_path), Machine(gpus=gpus), monkeypatch) as recorded:
        recorded.tick(4)
        assert recorded.hosts() == 3 and "value_lost" not in dict(recorded.events())
        assert all(impossible(row) == {} for row in recorded.ask(select(t.device_sample)))
        assert recorded.rows("GPU-2")[-1].power_mw == 400_000
        shares = recorded.ask(select(t.device_share.c.device_id, t.device_share.c.ts, t.device_share.c.share_1e6))
        held: dict[tuple[int, int], int] = {}
        for device_id, ts, share_1e6 in shares:
            held[device_id, ts] = held.get((device_id, ts), 0) + share_1e6
        assert all(share_1e6 <= 1_000_000 for share_1e6 in held.values())


numbers = st.one_of(st.sampled_from([-1, 0, 1, 2**31, 2**32 - 1, 2**53, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*OF_A_GPU, *FIELD_IDS]), numbers), max_size=6, unique_by=lambda lie: lie[0]))
@example([("nvmlDeviceGetEnforcedPowerLimit", -1), (185, 2_100_001)])
def test_whatever_a_driver_answers_rows_go_on_and_hold_what_can_be_true(
    empty: Path, lies: list[tuple[str | int, float]]
) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        machine = Machine(gpus=(busy(lies=tuple(lies)), busy("GPU-2"), busy("GPU-3", slices=MIG, lies=tuple(lies))))
        with recording(copied(empty, Path(folder)), machine, patch) as recorded:
            recorded.tick(4)
            recorded.writer.roll_up()
            assert recorded.hosts() == 3
            assert recorded.rows("GPU-2")[-1].power_mw == 400_000
            limits = {row.device_id: row for row in recorded.ask(select(t.device))}
            for row in recorded.ask(select(t.device_sample)):
                most = limits[row.device_id].memory_bytes
                odd = impossible(row) if row.device_id != recorded.rows("GPU-2")[0].device_id else {}
                odd.pop("memory_used_bytes", None)  # of a GPU that lies of its memory
                if limits[row.device_id].power_limit_mw is None:  # then only what no hardware draws is refused
                    for name in ("power_mw", "power_instant_mw", "energy_integral_mj"):
                        assert odd.pop(name, 0) <= MAX_POWER_MW * (SECONDS if name == "energy_integral_mj" else 1)
                assert odd == {}
                assert row.memory_used_bytes is None or most is None or row.memory_used_bytes <= most


@pytest.mark.parametrize("number", [nan, inf, -inf, -5.0, 1e300])
def test_activity_that_is_no_number_or_no_ratio_is_unknown(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    machine = Machine(gpus=(busy(),), lies=(("nvmlGpmMetricsGet", number),))
    with recording(copied(empty, tmp_path), machine, monkeypatch) as recorded:
        recorded.tick(4)
        row = recorded.rows("GPU-1")[-1]
        assert (row.sm_active_1e4, row.nvlink_rx_mib_s, row.power_mw) == (None, None, 400_000)
        assert {"sm_active_1e4", "nvlink_rx_mib_s"} <= recorded.reasons("GPU-1").keys()


def test_zero_power_of_a_gpu_with_a_moving_energy_counter_is_unknown(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = ((pynvml.NVML_FI_DEV_POWER_AVERAGE, 0), (pynvml.NVML_FI_DEV_POWER_INSTANT, 0))
    working = busy(lies=silent, util_percent=Wave(0), sm_percent=Wave(0))
    off = replace(working, uuid="GPU-2", power_mw=Wave(0))
    with recording(copied(empty, tmp_path), Machine(gpus=(working, off)), monkeypatch) as recorded:
        recorded.tick(4)
        row, idle = recorded.rows("GPU-1")[-1], recorded.rows("GPU-2")[-1]
        assert (row.power_mw, row.power_instant_mw, row.energy_counter_mj) == (None, None, 4_000_000)
        assert "0 W while the device works" in recorded.reasons("GPU-1")["power_mw"]
        assert (idle.power_mw, idle.energy_counter_mj) == (0, 0), "a GPU that is off draws nothing"


@pytest.mark.parametrize("count", [ALL_ONES, 2**31, 5000])
def test_a_count_of_gpus_that_cannot_be_leaves_the_known_ones_read(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    with recording(copied(empty, tmp_path), Machine(gpus=(busy(),)), monkeypatch) as recorded:
        recorded.tick(2)
        recorded.library.machine = Machine(gpus=(busy(),), lies=(("nvmlDeviceGetCount_v2", count),))
        tick = recorded.tick(2)
        assert recorded.rows("GPU-1")[-1].power_mw == 400_000
        assert [
            capability.reason for capability in tick.capabilities if capability.metric == "gpus"
        ] == []  # reported a tick before
        reasons = {row.metric: row.reason for row in recorded.ask(select(t.capability))}
        assert "how many GPUs" in reasons["gpus"]


def test_a_count_of_gpus_that_cannot_be_at_the_start_is_a_gap_of_the_host(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(gpus=(busy(),), lies=(("nvmlDeviceGetCount_v2", ALL_ONES),))
    with recording(copied(empty, tmp_path), machine, monkeypatch) as recorded:
        recorded.tick(3)
        assert recorded.hosts() == 2
        reasons = {row.metric: row.reason for row in recorded.ask(select(t.capability))}
        assert "makes no sense" in reasons["nvidia"]


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_a_whole_agent_names_every_lie_and_goes_on_ticking(tmp_path: Path) -> None:
    lies = [*ROW, "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetComputeRunningProcesses_v3"]
    gpus = tuple(Gpu(f"GPU-{n}", lies=((lie, ALL_ONES),), processes=((ME, 5),)) for n, lie in enumerate(lies))
    named = [METRIC.get(ROW[lie], ROW[lie]) for lie in ROW] + ["power_limit_mw", "processes"]
    healthy = Gpu("GPU-whole")
    with agent(tmp_path, Machine(gpus=(*gpus, healthy))) as recorded:
        until(lambda: recorded.faulty((healthy,)) == {}, "a whole row of the healthy GPU")
        for n, metric in enumerate(named):
            assert metric in recorded.reasons(f"GPU-{n}")
        first = len(recorded.ask(select(t.host_sample)))
        until(lambda: len(recorded.ask(select(t.host_sample))) >= first + 3, "more ticks")
        assert all(impossible(row) == {} for row in recorded.latest().values())
        counts = [row.count for row in recorded.ask(select(t.event)) if row.kind in ("metric_lost", "energy_counter")]
        assert all(count == 1 for count in counts)
