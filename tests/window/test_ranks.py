"""Ranks on two hosts in one database, as it is where several hosts report: one deployment with all its devices."""

import getpass
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.advisor.present import present
from pertoken.agent.readings import Endpoint, EngineReading, ProbeReading, Unavailable
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import TickState
from pertoken.catalog.market import load_market
from pertoken.costs.bill import bill
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import FleetReport
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD
from tests.agent.values import CPU, HOST, START_MS, gpu, moment
from tests.costs.test_lines import check_lines
from tests.postgres import server_url
from tests.values import new_store

TICKS = 18
END = START_MS // 1000 + 10 * TICKS
MODEL = "/models/llama"
MEETING = "10.0.0.1:5000"
HEAD = Endpoint(
    "vllm", "http://127.0.0.1:8000", "process", 8000, 100, START_MS - 5_000, (100,), {"tp": 4, "rendezvous": MEETING}
)
FOLLOWER = Endpoint(
    *("vllm", f"rendezvous://{MEETING}/llama", "process", None, 200, START_MS - 5_000, (200,)),
    knobs={"tp": 4, "rendezvous": MEETING},
    model_path=MODEL,
    follows=True,
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    if request.param == "sqlite":
        yield None
        return
    with server_url(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def where(server: str | None, tmp_path: Path) -> Iterator[StoreLocation]:
    if server is None:
        yield new_store(tmp_path)
        return
    from sqlalchemy import create_engine, text

    name = f"ranks_{abs(hash(tmp_path.name))}"
    admin = create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    base, _, options = server.partition("?")
    yield new_store(locate(f"{base.rpartition('/')[0]}/{name}?{options}"))


def probe_of(n: int, *pids: int) -> ProbeReading:
    """Return a host with two GPUs of its own, held by these processes."""
    host = replace(HOST, name=f"gpu-{n}", machine_id=f"machine-{n}")
    gpus = (gpu(slot, *pids)._replace(uuid=f"GPU-{n}-{slot}") for slot in (0, 1))
    return ProbeReading(host, (*gpus, CPU._replace(uuid=f"cpu:machine-{n}")))


def serving(tick: int, meeting: str = MEETING) -> EngineReading:
    """Return the head: what it did in a tick shows at its end, and it did something in every second one."""
    done = tick // 2
    return EngineReading(
        HEAD,
        served_model="llama",
        model_path=MODEL,
        knobs={**HEAD.knobs, "rendezvous": meeting},
        counters={
            "prompt_tokens": 200 * done,
            "cached_tokens": 0,
            "generated_tokens": 100 * done,
            "engine_ms": 10_000 * done,
        },
        gauges={"running": 0.0},
    )


def following(knobs: dict[str, object] | None = None, path: str | None = MODEL) -> EngineReading:
    return EngineReading(
        replace(FOLLOWER, knobs=knobs or FOLLOWER.knobs, model_path=path),
        served_model=path or "ranks",
        model_path=path,
        knobs=knobs or FOLLOWER.knobs,
        unavailable=(Unavailable("rendezvous", "unresolved", "led from elsewhere"),),
    )


def recorded(where: StoreLocation, *hosts: tuple[ProbeReading, list[EngineReading]]) -> FleetReport:
    """Return the report of what all hosts recorded in one database, with a price for every GPU."""
    with Writer(where) as writer:
        for probe, readings in hosts:
            kept = TickState(watching_since_ms=START_MS, boot_ms=HOST.boot_ms)
            for n, reading in enumerate(readings):
                tick, kept = assemble(
                    kept, Readings(probe, (reading,)), moment(n), AgentCost(1, 1, 1, 0) if n else None
                )
                writer.commit(tick)
        writer.roll_up()
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector="H100",
            nano_usd_per_device_hour=6 * NANO_USD,
            from_ts=0,
            set_ts=1,
            set_by=getpass.getuser(),
            note=None,
        )
    store = open_store(where)
    with bill(store, END - 3600, END) as priced:
        check_lines(priced, 3600)
    return fleet_report(store, 3600, END)


def head(meeting: str = MEETING) -> tuple[ProbeReading, list[EngineReading]]:
    return probe_of(1, 100), [serving(n, meeting) for n in range(TICKS + 1)]


def test_ranks_of_two_hosts_are_one_deployment_with_all_its_devices_and_dollars(where: StoreLocation) -> None:
    report = recorded(where, head(), (probe_of(2, 200), [following()] * (TICKS + 1)))
    (line,) = report.deployments
    assert (line.model, line.host, len(line.devices)) == ("llama", "gpu-1", 4)
    assert (line.generated_tokens, line.prompt_tokens) == (50 * TICKS, 100 * TICKS)
    assert line.busy == pytest.approx(0.5)
    hours = 10 * TICKS / 3600
    assert line.nano_usd == pytest.approx(4 * 6 * NANO_USD * hours)
    assert line.nano_usd_per_hour == pytest.approx(24 * NANO_USD, rel=0.01)
    assert report.bill is not None
    # Ranks that follow are busy while their head is: half of the time, as its own devices.
    assert report.bill.busy == pytest.approx(report.bill.paid / 2)
    assert report.bill.paid == report.bill.busy + report.bill.idle + report.bill.other + report.bill.unallocated
    assert (line.busy_is_bound, report.bill.busy_is_bound) == (False, False)  # nor are its followers', as it is known
    assert not [missing for missing in report.missing if missing.metric == "rendezvous"]
    assert {device.held_by for device in report.devices if device.kind == "gpu"} == {("llama",)}
    gathered = present(open_store(where), load_market(), 3600, END)
    (now,) = gathered.fleet.deployments
    assert (len(now.device_ids), now.n_devices) == (4, 4)
    assert {device.device_id for device in gathered.fleet.devices if device.kind == "gpu"} == set(now.device_ids)
    assert all(gathered.fleet.deployments_on(host) == (now,) for host in gathered.fleet.hosts)


def test_worker_ranks_of_a_head_with_bounded_busy_time_are_bounded_too(where: StoreLocation) -> None:
    probe, readings = head()
    by_requests = [
        replace(
            reading,
            counters={("decode_ms" if word == "engine_ms" else word): n for word, n in reading.counters.items()},
        )
        for reading in readings
    ]
    report = recorded(where, (probe, by_requests), (probe_of(2, 200), [following()] * (TICKS + 1)))
    assert report.bill is not None
    assert report.bill.busy == pytest.approx(report.bill.paid / 2)
    assert report.bill.busy_is_bound


def test_workers_that_do_not_know_their_model_join_by_where_they_meet(where: StoreLocation) -> None:
    report = recorded(where, head(), (probe_of(2, 200), [following(path=None)] * (TICKS + 1)))
    assert [(line.model, len(line.devices)) for line in report.deployments] == [("llama", 4)]


@pytest.mark.parametrize(
    ("meeting", "follower"),
    [
        (MEETING, following({"rendezvous": "10.0.0.9:5000"})),
        (MEETING, following(path="/models/other")),
        ("127.0.0.1:5000", following({"rendezvous": "127.0.0.1:5000"})),
    ],
    ids=["another address", "another model", "an address that is each host's own"],
)
def test_ranks_without_their_head_stay_unresolved_and_their_devices_are_never_idle(
    where: StoreLocation, meeting: str, follower: EngineReading
) -> None:
    report = recorded(where, head(meeting), (probe_of(2, 200), [follower] * (TICKS + 1)))
    alone = next(line for line in report.deployments if line.host == "gpu-2")
    assert (alone.generated_tokens, alone.busy, len(alone.devices)) == (None, 1.0, 2)
    assert alone.fault is not None and "elsewhere" in alone.fault
    assert [missing.status for missing in report.missing if missing.metric == "rendezvous"] == ["unresolved"]
    assert report.bill is not None
    assert report.bill.unallocated == 0
    assert report.bill.busy == pytest.approx(report.bill.paid * 3 / 4)
    assert (alone.busy_is_bound, report.bill.busy_is_bound) == (True, True)


def test_of_two_heads_that_could_be_theirs_none_is_guessed(where: StoreLocation) -> None:
    probe, readings = head()
    twin = probe_of(3, 100)
    report = recorded(where, (probe, readings), (twin, readings), (probe_of(2, 200), [following()] * (TICKS + 1)))
    assert sorted(len(line.devices) for line in report.deployments) == [2, 2, 2]
