"""Roll-ups of any history: whatever the order of its ticks and however often they are rolled up, the rows are the same.

Hours are made of minutes, so the same test shows that minutes merge to hours exactly.
"""

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from pertoken.provenance import Provenance
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.verify import verify
from pertoken.store.query import rollups
from pertoken.store.query.rollups import Segment
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import (
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineCounterSample,
    EpochRow,
    HistogramSample,
    Tick,
)
from pertoken.store.write.rollup import ROLLUPS
from pertoken.store.write.writer import Writer, bucket
from pertoken.units import SHARE
from tests.examples import examples
from tests.values import HOST, new_store, tick

EPOCH = EpochRow(11, 1, 0, None, None, "{}", (5,))
DEVICE = DeviceRow(5, HOST, "gpu", "GPU-5", "nvidia", "H100")
UNKNOWN = st.none()


@st.composite
def ticks(draw: st.DrawFn) -> Tick:
    """Return a tick with some of everything; its time is set by the history."""
    busy_ms = draw(UNKNOWN | st.integers(0, 12_000))
    share = draw(st.sampled_from([SHARE, SHARE, 0, 333_333]))
    samples: list[Any] = [
        DeviceSample(5, 0, 10_000, draw(st.integers(0, 10_000)), util_1e4=draw(UNKNOWN | st.integers(0, 10_000))),
        DeploymentSample(11, 0, 10_000, 10_000, draw(st.booleans()), busy_ms, running_1e2=draw(UNKNOWN | st.just(150))),
        DeviceShare(5, 11, 0, 10_000, share, min(busy_ms or 0, 10_000), draw(st.sampled_from(Provenance))),
        *(
            HistogramSample(11, metric, 0, 99, device, draw(st.integers(1, 10**6)))
            for metric in ("ttft_s", "tpot_s")
            for device in draw(st.sets(st.integers(0, 3)))
        ),
        *(
            EngineCounterSample(11, "spec_drafts", 0, draw(st.integers(1, 10**9)))
            for _ in range(draw(st.integers(0, 1)))
        ),
    ]
    return tick(0, *samples)


@dataclass(frozen=True)
class History:
    """Ticks by their time; the order in which they are stored; and after which of them roll-ups are made."""

    ticks: dict[int, Tick]
    order: list[int]
    rolled_after: dict[int, bool]


@st.composite
def histories(draw: st.DrawFn) -> History:
    ticks_drawn = draw(st.dictionaries(st.integers(1, 800).map(lambda n: 10 * n), ticks(), min_size=1, max_size=14))
    order = draw(st.permutations(sorted(ticks_drawn)))
    return History(ticks_drawn, order, draw(st.dictionaries(st.sampled_from(order), st.booleans())))


def at(ts: int, ticked: Tick) -> Tick:
    samples = tuple(
        sample._replace(ts=ts) if isinstance(sample, DeviceSample) else replace(sample, ts=ts)
        for sample in ticked.samples
    )
    return replace(ticked, ts=ts, samples=samples, devices=(DEVICE,), epochs=(EPOCH,))


def rolled_up(writer: Writer) -> dict[str, list[tuple[Any, ...]]]:
    """Return rows of every roll-up without their revision, which counts how often they changed."""
    rolled = {}
    with writer._connection.begin():
        for rollup in ROLLUPS:
            for table in rollup.tables.values():
                columns = [column for column in table.columns if column.name != "revision"]
                rows = writer._connection.execute(select(*columns).order_by(*table.primary_key))
                rolled[table.name] = [tuple(row) for row in rows]
    return rolled


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_store(tmp_path_factory.mktemp("empty")).file("telemetry").parent


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories())
def test_any_order_and_any_split_of_ticks_give_the_same_rows(
    history: History, empty: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("histories")
    for name in ("straight", "shuffled"):
        shutil.copytree(empty, folder / name)
    with Writer(locate(str(folder / "straight"))) as writer:
        for ts in sorted(history.ticks):
            writer.commit(at(ts, history.ticks[ts]))
        writer.roll_up()
        straight = rolled_up(writer)
    with Writer(locate(str(folder / "shuffled"))) as writer:
        for ts in history.order:
            writer.commit(at(ts, history.ticks[ts]))
            if ts in history.rolled_after:
                writer.roll_up(hours=history.rolled_after[ts])
        writer.roll_up()
        assert rolled_up(writer) == straight
        assert writer.roll_up() == 0
        assert rolled_up(writer) == straight
    assert [fault for fault in verify(locate(str(folder / "shuffled"))) if fault is not None] == []

    counted: Counter[tuple[int, str, int]] = Counter()
    held: Counter[int] = Counter()
    epoch_ids = set()
    for ts, ticked in history.ticks.items():
        for sample in ticked.samples:
            if isinstance(sample, HistogramSample):
                counted[bucket(ts, 60), sample.metric, sample.bucket] += sample.count
            if isinstance(sample, DeviceShare):
                epoch_ids.add(sample.epoch_id)
                held[bucket(ts, 60)] += sample.share_1e6 * sample.duration_ms
    rows = {(ts, metric, bucket): n for _, ts, metric, _, bucket, n in straight[t.histogram_rollup[60].name]}
    assert rows == dict(counted)
    with open_store(locate(str(folder / "shuffled"))).read() as connection:
        for seconds in (60, 3600):
            segment = Segment(seconds, 0, 10_800)
            totals: Counter[int] = Counter()
            for row in rollups.share_buckets(connection, segment, epoch_ids):
                totals[row.ts] += row.held_ns
            expected: Counter[int] = Counter()
            for start, ns in held.items():
                expected[start // seconds * seconds] += ns
            assert totals == expected
    shutil.rmtree(folder)
