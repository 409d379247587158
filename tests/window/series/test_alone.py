"""Observations of owners alone: the same as those of each owner's own rows."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.metrics import QUOTIENTS
from pertoken.units import HOUR_MS
from pertoken.window.columns import NULL, Columns, by_owner
from pertoken.window.measured import DEPLOYMENT, DEVICE
from pertoken.window.series import alone
from pertoken.window.series import points as series
from pertoken.window.series.alone import DeploymentsAlone, DevicesAlone
from pertoken.window.series.points import Points

EPOCHS = (3, 2**40, 2**40 + 7)
FIRST_TS = 1_800_000_000
COUNTERS = ("epoch_id", "ts", *dict.fromkeys(name for of in alone.COUNTED.values() for name in of.counters))


def table(names: tuple[str, ...], seed: int, least: int) -> Columns:
    """Return random rows of some of three owners, `least` being the smallest value; a fifth are not known."""
    random = np.random.default_rng(seed)
    unit, rows = random.choice([15_000, 400_000]), []
    for owner in EPOCHS:
        for ts in FIRST_TS + 60 * np.flatnonzero(random.random(6) < random.random()):
            values = np.where(random.random(len(names)) < 0.2, NULL, random.integers(least, 5, len(names)) * unit)
            row = dict(zip(names, values.tolist(), strict=True)) | {names[0]: owner, "ts": int(ts)}
            for name in names:
                if name.endswith("_n") or name in ("duration_ms", "observed_ms"):
                    row[name] = max(0, row[name])
                if name.endswith("provenance"):
                    row[name] = int(random.integers(-1, 7))
            rows.append([row[name] for name in names])
    values = np.array(rows, np.int64).reshape(len(rows), len(names))
    return Columns({name: n for n, name in enumerate(names)}, values)


def of_one(own: Columns, counts: Columns | None, name: str) -> Points | None:
    """Find a series in the rows of one epoch."""
    buckets = series.together([series.with_busy(own)])
    origin = series.busy_provenance(buckets)
    if name in alone.COUNTED:
        return series.of_counts([counts] if counts is not None else [], buckets, alone.COUNTED[name])
    finders = {
        "generated_tok_s": partial(series.rate, buckets, "generated_tokens"),
        "busy_generated_tok_s": partial(
            series.ratio, series.busy(buckets), "generated_tokens", "busy_ms", origin, 1000
        ),
        "busy": partial(series.ratio, buckets, "busy_ms", "observed_ms", origin),
        "prompt_tok_s": partial(series.rate, buckets, "prompt_tokens"),
        "computed_tok_s": partial(series.rate, buckets, "computed_tokens"),
        "cached_share": partial(series.ratio, buckets, "cached_tokens", "prompt_tokens"),
        "requests_s": partial(series.rate, buckets, "requests_finished"),
        "waiting": partial(series.gauge, buckets, "waiting_1e2", 1e2),
        "preemptions": partial(series.rate, buckets, "preemptions", per_ms=HOUR_MS),
        "running": partial(series.while_busy, buckets, "running_1e2", 1e2, mean=False),
        "kv_use": partial(series.while_busy, buckets, "kv_use_1e4", 1e4, mean=True, largest=1.0),
    }
    return finders[name]()


def same(points: Points | None, expected: Points | None) -> bool:
    if points is None or expected is None:
        return points is expected
    scalars = [(each.provenance, each.factor, each.largest) for each in (points, expected)]
    arrays = [(each.ts.tolist(), each.values.tolist(), each.weights.tolist()) for each in (points, expected)]
    return scalars[0] == scalars[1] and arrays[0] == arrays[1]


@pytest.mark.parametrize("name", sorted((*alone.OF_TIME, *alone.OF_DEPLOYMENTS, *alone.COUNTED)))
@given(seed=st.integers(0, 2**32))
def test_a_deployment_has_the_observations_of_its_own_rows(name: str, seed: int) -> None:
    rows, counters = table(DEPLOYMENT, seed, -1), table(COUNTERS, seed + 1, 0)
    everyone, own, counts = DeploymentsAlone(rows), by_owner(rows), by_owner(counters)
    empty = rows.where(slice(0, 0))
    for epoch_id in (*EPOCHS, 1):
        found = everyone.find(epoch_id, name, counters if name in alone.COUNTED else None)
        assert same(found, of_one(own.get(epoch_id, empty), counts.get(epoch_id), name))
        observed = series.together([own.get(epoch_id, empty)]).rows
        assert everyone.observed_ms(epoch_id) == float(observed.ints("observed_ms").sum())
        assert everyone.by_hour(epoch_id) == series.by_hour(observed)


@pytest.mark.parametrize("name", sorted(alone.OF_DEVICES))
@given(seed=st.integers(0, 2**32))
def test_a_device_has_the_observations_of_its_own_rows(name: str, seed: int) -> None:
    rows = table(DEVICE, seed, 0)
    everyone, own = DevicesAlone(rows), by_owner(rows)
    stored, per_unit = alone._GAUGES[name].stored, alone._GAUGES[name].per_unit
    for device_id in (*EPOCHS, 1):
        device = own.get(device_id, rows.where(slice(0, 0)))
        expected = series.of_devices([device], [series.gauge_means(device, stored) / per_unit])
        assert same(everyone.find(device_id, name), expected)


def test_all_quotients_but_the_bound_are_found_for_all_deployments_at_once() -> None:
    assert set(QUOTIENTS) - set(alone.COUNTED) == {"load_s"}
    assert all(quotient.below for quotient in alone.COUNTED.values())


def test_nothing_is_found_where_nothing_was_recorded() -> None:
    none = DeploymentsAlone(
        Columns({name: n for n, name in enumerate(DEPLOYMENT)}, np.empty((0, len(DEPLOYMENT)), int))
    )
    assert none.find(3, "busy") is None and none.find(3, "running") is None
    assert none.observed_ms(3) == 0 and not none.by_hour(3)
