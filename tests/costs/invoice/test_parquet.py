"""Bills in Parquet: the same lines as in text, with the types that clouds write."""

import csv
import json
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pertoken.costs.invoice.read import parquet_rows, read_invoice
from pertoken.errors import BadInput

EXPORTS = Path(__file__).parent / "exports"
TIMES, NUMBERS = ("_date", "PeriodStart", "PeriodEnd"), ("_cost", "Cost", "_amount", "Quantity")


def typed(name: str, value: str) -> Any:
    if not value:
        return None
    if name.endswith(TIMES):
        return datetime.fromisoformat(value)
    return value


def in_parquet(folder: Path, name: str, number: type[float] | type[Decimal]) -> Path:
    """Write a committed CSV export as Data Exports do: times and numbers typed, and a map that nobody reads."""
    with (EXPORTS / name).open(encoding="utf-8") as file:
        rows = [{key: typed(key, value) for key, value in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        for key in row:
            if key.endswith(NUMBERS) and row[key] is not None:
                row[key] = number(row[key])
    table = pa.Table.from_pylist(rows)
    tags = pa.array([[("team", "search")]] * len(rows), pa.map_(pa.string(), pa.string()))
    return store(folder, table.append_column("resource_tags", tags))


def store(folder: Path, table: pa.Table) -> Path:
    file = folder / "bill.parquet"
    pq.write_table(table, file)
    return file


@pytest.mark.parametrize("number", [float, Decimal])
@pytest.mark.parametrize("name", ["aws.csv", "focus.csv"])
def test_a_parquet_export_has_the_lines_of_its_csv(
    tmp_path: Path, name: str, number: type[float] | type[Decimal]
) -> None:
    invoice = read_invoice(in_parquet(tmp_path, name, number))
    assert invoice == read_invoice(EXPORTS / name)
    assert invoice.lines and invoice.nano_usd


def test_nested_columns_of_a_parquet_export_are_read_by_their_path(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (EXPORTS / "google.jsonl").read_text().splitlines() if line.strip()]
    table = pa.Table.from_pylist(rows)
    assert any(pa.types.is_struct(column_type) for column_type in table.schema.types)
    assert read_invoice(store(tmp_path, table)) == read_invoice(EXPORTS / "google.jsonl")


def test_columns_that_no_format_reads_are_not_loaded(tmp_path: Path) -> None:
    (row, *_) = parquet_rows(in_parquet(tmp_path, "aws.csv", float))
    assert "line_item_unblended_cost" in row and "resource_tags" not in row


def test_a_broken_parquet_file_and_one_of_something_else_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1" + bytes(64))
    with pytest.raises(BadInput, match="not a Parquet file that can be read"):
        read_invoice(broken)
    with pytest.raises(BadInput, match=r"holds no line|none of the known formats"):
        read_invoice(store(tmp_path, pa.table({"a": [1]})))


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = in_parquet(tmp_path, "aws.csv", float)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"\[parquet\]"):
        read_invoice(file)
