"""Series of groups of owners, against the same figures worked out row by row."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.evidence import Series
from pertoken.metrics import SERIES
from pertoken.metrics.series import Computation, Counted, Derived, Gauge, Quotient, Rate, Ratio, columns_of, counters_of
from pertoken.store.query.buckets import NULL, SEPARATOR
from pertoken.window.columns import Columns, columns, rows_in_turn, stacked
from pertoken.window.measured import COLUMNS, NEEDED, with_busy_bounds
from pertoken.window.series import GroupedRows, Needed, Points, observe

NAMES = (
    *("epoch_id", "ts", "duration_ms", "observed_ms", "busy_ms", "busy_provenance"),
    *("tokens", "prompt", "gauge_sum", "gauge_n"),
)
TOKENS, SHARE = Rate("tokens"), Ratio("tokens", "prompt")
GAUGE, WHILE_BUSY = Gauge(("gauge",), summed=True), Gauge(("gauge",), summed=True, while_busy=True)
Row = Mapping[str, Any]


def rows(owner: int, *given: Row) -> Columns:
    """Columns of one member; a minute of 60 s by default."""
    made = [{"epoch_id": owner, "duration_ms": 60_000, "observed_ms": 60_000, **row} for row in given]
    texts = [SEPARATOR.join(str(_stored(row.get(name))) for row in made) for name in NAMES]
    return columns(NAMES, [texts] if made else [])


def together(*members: Columns) -> GroupedRows:
    """Return all members as one group."""
    return GroupedRows(with_busy_bounds(stacked(members)), [range(len(members))], Needed.RUNNING)


def summary(how: Computation, *members: Columns) -> Series | None:
    points = observe(how, together(*members)).points(0)
    return None if points is None else points.summary()


def _stored(value: int | None) -> int:
    return NULL if value is None else value


def test_the_95th_percentile_is_of_the_sum_not_the_sum_of_percentiles() -> None:
    # They peak in different minutes, so that their peaks never meet.
    first = rows(1, *({"ts": 60 * n, "tokens": 6000 if n % 10 == 0 else 600} for n in range(100)))
    second = rows(2, *({"ts": 60 * n, "tokens": 6000 if n % 10 == 5 else 600} for n in range(100)))
    alone = [summary(TOKENS, columns) for columns in (first, second)]
    both = summary(TOKENS, first, second)
    assert both is not None and [series and series.p95 for series in alone] == [100, 100]
    assert both.p95 == 110


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
    return [rows_at[n] for n in sorted(rows_at) if len(rows_at[n]) == sum(n in indices for indices in running)]


def mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else None


@given(st.lists(member, min_size=1, max_size=3))
def test_columns_give_what_rows_give(members: list[dict[int, Row]]) -> None:
    of_members = [
        rows(n, *({"ts": 60 * ts, **of} for ts, of in sorted(member.items()))) for n, member in enumerate(members)
    ]
    minutes = by_minute(members)
    assert len(together(*of_members).keys) == len(minutes)

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
        (sum(row["gauge_sum"] / row["gauge_n"] for row in of), sum(row["duration_ms"] for row in of))
        for of in minutes
        if known(of, "gauge_sum") and all(row["gauge_n"] for row in of)
    ]
    for of_columns, expected in (
        (summary(TOKENS, *of_members), rates),
        (summary(SHARE, *of_members), ratios),
        (summary(GAUGE, *of_members), gauges),
    ):
        of_mean = mean(expected)
        if of_mean is None:
            assert of_columns is None
        else:
            assert of_columns is not None and of_columns.n == len(expected)
            assert of_columns.mean == pytest.approx(of_mean)
            assert of_columns.max == pytest.approx(max(value for value, _ in expected))


def test_an_hour_in_which_a_deployment_went_on_as_another_epoch_is_served_once() -> None:
    half = {"ts": 0, "duration_ms": 1_800_000, "observed_ms": 1_800_000, "tokens": 1_800_000, "busy_ms": 600_000}
    first, second = rows(1, half), rows(2, half, {"ts": 3600, "duration_ms": 3_600_000, "tokens": 3_600_000})
    served = summary(TOKENS, rows_in_turn([first, second]))
    assert served is not None and (served.mean, served.max, served.n) == (1000, 1000, 2)
    unknown = rows_in_turn([rows(1, half), rows(2, {**half, "tokens": None})])
    assert summary(TOKENS, unknown) is None
    assert unknown.ints("busy_ms").tolist() == [1_200_000]


def test_a_server_that_hangs_runs_requests_though_it_counts_no_time() -> None:
    hangs = {"busy_ms": 0, "gauge_sum": 6, "gauge_n": 2}
    running = summary(WHILE_BUSY, rows(1, {"ts": 0, **hangs}, {"ts": 60, **hangs}))
    assert running is not None and running.max == 3
    assert summary(WHILE_BUSY, rows(1, {"ts": 0, "gauge_sum": 6, "gauge_n": 2})) is None


def test_a_gauge_while_busy_is_the_gauge_over_the_busy_share() -> None:
    minutes = [{"ts": 60 * n, "gauge_sum": 120, "gauge_n": 60, "busy_ms": 36_000} for n in range(60)]
    busy, all_time = summary(WHILE_BUSY, rows(1, *minutes)), summary(GAUGE, rows(1, *minutes))
    assert busy is not None and all_time is not None
    assert (round(busy.mean, 3), round(busy.p95, 3), all_time.mean) == (3.333, 3.333, 2.0)


OWNERS = (3, 2**40, 2**40 + 7)
FIRST_TS = 1_800_000_000


def random_rows(part: str, seed: int, lowest: int = -1) -> Columns:
    """Return random rows of some of three owners; a fifth of the values are not known."""
    names, random = COLUMNS[part], np.random.default_rng(seed)
    unit, made = random.choice([15_000, 400_000]), []
    for owner in OWNERS:
        for ts in FIRST_TS + 60 * np.flatnonzero(random.random(6) < random.random()):
            values = np.where(random.random(len(names)) < 0.2, NULL, random.integers(lowest, 5, len(names)) * unit)
            row = dict(zip(names, values.tolist(), strict=True)) | {names[0]: owner, "ts": int(ts)}
            for name in names:
                if name.endswith("_n") or name in ("duration_ms", "observed_ms"):
                    row[name] = max(0, row[name])
                if name.endswith("provenance"):
                    row[name] = int(random.integers(-1, 7))
            made.append([row[name] for name in names])
    table = np.array(made, np.int64).reshape(len(made), len(names))
    return Columns({name: n for n, name in enumerate(names)}, table)


def values_of(points: Points | None) -> tuple[object, ...] | None:
    if points is None:
        return None
    arrays = points.ts.tolist(), points.values.tolist(), points.weights.tolist()
    return *arrays, points.provenance, points.factor, points.highest


COMPUTED = [name for name, spec in SERIES.items() if columns_of(spec.computation)]


@pytest.mark.parametrize("name", COMPUTED)
@given(seed=st.integers(0, 2**32))
def test_all_groups_at_once_have_the_observations_of_each_alone(name: str, seed: int) -> None:
    spec = SERIES[name]
    how, part = spec.computation, spec.owner
    table = with_busy_bounds(random_rows(part, seed)) if part == "deployment" else random_rows(part, seed)
    counters = random_rows("counters", seed + 1, 0)
    groups = [(OWNERS[0],), (OWNERS[1],), OWNERS, (1,)]

    def observed(of_groups: Sequence[tuple[int, ...]]) -> list[Points | None]:
        counted = GroupedRows(counters, of_groups, Needed.ANY) if isinstance(how, Counted) else None
        observations = observe(how, GroupedRows(table, of_groups, NEEDED[part]), counted)
        return [observations.points(number) for number in range(len(of_groups))]

    alone = [points for group in groups for points in observed([group])]
    assert [values_of(points) for points in observed(groups)] == [values_of(points) for points in alone]


def test_every_series_is_computed_from_columns_that_its_owner_has() -> None:
    for spec in SERIES.values():
        assert {*columns_of(spec.computation)} <= {*COLUMNS[spec.owner]}
        if isinstance(spec.computation, Counted):
            assert {*counters_of(spec.computation)} <= {*COLUMNS["counters"]}


@pytest.mark.parametrize("how", [Derived("a formula"), Quotient(("loads",))])
def test_a_series_that_needs_more_than_rows_by_bucket_is_refused(how: Computation) -> None:
    with pytest.raises(TypeError, match="not computed from rows by bucket"):
        observe(how, together(rows(1, {"ts": 0})))
