"""The bill over histories in which everything happens at once: partitions of a GPU, a GPU that two engines share,
changed knobs and owners, engines that end, time without ticks, prices that change within an hour, late rows, and
tenants."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertoken.agent.readings import DeviceProcess, DeviceReading, Endpoint, EngineReading, GatewayReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.costs.bill import bill
from pertoken.costs.ledger import KindDollars
from pertoken.costs.lines import Money
from pertoken.costs.report.fleet_report import epochs_with_workers, fleet_report
from pertoken.costs.spend import BY, spend
from pertoken.settings.owners import BASES
from pertoken.store.check import faults
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import Store, open_store
from pertoken.store.schema.rows import DeviceShare, Tick
from pertoken.store.write.writer import Writer
from pertoken.units import SHARE
from tests.agent.values import HOST, engine, gpu, probe
from tests.costs.test_lines import check_lines
from tests.examples import examples
from tests.values import new_store, set_price

INTERVAL_S = 60
START = 1_790_000_000 // 3600 * 3600 + 1500
MAX_TICKS = 150
KEYS = ("alpha", "beta")
ENGINES = tuple(
    Endpoint("llama.cpp", f"http://127.0.0.1:{8080 + n}", "process", 8080 + n, pid, 1000 * START - 5_000, (pid,))
    for n, pid in enumerate((101, 201, 301))
)
MODELS = ("one", "two", "two")
WORKLOADS = ("Deployment prod/chat", "? dev/?")
"""Of the first engines; the last has no owner."""
SLICES = (428_571, 285_714)
"""Parts of the first GPU, in millionths; the rest of it is free."""
FOREIGN = 999
"""A process that is no engine."""


@dataclass(frozen=True)
class HistoryInterval:
    """Ticks in which nothing changes."""

    ticks: int
    seen: bool
    """Whether the agent runs."""
    live: frozenset[int]
    """Engines that run, by position."""
    on_slices: tuple[frozenset[int], frozenset[int]]
    on_shared: frozenset[int]
    on_last: frozenset[int]
    """Engines on each partition and GPU; 3 is the foreign process."""
    batch: int
    """The knob of all engines: another value begins an epoch."""
    rates: tuple[int, int, int]
    """Tokens that each engine generates in a tick."""
    tenants: tuple[int, int]
    """Tokens that the gateway counts for each key in a tick."""
    late: bool
    """Whether its samples are written after all others."""

    @property
    def running(self) -> frozenset[int]:
        """Engines that run, and the foreign process."""
        return self.live | {3}


@dataclass(frozen=True)
class History:
    """Intervals, and prices by (selector, nano-USD or None, minute from the start)."""

    intervals: Sequence[HistoryInterval]
    prices: Sequence[tuple[str, int | None, int]]


processes_on = st.frozensets(st.integers(0, 3), min_size=1, max_size=3)
intervals = st.builds(
    HistoryInterval,
    ticks=st.integers(1, 50),
    seen=st.integers(0, 3).map(bool),
    live=st.frozensets(st.integers(0, 2), min_size=1),
    on_slices=st.tuples(processes_on, processes_on),
    on_shared=processes_on,
    on_last=processes_on,
    batch=st.sampled_from([4, 8]),
    rates=st.tuples(*[st.integers(-5_000, 5_000).map(lambda rate: max(0, rate))] * 3),
    tenants=st.tuples(*[st.integers(0, 8_000)] * 2),
    late=st.booleans(),
)
later_prices = st.tuples(
    st.sampled_from(["gpu", "H100", "GPU-0", "GPU-1"]),
    st.integers(-1, 9).map(lambda n: None if n < 0 else n * 777_777_777),
    st.integers(0, MAX_TICKS),
)
prices = st.builds(
    lambda nano, later: (("gpu", nano, 0), *later), st.integers(0, 10**11), st.lists(later_prices, max_size=5)
)
histories = st.builds(History, st.lists(intervals, min_size=3, max_size=6), prices)


def processes(held: frozenset[int]) -> tuple[DeviceProcess, ...]:
    return tuple(DeviceProcess(FOREIGN if n == 3 else ENGINES[n].pids[0], 10**9) for n in sorted(held))


def devices(interval: HistoryInterval, ticks: int) -> Iterator[DeviceReading]:
    parent = gpu(0, energy_mj=10**9 + 18_000_000 * ticks)
    yield parent
    for n, (part, held) in enumerate(zip(SLICES, interval.on_slices, strict=True)):
        name = f"{parent.name} MIG ({n})"
        yield DeviceReading(
            f"MIG-{n}", "mig", "nvidia", name, 0, processes=processes(held & interval.running),
            parent_uuid=parent.uuid, part_1e6=part,
        )  # fmt: skip
    for slot, held in ((1, interval.on_shared), (2, interval.on_last)):
        yield gpu(slot)._replace(processes=processes(held & interval.running))


def engines(interval: HistoryInterval, tokens: Sequence[int]) -> Iterator[EngineReading]:
    for n in sorted(interval.live):
        knobs: dict[str, object] = {"max_num_seqs": interval.batch}
        if n < len(WORKLOADS):
            knobs |= {
                "workload": WORKLOADS[n],
                "job": str(interval.ticks),
                "label:team": "ads" if interval.late else "chat",
            }
        gauges = {"running": float(interval.rates[n] > 0), "waiting": 0.0}
        counters = engine(tokens[n], tokens[n] // 2).counters
        if n != 1:  # the second engine counts no time of its work
            counters = {**counters, "prefill_ms": 3 * tokens[n], "decode_ms": 11 * tokens[n]}
            counters["transferred_tokens"] = tokens[n] // 3  # as the decode server of a pair counts them
        yield engine(
            tokens[n], counters=counters, endpoint=ENGINES[n], served_model=MODELS[n], knobs=knobs, gauges=gauges
        )


def gateway(counts: Sequence[int]) -> GatewayReading:
    words = {"prompt": 3, "cached": 2, "generated": 1}
    series = {f"{key} {word}": f'tenant_{word}_tokens{{key="{key}",model="two"}}' for key in KEYS for word in words}
    counters = {
        f"{key} {word}": n * times for key, n in zip(KEYS, counts, strict=True) for word, times in words.items()
    }
    return GatewayReading("litellm", "http://127.0.0.1:4000", counters, series, 1)


def recorded(history: History) -> list[tuple[Tick, bool]]:
    """Return the ticks of a history, each with whether it is late. The first lays the baseline."""
    state = TickState(watching_since_ms=1000 * START, boot_ms=HOST.boot_ms)
    ticks: list[tuple[Tick, bool]] = []
    tokens, counts, at = [0, 0, 0], [0, 0], 0
    for interval in history.intervals:
        for _ in range(interval.ticks):
            rates = zip(tokens, interval.rates, strict=True)
            tokens = [total + rate * (n in interval.live) for n, (total, rate) in enumerate(rates)]
            counts = [total + rate for total, rate in zip(counts, interval.tenants, strict=True)]
            if at < MAX_TICKS and (interval.seen or not ticks):
                ts = START + INTERVAL_S * at
                readings = Readings(
                    probe(*devices(interval, at)), tuple(engines(interval, tokens)), gateways=(gateway(counts),)
                )
                cost = AgentCost(10, 50_000_000, 20, 0) if ticks else None
                tick, state = assemble(state, readings, Moment(ts, 1000 * ts, 1000 * ts, INTERVAL_S), cost)
                ticks.append((tick, interval.late))
            at += 1
    return ticks


def stored(folder: Path, ticks: Sequence[Tick], late: Sequence[Tick], history: History) -> Store:
    """Return a database; of `late` ticks the samples are written after the others were rolled up."""
    where = locate(str(folder))
    with Writer(where) as writer:
        writer.commit_all(ticks)
        writer.roll_up()
        for tick in late:
            writer.commit(Tick(tick.ts, tick.host, samples=tick.samples))
        writer.roll_up()
    for selector, nano, minute in history.prices:
        set_price(where, selector, nano, START + 60 * minute if minute else 0)
    return open_store(where)


def money_of(store: Store, start: int, end: int) -> Money:
    with bill(store, start, end) as priced:
        return priced.money


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_store(tmp_path_factory.mktemp("empty")).file("telemetry").parent


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories)
def test_each_nano_dollar_has_one_payer_whatever_happens_at_once_and_however_late_it_is_stored(
    history: History, empty: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    ticks = recorded(history)
    for name in ("straight", "late"):
        shutil.copytree(empty, folder / name)
    straight = stored(folder / "straight", [tick for tick, _ in ticks], (), history)
    first = [replace(tick, samples=()) if late else tick for tick, late in ticks]
    store = stored(folder / "late", first, [tick for tick, late in ticks if late][::-1], history)
    assert not [fault for fault in faults(store.location) if fault is not None]
    end = ticks[-1][0].ts
    begin = START // 3600 * 3600

    for tick, _ in ticks:
        shares = Counter[tuple[int, int]]()
        for sample in tick.samples:
            if isinstance(sample, DeviceShare):
                assert sample.share_1e6 >= 0
                shares[sample.device_id, sample.ts] += sample.share_1e6
        assert all(share <= SHARE for share in shares.values())

    money, whole = money_of(store, begin, end), money_of(straight, begin, end)
    assert (money.paid, money.busy, money.idle, money.other, money.unallocated) == (
        whole.paid,
        whole.busy,
        whole.idle,
        whole.other,
        whole.unallocated,
    )
    assert dict(money.by_epoch) == dict(whole.by_epoch) and dict(money.by_device) == dict(whole.by_device)

    assert money.paid == money.busy + money.idle + money.other + money.unallocated == sum(money.by_device.values())
    assert sum(money.by_epoch.values()) == money.busy + money.idle
    assert sum(money.idle_by_epoch.values()) == money.idle
    every = [*money.by_epoch.values(), *money.idle_by_epoch.values(), *money.by_device.values()]
    assert min([money.busy, money.idle, money.other, money.unallocated, *every]) >= 0
    for device_id in money.priced_devices:
        total = money.bill_of([device_id])
        assert total is not None and total.paid == money.by_device[device_id]
        assert total.paid == total.busy + total.idle + total.other + total.unallocated

    with bill(store, begin, end) as priced:
        kinds = sum(priced.kinds.values(), KindDollars())
        assert kinds.busy == money.busy and kinds.idle == money.idle
        assert kinds.total + money.other + money.unallocated == money.paid, "the kinds are the bill"
        for deployment_id, own in priced.kinds.items():
            epochs = epochs_with_workers(priced, deployment_id)
            assert own.total == sum(money.by_epoch.get(epoch, 0) for epoch in epochs)
            assert own.idle == sum(money.idle_by_epoch.get(epoch, 0) for epoch in epochs)
            assert min(own.prefill, own.cached, own.decode, own.unsplit) >= 0

    # Three GPUs are paid for, their partitions with them: never for longer than they were recorded.
    dearest = max((nano or 0 for _, nano, _ in history.prices), default=0)
    assert money.paid <= 3 * (dearest * (end - START) // 3600 + 200)
    for bucket_s in (3600, 86_400):
        with bill(store, begin, end) as priced:
            check_lines(priced, bucket_s)
    report = fleet_report(store, end - begin, end)
    assert (report.bill.paid if report.bill else 0) == money.paid
    for by in (*BY, *BASES, "label:team"):
        lines = spend(store, by, (end - begin) // 3600 + 1, end, {"alpha": "search"})
        assert lines.nano_usd == (money.paid if money.priced_devices else None)
        assert sum(line.nano_usd for line in lines.lines) == money.paid
        assert all(line.nano_usd >= 0 for line in lines.lines)
