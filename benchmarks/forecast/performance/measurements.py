"""Public measurements as candidates: reads `measurements.csv` and `pairs.csv`."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.performance.cells import Cells
from benchmarks.forecast.performance.rows import candidate
from pertoken.forecast.candidates import Array, Candidates, stack

DATA = Path(__file__).parents[2] / "data"
Strings = NDArray[np.str_]
MEASURED_BATCH = ("fixed batch", "static-batch", "single-stream")
"""Modes whose batch ran as given, whatever the memory arithmetic yields."""
PAGED = ("vllm", "sglang")
"""Engines that queue what does not fit of a batch that is theirs to run."""
CARRIED = DATA / "performance"
"""Rows whose licence allows copying, with their pairs."""
FILES = ("measurements.csv", "pairs.csv")


class BadFile(Exception):
    """A file of measurements cannot be read; the message states which and why."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Rows as candidates, with what was measured on them; NaN where it was not."""

    rows: tuple[Cells, ...]
    candidates: Candidates
    measured_batch: NDArray[np.bool_]
    """Whether the batch is known to have run as given."""
    tok_s: Array
    itl_s: Array
    ttft_s: Array
    joule_per_token: Array
    doubts: tuple[str, ...]
    """What had to be guessed of each row's device, dtype or model; empty where nothing was."""
    paths: Strings
    """The kernels that multiply each row's weights, as `efficiency.kernel_path` names them."""

    def column(self, name: str) -> Strings:
        """Return a column as text; empty where the file has none."""
        return np.array([row[name] for row in self.rows])


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two measured configurations each, as rows of `Measurements`."""

    rows: tuple[Cells, ...]
    before: NDArray[np.intp]
    after: NDArray[np.intp]
    log_ratio: Array
    """Of output tokens/s, after over before; NaN where not measured."""
    log_energy_ratio: Array

    def take(self, index: NDArray[np.intp]) -> "Pairs":
        """Return the pairs at these places."""
        rows = tuple(self.rows[place] for place in index)
        return Pairs(rows, self.before[index], self.after[index], self.log_ratio[index], self.log_energy_ratio[index])

    def column(self, name: str) -> Strings:
        """Return a column as text; empty where the file has none."""
        return np.array([row[name] for row in self.rows])


def read(measurements: Path, pairs: Path) -> tuple[Measurements, Pairs]:
    """Both files. Raises BadFile naming the file and what is wrong."""
    rows = _csv(measurements, ("key", "model", "gpu"))
    keys = {row["key"] for row in rows}
    changes = _csv(pairs, ("before", "after", "kind"))
    for row in changes:
        for end in ("before", "after"):
            if row[end] not in keys:
                raise BadFile(f"{pairs}: {end} {row[end]!r} is not a key of {measurements}")
    return measured(rows), paired(rows, changes)


def with_carried(measurements: Measurements, pairs: Pairs) -> tuple[Measurements, Pairs]:
    """These rows and pairs first, then those the repository carries that are not among them: what a refit sees."""
    known = {row["key"] for row in measurements.rows}
    published = {(row["kind"], row["before"], row["after"]) for row in pairs.rows}
    more, changes = (_csv(CARRIED / file, ("key",) if file == "measurements.csv" else ("kind",)) for file in FILES)
    rows = [*measurements.rows, *(row for row in more if row["key"] not in known)]
    added = [row for row in changes if (row["kind"], row["before"], row["after"]) not in published]
    return measured(rows), paired(rows, [*pairs.rows, *added])


def paired(rows: Sequence[Mapping[str, str]], changes: Sequence[Mapping[str, str]]) -> Pairs:
    """Pairs of these rows by their keys, which must be among them."""
    lines = tuple(map(Cells, changes))
    places = {row["key"]: place for place, row in enumerate(rows)}
    return Pairs(
        rows=lines,
        before=np.array([places[row["before"]] for row in changes], dtype=np.intp),
        after=np.array([places[row["after"]] for row in changes], dtype=np.intp),
        log_ratio=np.log(_floats(lines, "ratio_output_tok_s", 1.0)),
        log_energy_ratio=np.log(_floats(lines, "ratio_energy_per_token", 1.0)),
    )


def measured(rows: Sequence[Mapping[str, str]]) -> Measurements:
    """Rows of a measurements file as candidates."""
    lines = tuple(map(Cells, rows))
    columns, tags, doubts, paths = zip(*map(candidate, lines), strict=True)
    return Measurements(
        rows=lines,
        candidates=stack(columns, tags),
        measured_batch=np.array([_has_measured_batch(row) for row in lines]),
        tok_s=_floats(lines, "output_tok_s_total", 1.0),
        itl_s=_floats(lines, "itl_ms", 1e-3),
        ttft_s=_floats(lines, "ttft_ms", 1e-3),
        joule_per_token=_floats(lines, "energy_j_per_output_token", 1.0),
        doubts=doubts,
        paths=np.array(paths),
    )


def _csv(path: Path, needed: tuple[str, ...]) -> list[Cells]:
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [Cells({name: cell or "" for name, cell in row.items() if name}) for row in csv.DictReader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFile(f"{path}: {error}") from error
    if not rows:
        raise BadFile(f"{path}: no rows")
    if missing := [name for name in needed if name not in rows[0]]:
        raise BadFile(f"{path}: no column {', '.join(missing)}")
    return rows


def _floats(rows: Sequence[Cells], column: str, unit: float) -> Array:
    values = [row.number(column) for row in rows]
    return np.array([value * unit if value is not None and value > 0 else math.nan for value in values])


def _has_measured_batch(row: Cells) -> bool:
    queues = row["mode"] == "fixed batch" and any(name in row["engine"].lower() for name in PAGED)
    return (row["mode"] in MEASURED_BATCH and not queues) or "batch=measured" in row["notes"]
