"""Series of deployments added up bucket by bucket, against the same figures worked out row by row."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.evidence import Series
from pertoken.provenance import Provenance
from pertoken.store.query.buckets import NULL, SEPARATOR
from pertoken.window.columns import Columns, columns, in_turn
from pertoken.window.series import points as series

NAMES = ("epoch_id", "ts", "duration_ms", "observed_ms", "busy_ms", "tokens", "prompt", "gauge_sum", "gauge_n")
Row = Mapping[str, Any]


def rows(owner: int, *given: Row) -> Columns:
    """Columns of one member; a minute of 60 s by default."""
    made = [{"epoch_id": owner, "duration_ms": 60_000, "observed_ms": 60_000, **row} for row in given]
    texts = [SEPARATOR.join(str(_stored(row.get(name))) for row in made) for name in NAMES]
    return columns(NAMES, [texts] if made else [])


def summary(points: series.Points | None) -> Series | None:
    return None if points is None else points.summary()


def _stored(value: int | None) -> int:
    return NULL if value is None else value


def test_the_95th_percentile_is_of_the_sum_not_the_sum_of_percentiles() -> None:
    # They peak in different minutes, so that their peaks never meet.
    first = rows(1, *({"ts": 60 * n, "tokens": 6000 if n % 10 == 0 else 600} for n in range(100)))
    second = rows(2, *({"ts": 60 * n, "tokens": 6000 if n % 10 == 5 else 600} for n in range(100)))
    alone = [summary(series.rate(series.together([columns]), "tokens")) for columns in (first, second)]
    both = summary(series.rate(series.together([first, second]), "tokens"))
    assert both is not None and [series and series.p95 for series in alone] == [100, 100]
    assert both.p95 == 110


def test_a_minute_in_which_one_replica_was_not_observed_is_left_out_of_the_sum() -> None:
    first = rows(1, *({"ts": 60 * n} for n in range(10)))
    second = rows(2, *({"ts": 60 * n, "observed_ms": 0 if n == 3 else 60_000} for n in range(10) if n != 5))
    late = rows(3, *({"ts": 60 * n} for n in range(8, 10)))
    buckets = series.together([first, second, late])
    assert (buckets.ts // 60).tolist() == [0, 1, 2, 4, 6, 7, 8, 9]
    assert buckets.sizes.tolist() == [2, 2, 2, 2, 2, 2, 3, 3]


values = st.one_of(st.none(), st.integers(0, 10**6))
row = st.fixed_dictionaries(
    {
        "duration_ms": st.integers(1, 60_000),
        "observed_ms": st.integers(0, 60_000),
        "busy_ms": values,
        "tokens": values,
        "prompt": values,
        "gauge_sum": values,
        "gauge_n": st.integers(0, 60),
    }
)
member = st.dictionaries(st.integers(0, 8), row, max_size=9)


def by_minute(members: list[dict[int, Row]]) -> list[list[Row]]:
    """Rows of each minute in which every member between its first and last observed row was observed."""
    observed = [{n: row for n, row in member.items() if row["observed_ms"]} for member in members]
    running = [range(min(rows_of_epoch), max(rows_of_epoch) + 1) for rows_of_epoch in observed if rows_of_epoch]
    rows_at = defaultdict(list)
    for rows_of_epoch in observed:
        for n, of in rows_of_epoch.items():
            rows_at[n].append(of)
    return [rows_at[n] for n in sorted(rows_at) if len(rows_at[n]) == sum(n in span for span in running)]


def mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else None


@given(st.lists(member, min_size=1, max_size=3))
def test_columns_give_what_rows_give(members: list[dict[int, Row]]) -> None:
    buckets = series.together(
        [rows(n, *({"ts": 60 * ts, **of} for ts, of in sorted(member.items()))) for n, member in enumerate(members)]
    )
    minutes = by_minute(members)
    assert len(buckets) == len(minutes)

    def known(of: list[Row], *names: str) -> bool:
        return all(row[name] is not None for row in of for name in names)

    rates = [
        (sum(row["tokens"] / row["duration_ms"] for row in of) * 1000, sum(row["duration_ms"] for row in of))
        for of in minutes
        if known(of, "tokens")
    ]
    ratios = []
    for of in minutes:
        some = [row for row in of if row["prompt"]]
        if some and known(some, "tokens"):
            whole = sum(row["prompt"] for row in some)
            ratios.append((sum(row["tokens"] for row in some) / whole, whole))
    gauges = [
        (sum(row["gauge_sum"] / row["gauge_n"] for row in of), sum(row["gauge_n"] for row in of))
        for of in minutes
        if known(of, "gauge_sum") and all(row["gauge_n"] for row in of)
    ]
    for of_columns, expected in (
        (summary(series.rate(buckets, "tokens")), rates),
        (summary(series.ratio(buckets, "tokens", "prompt")), ratios),
        (summary(series.gauge(buckets, "gauge", 1)), gauges),
    ):
        of_mean = mean(expected)
        if of_mean is None:
            assert of_columns is None
        else:
            assert of_columns is not None and of_columns.n == len(expected)
            assert of_columns.mean == pytest.approx(of_mean)
            assert of_columns.max == pytest.approx(max(value for value, _ in expected))


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1000)), min_size=1, max_size=20),
    st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]),
)
def test_a_weighted_quantile_leaves_at_most_its_share_below(pairs: list[tuple[float, int]], q: float) -> None:
    values, weights = np.array([v for v, _ in pairs]), np.array([float(w) for _, w in pairs])
    points = series.weighted(np.arange(len(pairs)), values, weights, Provenance.COUNTER)
    total = sum(weight for _, weight in pairs)
    if not total:
        assert points is None
        return
    assert points is not None
    at = points.quantile(q)
    assert sum(weight for value, weight in pairs if value < at) <= q * total * (1 + 1e-12)
    assert sum(weight for value, weight in pairs if value <= at) >= q * total * (1 - 1e-12)
    short = points.summary()
    assert math.isfinite(short.mean)
    assert (short.p50, short.p95) == (points.quantile(0.5), points.quantile(0.95))


def test_an_hour_in_which_a_deployment_went_on_as_another_epoch_is_served_once() -> None:
    half = {"ts": 0, "duration_ms": 1_800_000, "observed_ms": 1_800_000, "tokens": 1_800_000, "busy_ms": 600_000}
    first, second = rows(1, half), rows(2, half, {"ts": 3600, "duration_ms": 3_600_000, "tokens": 3_600_000})
    served = summary(series.rate(series.together([in_turn([first, second])]), "tokens"))
    assert served is not None and (served.mean, served.max, served.n) == (1000, 1000, 2)
    unknown = in_turn([rows(1, half), rows(2, {**half, "tokens": None})])
    assert series.rate(series.together([unknown]), "tokens") is None
    assert unknown.ints("busy_ms").tolist() == [1_200_000]


def test_a_server_that_hangs_runs_requests_though_it_counts_no_time() -> None:
    hangs = {"busy_ms": 0, "gauge_sum": 6, "gauge_n": 2}
    running = summary(
        series.while_busy(series.together([rows(1, {"ts": 0, **hangs}, {"ts": 60, **hangs})]), "gauge", 1, mean=False)
    )
    assert running is not None and running.max == 3
    untimed = series.together([rows(1, {"ts": 0, "gauge_sum": 6, "gauge_n": 2})])
    assert series.while_busy(untimed, "gauge", 1, mean=False) is None
