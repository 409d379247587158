"""Large errors by source and by stated configuration, and errors by the number of sources."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.forecast.figures import macro_of, tables
from benchmarks.forecast.fit import Evidence
from benchmarks.forecast.fit_table import prior
from benchmarks.forecast.folds import together
from benchmarks.forecast.missing.curve import curve_rows
from benchmarks.forecast.missing.sources import shares_of_large_errors, source_rows, stated
from benchmarks.forecast.nested import left_out
from benchmarks.forecast.performance.measurements import CARRIED, FILES, Measurements, Pairs, read


@pytest.fixture(scope="module")
def public() -> tuple[Measurements, Pairs]:
    measurements, pairs = read(CARRIED / FILES[0], CARRIED / FILES[1])
    usable = np.flatnonzero(np.isfinite(pairs.log_ratio) & (pairs.column("kind") == "raise_batch"))
    return measurements, pairs.take(usable[::40])


def test_a_source_has_the_share_of_large_errors_that_are_its_own(public: tuple[Measurements, Pairs]) -> None:
    _, pairs = public
    everything, nothing = np.ones(len(pairs.rows), dtype=bool), np.zeros(len(pairs.rows), dtype=bool)
    sources = pairs.column("source")
    source = str(sources[0])
    off = np.where(sources == source, pairs.log_ratio + 1.0, pairs.log_ratio)
    shares = shares_of_large_errors(pairs, off, nothing, everything)
    assert 0 < shares[source] <= 1
    assert sum(shares.values()) == pytest.approx(shares[source])
    assert not any(shares_of_large_errors(pairs, pairs.log_ratio, nothing, everything).values())


def test_errors_fall_to_zero_without_the_source_that_makes_them(public: tuple[Measurements, Pairs]) -> None:
    measurements, pairs = public
    sources = pairs.column("source")
    source = str(sources[0])
    off = np.where(sources == source, pairs.log_ratio + 1.0, pairs.log_ratio)
    nothing = np.zeros(len(pairs.rows), dtype=bool)
    rows = {row.what: float(row.value or 0) for row in source_rows(measurements, pairs, off, nothing, ~nothing)}
    assert rows[f"{source}.p90"] == 0 < rows[f"{source}.share"] == rows["all"]
    assert rows["stated.share"] + rows["not stated.share"] == pytest.approx(rows["all"], abs=2e-4)


def test_a_configuration_is_stated_only_with_lengths_batch_dtype_and_engine_version(
    public: tuple[Measurements, Pairs],
) -> None:
    measurements, _ = public
    known = stated(measurements)
    assert 0 < known.sum() < len(known)
    row = measurements.rows[int(np.flatnonzero(known)[0])]
    without = replace(measurements, rows=tuple(type(row)({**row, "input_tokens": ""}) for _ in measurements.rows))
    assert not stated(without).any()


@pytest.mark.usefixtures("one_design")
def test_the_curve_ends_where_tables_see_every_other_source(public: tuple[Measurements, Pairs]) -> None:
    measurements, pairs = public[0], public[1].take(np.arange(0, len(public[1].rows), 30))
    everything = np.ones(len(pairs.rows), dtype=bool)
    evidence = Evidence(measurements, pairs)
    steps: list[str] = []
    rows = curve_rows(measurements, pairs, evidence, prior(), everything, steps.append)
    medians = {int(row.what.partition(".")[0]): float(row.value or 0) for row in rows if row.what.endswith("median")}
    assert list(medians) == sorted(medians) and min(medians) == 0 and len(medians) == 4 and steps
    folds = together(measurements, pairs)
    predicted = left_out(measurements, pairs, evidence, prior(), folds, steps.append).log_ratio
    whole = macro_of(tables(pairs, predicted, None, ~everything, everything))
    assert medians[max(medians)] == pytest.approx(whole.median, abs=1e-4) != medians[0]
