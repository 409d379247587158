"""Counts of outputs by hour, of what is stored."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pertoken.metrics import ENDED
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import DeploymentSample, EngineCounterSample, EpochRow, HistogramSample
from pertoken.store.write.writer import Writer
from pertoken.window.epochs import OutputCounts, joined, together
from pertoken.window.reading import Window
from tests.postgres import server_url
from tests.values import new_store, tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU
from tests.window.test_like_for_like import MONDAY

MINUTES = 130
STOP, LENGTH, *_ = ENDED


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreLocation]:
    """Two hours and ten minutes of an engine, each minute with six requests."""
    folder = tmp_path_factory.mktemp("outputs")
    if request.param == "sqlite":
        yield recorded(new_store(folder))
        return
    with server_url(folder) as url:
        yield recorded(new_store(locate(url)))


def recorded(place: StoreLocation) -> StoreLocation:
    epoch = EpochRow(9, 8, MONDAY, None, "1", "{}", (5,))
    known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "epochs": (epoch,), "devices": (GPU,)}
    tokens = {"prompt_tokens": 1200, "generated_tokens": 600, "requests_finished": 6}
    with Writer(place) as writer:
        for ts in range(MONDAY + 60, MONDAY + 60 * MINUTES + 1, 60):
            samples = [
                DeploymentSample(9, ts, 60_000, 60_000, True, 30_000, busy_provenance=0, **tokens),
                EngineCounterSample(9, STOP, ts, 5),
                EngineCounterSample(9, LENGTH, ts, 1),
                *(HistogramSample(9, "generated_len", ts, 1, bucket, n) for bucket, n in enumerate((1, 2, 3))),
                HistogramSample(9, "prompt_len", ts, 1, 2, 6),
            ]
            writer.commit(tick(ts, *samples, **known, bucket_sets={1: (1.0, 100.0)}))
        writer.roll_up()
    return place


def outputs(where: StoreLocation, bucket_s: int) -> OutputCounts:
    with open_store(where).read() as connection:
        return Window(connection, MONDAY, MONDAY + 60 * MINUTES).outputs(8, bucket_s)


def test_whole_hours_have_their_counts_and_lengths(where: StoreLocation) -> None:
    hours = outputs(where, 3600)
    assert hours.ts.tolist() == [MONDAY, MONDAY + 3600]
    totals = {name: values.tolist() for name, values in hours.counts.items() if not name.startswith("log_")}
    assert totals == {
        "prompt_tokens": [72_000, 72_000],
        "generated_tokens": [36_000, 36_000],
        "requests": [360, 360],
        "ended_by_stop": [300, 300],
        "ended_by_length": [60, 60],
        "lengths": [360, 360],
        "empty": [60, 60],
    }
    logs = 60 * (2 * math.log(100) / 2 + 3 * math.log(100))
    assert hours.counts["log_lengths"].tolist() == pytest.approx([logs, logs])


def test_buckets_shorter_than_a_minute_have_tokens_and_requests_alone(where: StoreLocation) -> None:
    ticks = outputs(where, 30)
    assert set(ticks.counts) == {"prompt_tokens", "generated_tokens", "requests"}
    assert ticks.total("generated_tokens", "ended_by_stop") is not None and ticks.total("drafted") is None


def test_a_deployment_without_rows_has_no_hours(tmp_path: Path) -> None:
    with open_store(new_store(tmp_path)).read() as connection:
        hours = Window(connection, MONDAY, MONDAY + 7200).outputs(8)
    assert not len(hours.ts) and not hours.counts


def test_a_count_that_one_of_two_windows_lacks_is_0_there() -> None:
    first = OutputCounts(np.array([0]), {"failed": np.array([3.0])})
    both = joined(first, OutputCounts(np.array([3600]), {"requests": np.array([9.0])}))
    assert both.ts.tolist() == [0, 3600]
    assert {name: values.tolist() for name, values in both.counts.items()} == {"failed": [3, 0], "requests": [0, 9]}


def test_outputs_of_servers_that_share_requests_are_those_of_the_servers_that_generate() -> None:
    def counted(ts: list[int], **counts: list[float]) -> OutputCounts:
        return OutputCounts(np.array(ts), {name: np.array(values) for name, values in counts.items()})

    prefill = counted([0, 1], prompt_tokens=[9.0, 9.0], generated_tokens=[0.0, 0.0], empty=[3.0, 3.0])
    decode = counted([1, 2], generated_tokens=[5.0, 6.0], requests=[1.0, 1.0])
    other = counted([2, 3], generated_tokens=[7.0, 8.0])
    summed = together([prefill, decode, other])
    assert summed.ts.tolist() == [1, 2, 3]
    assert {name: values.tolist() for name, values in summed.counts.items()} == {
        "generated_tokens": [5, 13, 8],
        "requests": [1, 1, 0],
    }
    assert together([prefill]) is prefill
    assert len(together([prefill, prefill]).ts) == 0
