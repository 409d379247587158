"""Tables in and out of files: what that takes of memory does not grow with the table."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.export.files import (
    SLICE_ROWS,
    ExportRange,
    Rows,
    csv_in,
    csv_out,
    parquet_in,
    parquet_out,
    put,
    slices,
)
from pertoken.store.write.writer import Writer
from tests.store.filled import START
from tests.values import new_store

TABLE = "engine_counter_sample"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[int, StoreLocation]:
    """Databases by how many slices of rows their table holds."""
    rows = {}
    for n in (2, 6):
        where = rows[n] = new_store(tmp_path_factory.mktemp(f"slices{n}"))
        with Writer(where) as writer:
            for start in range(0, n * SLICE_ROWS, SLICE_ROWS):
                put(writer, TABLE, [(1, START + ts, "spec_drafts", ts) for ts in range(start, start + SLICE_ROWS)])
    return rows


@contextmanager
def peak(into: list[int]) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        into.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def to_csv(where: StoreLocation, file: Path) -> None:
    with file.open("w", newline="") as opened, csv_out(opened, TABLE) as write:
        for rows in slices(open_store(where), TABLE, ExportRange()):
            write(rows)


def to_parquet(where: StoreLocation, file: Path) -> None:
    with parquet_out(file, TABLE) as write:
        for rows in slices(open_store(where), TABLE, ExportRange()):
            write(rows)


@pytest.mark.parametrize(("out", "back"), [(to_csv, csv_in), (to_parquet, parquet_in)])
def test_three_times_the_rows_take_the_same_memory(
    tables: dict[int, StoreLocation],
    out: Callable[[StoreLocation, Path], None],
    back: Callable[[Path, str], tuple[str, int | None, Iterator[Rows]]],
    tmp_path: Path,
) -> None:
    exported: list[int] = []
    imported: list[int] = []
    out(tables[2], tmp_path / "warm")  # what is loaded and built once
    for n, where in tables.items():
        file = tmp_path / f"{n}"
        with peak(exported):
            out(where, file)
        copy = new_store(tmp_path / f"copy{n}")
        with Writer(copy) as writer, peak(imported):
            table, _, slices_read = back(file, TABLE)
            assert sum(put(writer, table, rows) for rows in slices_read) == n * SLICE_ROWS
    assert exported[1] < 1.2 * exported[0]
    assert imported[1] < 1.2 * imported[0]


HOST_SAMPLE = {"host_id": 1, "ts": START, "duration_ms": 1000, "observed_ms": 1000}


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70])
def test_a_number_of_more_than_64_bits_in_csv_is_one_line(tmp_path: Path, value: int) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(",".join(HOST_SAMPLE) + f"\n1,{START},1000,{value}\n")
    with pytest.raises(BadInput, match=f"'{value}' is not a value of observed_ms"):
        list(csv_in(file, "host_sample")[2])


@pytest.mark.parametrize(
    ("kind", "value"),
    [("uint64", 2**63), ("float64", 1.5), ("float64", 1e30), ("string", "7"), ("float64", float("nan"))],
)
def test_a_parquet_value_that_is_no_64_bit_integer_is_not_stored_as_one(
    tmp_path: Path, kind: str, value: object
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: pyarrow.array([value], pyarrow.int64()) for name, value in HOST_SAMPLE.items()}
    columns["observed_ms"] = pyarrow.array([value], getattr(pyarrow, kind)())
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(BadInput, match="is not a value of observed_ms"):
        list(parquet_in(tmp_path / "rows.parquet", "host_sample")[2])


def test_whole_numbers_of_another_parquet_type_are_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: pyarrow.array([value, value + 1], pyarrow.uint64()) for name, value in HOST_SAMPLE.items()}
    columns["cpu_util_1e4"] = pyarrow.array([7.0, None], pyarrow.float64())
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    (rows,) = parquet_in(tmp_path / "rows.parquet", "host_sample")[2]
    assert [row[4] for row in rows] == [7, None] and isinstance(rows[0][4], int)
