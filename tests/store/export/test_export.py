"""Tables in and out of files: what that takes of memory does not grow with the table."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.export.columns import SLICE_ROWS, Window, put, slices
from pertoken.store.export.files import Rows, csv_in, csv_out, parquet_in, parquet_out
from pertoken.store.write.writer import Writer
from tests.store.filled import START
from tests.values import laid

TABLE = "engine_counter_sample"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[int, StoreLocation]:
    """Databases by how many slices of rows their table holds."""
    found = {}
    for n in (2, 12):
        where = found[n] = laid(tmp_path_factory.mktemp(f"slices{n}"))
        with Writer(where) as writer:
            for start in range(0, n * SLICE_ROWS, SLICE_ROWS):
                put(writer, TABLE, [(1, START + ts, "spec_drafts", ts) for ts in range(start, start + SLICE_ROWS)])
    return found


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
        for rows in slices(open_store(where), TABLE, Window()):
            write(rows)


def to_parquet(where: StoreLocation, file: Path) -> None:
    with parquet_out(file, TABLE) as write:
        for rows in slices(open_store(where), TABLE, Window()):
            write(rows)


@pytest.mark.parametrize(("out", "back"), [(to_csv, csv_in), (to_parquet, parquet_in)])
def test_six_times_the_rows_take_the_same_memory(
    tables: dict[int, StoreLocation],
    out: Callable[[StoreLocation, Path], None],
    back: Callable[[Path, str], tuple[str, int | None, Iterator[Rows]]],
    tmp_path: Path,
) -> None:
    exported: list[int] = []
    imported: list[int] = []
    for n, where in tables.items():
        file = tmp_path / f"{n}"
        out(tables[2], tmp_path / "warm")  # what is loaded and built once
        with peak(exported):
            out(where, file)
        copy = laid(tmp_path / f"copy{n}")
        with Writer(copy) as writer, peak(imported):
            table, _, found = back(file, TABLE)
            assert sum(put(writer, table, rows) for rows in found) == n * SLICE_ROWS
    assert exported[1] < 1.2 * exported[0]
    assert imported[1] < 1.2 * imported[0]
