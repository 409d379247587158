"""An import from a real Prometheus against what the agent makes of the same pages."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.history.prometheus import PrometheusApi
from pertoken.agent.history.run import ImportReport, import_prometheus
from pertoken.agent.history.series import SeriesSource
from pertoken.agent.readings import Endpoint, HostReading, ProbeReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.scrape import RequestLimits
from pertoken.migrations import upgrade
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, HostRow, Tick
from pertoken.store.write.retention import Ages
from pertoken.store.write.writer import Writer
from tests.agent.engine_pages import CAPTURES
from tests.agent.history.servers import SCRAPE_S, Scrape, needs_prometheus, prometheus
from tests.agent.servers import answering, pages
from tests.examples import examples

pytestmark = needs_prometheus

START = 1_763_640_000 // 3600 * 3600
HOURS = 3
END = START + HOURS * 3600
AGES = Ages(raw_s=48 * 3600, minutes_s=30 * 86_400, hours_s=730 * 86_400)
LIMITS = RequestLimits(timeout_s=20, page_bytes=50_000_000)
TOKENS = ("prompt_tokens", "cached_tokens", "generated_tokens", "requests_finished")
STAGES = ("before", "during", "after")
STAGE_S = 1800
"""Each page stands for half an hour; after the third the server was restarted and counted the last two again."""


def _vllm(ts: int) -> str:
    stage = (ts - START - 1) // STAGE_S
    first_life = stage < len(STAGES)
    name = STAGES[max(0, stage)] if first_life else STAGES[min(1 + stage - len(STAGES), 2)]
    page = (CAPTURES / f"vllm-0.32.0-metrics-{name}.prom").read_text()
    started = START - 60 if first_life else START + 3 * STAGE_S + 5
    return re.sub(r"(?m)^process_start_time_seconds .*$", f"process_start_time_seconds {started}", page)


def _dcgm(ts: int) -> str:
    lines = []
    for gpu, watts in ((0, 300), (1, 70)):
        labels = (
            f'gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
            'Hostname="gpu-1",DCGM_FI_DRIVER_VERSION="580.1"'
        )
        values = {
            "DCGM_FI_DEV_GPU_UTIL": 60,
            "DCGM_FI_DEV_FB_USED": 70_000,
            "DCGM_FI_DEV_FB_FREE": 11_559,
            "DCGM_FI_DEV_POWER_USAGE": watts,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 10**9 + watts * 1000 * (ts - START),
            "DCGM_FI_DEV_GPU_TEMP": 9_223_372_036_854_775_794,
        }
        lines += [f"{name}{{{labels}}} {value}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _scrapes() -> Iterator[Scrape]:
    for ts in range(START, END + 1, SCRAPE_S):
        yield ts, _vllm(ts), {"job": "vllm", "instance": "10.0.0.5:8000"}
        yield ts, _dcgm(ts), {"job": "dcgm", "instance": "10.0.0.5:9400"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus"), _scrapes()) as url:
        yield url


def _new_store(folder: Path) -> Store:
    where = StoreLocation(folder)
    upgrade(where, "telemetry")
    return open_store(where)


def _imported(server: str, store: Store, end: int = END) -> ImportReport:
    source = SeriesSource(PrometheusApi(server, LIMITS))
    return import_prometheus(source, store, store.location, START, end, AGES, lambda _: None)


@pytest.fixture(scope="module")
def imported(server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, ImportReport]:
    store = _new_store(tmp_path_factory.mktemp("imported") / "db")
    return store, _imported(server, store)


def _sums(store: Store, table: Any, *names: str) -> dict[str, Any]:
    with store.read() as connection:
        row = connection.execute(select(*(func.sum(table.c[name]).label(name) for name in names))).one()
    return dict(row._mapping)


def _rows(store: Store, table: Any) -> list[Any]:
    with store.read() as connection:
        return list(connection.execute(select(table).order_by(*table.primary_key)))


def _agents_own_sums() -> dict[str, int]:
    """Return what the agent counts of the same pages, read over HTTP once a minute."""
    current: list[bytes] = [b""]

    def answer(connection: Any, path: str) -> None:
        replies: dict[str, bytes | tuple[int, bytes]] = {
            "/metrics": current[0],
            "/v1/models": (CAPTURES / "vllm-0.32.0-v1-models.json").read_bytes(),
        }
        pages(replies)(connection, path)

    host = HostReading("h", "m", None, 0, "", None, None, None, None, None, None, None, None)
    state, sums = TickState(watching_since_ms=0, boot_ms=0), dict.fromkeys(TOKENS, 0)
    with answering(answer) as url:
        reader = EngineReader(Endpoint("vllm", url, "setting"), LIMITS, clock=lambda: 0.0)
        for ts in range(START, END + 1, 60):
            current[0] = _vllm(ts).encode()
            tick, state = assemble(
                state,
                Readings(ProbeReading(host, ()), reader.read()),
                Moment(ts, 1000 * ts, 1000 * ts, 60),
                None if ts == START else AgentCost(0, 0, 0, 0),
            )
            for sample in tick.samples:
                if isinstance(sample, DeploymentSample):
                    for name in TOKENS:
                        sums[name] += getattr(sample, name) or 0
    return sums


def test_tokens_equal_what_the_agent_counts_of_the_same_pages_across_a_restart(
    imported: tuple[Store, ImportReport],
) -> None:
    store, _ = imported
    own = _agents_own_sums()
    assert min(own.values()) > 0
    assert _sums(store, t.deployment_rollup[60], *TOKENS) == own
    assert _sums(store, t.deployment_rollup[3600], *TOKENS) == own


def test_devices_have_their_time_energy_and_gauges(imported: tuple[Store, ImportReport]) -> None:
    store, _ = imported
    sums = _sums(store, t.device_rollup[3600], "duration_ms", "observed_ms", "energy_counter_mj", "temperature_c_sum")
    seconds = HOURS * 3600
    assert sums == {
        "duration_ms": 2 * 1000 * seconds,
        "observed_ms": 2 * 1000 * seconds,
        "energy_counter_mj": 370 * 1000 * seconds,
        "temperature_c_sum": None,  # DCGM's mark of a blank value is no temperature
    }
    devices = {row.uuid: row for row in _rows(store, t.device)}
    assert devices["GPU-0"].name == "NVIDIA H100 80GB HBM3"
    assert devices["GPU-0"].memory_bytes == 81_559 * 2**20


def test_latencies_are_imported_across_a_restart(imported: tuple[Store, ImportReport]) -> None:
    store, _ = imported
    with store.read() as connection:
        rollup = t.histogram_rollup[3600]
        counts = select(func.sum(rollup.c.count)).where(rollup.c.metric == "ttft_s")
        observed = connection.execute(counts).scalar()
    before, after = (
        int(float(re.findall(r"time_to_first_token_seconds_count\{.*\} (\S+)", page)[0]))
        for page in (_vllm(START), _vllm(END))
    )
    assert observed == 2 * after - before


def _added_label(ts: int) -> Iterator[dict[str, str]]:
    yield {"team": "search"} if ts >= START + 5000 else {}


def _pair(ts: int) -> Iterator[dict[str, str]]:
    for replica in ("0", "1"):
        if replica == "0" or not 4000 <= ts - START < 5000:
            yield {"prometheus_replica": replica}


@pytest.mark.parametrize("more", [_added_label, _pair])
def test_tokens_are_the_same_under_a_label_that_is_added_and_from_a_pair_of_servers(
    more: Callable[[int], Iterator[dict[str, str]]], tmp_path: Path
) -> None:
    scrapes = ((ts, page, {**target, **labels}) for ts, page, target in _scrapes() for labels in more(ts))
    with prometheus(tmp_path, scrapes) as url:
        store = _new_store(tmp_path / "db")
        _imported(url, store)
    assert _sums(store, t.deployment_rollup[60], *TOKENS) == _agents_own_sums()
    sums = _sums(store, t.device_rollup[3600], "duration_ms", "energy_counter_mj")
    assert sums == {"duration_ms": 2 * 1000 * HOURS * 3600, "energy_counter_mj": 370 * 1000 * HOURS * 3600}


def test_a_day_with_a_restart_a_new_label_and_a_pair_of_servers_of_which_each_was_away_is_exact(tmp_path: Path) -> None:
    """By the minute: the pages of three hours, then the last one for the rest of the day (six hours in a quick run)."""
    duration_s = examples(24) * 3600

    def scrapes() -> Iterator[Scrape]:
        for ts in range(START, START + duration_s + 1, 60):
            for replica, away_h in (("0", range(1, 3)), ("1", range(4, 6))):
                if (ts - START) // 3600 not in away_h:
                    labels = {"prometheus_replica": replica, **({"team": "search"} if ts >= START + 5000 else {})}
                    yield ts, _vllm(ts), {"job": "vllm", "instance": "10.0.0.5:8000", **labels}
                    yield ts, _dcgm(ts), {"job": "dcgm", "instance": "10.0.0.5:9400", **labels}

    with prometheus(tmp_path, scrapes()) as url:
        store = _new_store(tmp_path / "db")
        _imported(url, store, START + duration_s)
    assert _sums(store, t.deployment_rollup[60], *TOKENS) == _agents_own_sums()
    sums = _sums(store, t.device_rollup[3600], "duration_ms", "energy_counter_mj")
    assert sums == {"duration_ms": 2 * 1000 * duration_s, "energy_counter_mj": 370 * 1000 * duration_s}


def test_a_second_import_changes_nothing(server: str, imported: tuple[Store, ImportReport]) -> None:
    store, first = imported
    tables = (t.device_rollup[60], t.deployment_rollup[3600], t.histogram_rollup[3600], t.epoch, t.device, t.host)
    before = {table.name: _rows(store, table) for table in tables}
    again = _imported(server, store)
    assert {table.name: _rows(store, table) for table in tables} == before
    assert first.hosts[0].minutes == HOURS * 60
    assert again.hosts[0].minutes == 0


def test_an_import_goes_on_where_the_one_before_ended(
    server: str, imported: tuple[Store, ImportReport], tmp_path: Path
) -> None:
    whole, _ = imported
    store = _new_store(tmp_path / "db")
    _imported(server, store, START + 4500)
    _imported(server, store)
    names = (*TOKENS, "duration_ms")
    assert _sums(store, t.deployment_rollup[3600], *names) == _sums(whole, t.deployment_rollup[3600], *names)
    assert _sums(store, t.histogram_rollup[3600], "count") == _sums(whole, t.histogram_rollup[3600], "count")
    assert len(_rows(store, t.epoch)) == len(_rows(whole, t.epoch)) == 1


def test_an_import_ends_where_an_agent_recorded_the_host_itself(server: str, tmp_path: Path) -> None:
    store = _new_store(tmp_path / "db")
    agent_from = START + 3600
    with Writer(store.location) as writer:
        writer.commit(Tick(agent_from, HostRow(1, "gpu-1", "machine", None, None, None, None, None, None, "0", 10)))
    report = _imported(server, store)
    assert report.hosts[0].last_ts == agent_from
    assert report.hosts[0].note == "an agent recorded it from then on"
    assert max(row.ts for row in _rows(store, t.device_rollup[60])) == agent_from - 60


def test_metrics_missing_from_prometheus_have_a_remedy_and_owners_by_host_are_assumed(
    imported: tuple[Store, ImportReport],
) -> None:
    store, report = imported
    blocked = {line.metric: line for line in report.blocked}
    assert blocked["SM active"].owners == 2
    assert "DCGM_FI_PROF_SM_ACTIVE" in (blocked["SM active"].remedy or "")
    assert {row.whole_provenance for row in _rows(store, t.deployment_rollup[60])} == {5}
    assert {row.found_by for row in _rows(store, t.engine)} == {"prometheus"}
    assert any(row.status == "imported" for row in _rows(store, t.capability))
