"""Files that people hand in: prices, bills, spend logs, exported rows, recordings."""

import json
import multiprocessing
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.gateways import read_spend_log
from pertoken.catalog.market import load_market
from pertoken.costs.invoice.read import read_invoice
from pertoken.costs.prices.offers import OPTIONAL, read_list
from pertoken.errors import BadInput
from pertoken.settings.fleet import GatewaySettings
from pertoken.store.export.files import csv_in, parquet_in
from pertoken.store.export.recording import unpack
from tests.agent.gateways.test_spend_log import row as request_row
from tests.costs.invoice.test_invoice import EXPORTS
from tests.fuzz.damage import DEEP, altered, bounded, damaged, read_or_refused

GATEWAY = GatewaySettings("http://gw:4000", models={"hosted_vllm/chat": "llama-70b"})
OFFER = dict.fromkeys(OPTIONAL, "") | {
    "provider": "aws", "instance_type": "p5.48xlarge", "accelerator": "H100", "n_devices": "8", "region": "us-east-1",
    "purchase": "on_demand", "usd_per_hour": "55.04", "as_of": "2026-11-22", "source": "a list",
}  # fmt: skip
BILLS = sorted(path.name for path in EXPORTS.iterdir())


def outcomes(file: Path, read: Callable[[Path], Any], bodies: Iterator[bytes]) -> set[bool]:
    found = set()
    for body in bodies:
        file.write_bytes(body)
        found.add(read_or_refused(lambda: read(file), BadInput))
    return found


def prices(file: Path) -> Any:
    return read_list(file, load_market())


def log(file: Path) -> Any:
    return read_spend_log(file, GATEWAY)


def as_lines(values: Iterator[Any]) -> Iterator[bytes]:
    return (json.dumps(value).encode() for value in values)


@pytest.mark.parametrize("name", BILLS)
def test_a_bill_with_damaged_bytes_is_read_or_refused(tmp_path: Path, name: str) -> None:
    body = (EXPORTS / name).read_bytes()
    assert outcomes(tmp_path / name, read_invoice, damaged(body, name, 100)) == {True, False}


def test_a_bill_with_other_values_is_read_or_refused(tmp_path: Path) -> None:
    row = json.loads((EXPORTS / "google.jsonl").read_text().splitlines()[0])
    assert outcomes(tmp_path / "bill.jsonl", read_invoice, as_lines(altered(row, "bill", 150))) == {True, False}


@pytest.mark.parametrize("name", [name for name in BILLS if name.endswith(".csv")])
def test_a_cell_of_a_bill_may_hold_anything(tmp_path: Path, name: str) -> None:
    import csv
    import io

    rows = list(csv.DictReader((EXPORTS / name).read_text(encoding="utf-8-sig").splitlines()))[:1]
    other = (
        "NaN",
        "9" * 400,
        "1e999",
        "-1e12",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59Z",
        "[" * DEEP,
        "\x1b[2J",
        "",
    )
    for column in rows[0]:
        for value in other:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(rows[0]))
            writer.writeheader()
            writer.writerow({**rows[0], column: value})
            outcomes(tmp_path / name, read_invoice, iter([text.getvalue().encode()]))


def read_damaged_parquet(folder: Path) -> None:
    """Read damaged copies of a bill in Parquet; exit with 1 where none of them is refused, or one ends otherwise."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.csv.read_csv(EXPORTS / "aws.csv")
    pyarrow.parquet.write_table(table, folder / "whole.parquet")
    body = (folder / "whole.parquet").read_bytes()
    assert False in outcomes(folder / "bill.parquet", read_invoice, damaged(body, "parquet", 150))


def test_a_bill_in_parquet_with_damaged_bytes_is_read_or_refused(tmp_path: Path) -> None:
    # In a process of its own: after a damaged file pyarrow lets no fork live, in which other tests run rules.
    process = multiprocessing.get_context("spawn").Process(target=read_damaged_parquet, args=(tmp_path,))
    process.start()
    process.join(120)
    assert process.exitcode == 0


def test_a_list_of_prices_with_other_values_is_read_or_refused(tmp_path: Path) -> None:
    assert outcomes(tmp_path / "a.json", prices, as_lines(altered([OFFER], "json", 120))) == {True, False}
    text = f"{','.join(OFFER)}\n{','.join(OFFER.values())}\n".encode()
    assert outcomes(tmp_path / "a.csv", prices, damaged(text, "csv", 120)) == {True, False}


def test_a_spend_log_with_other_values_is_read_or_refused(tmp_path: Path) -> None:
    assert outcomes(tmp_path / "a.json", log, as_lines(altered([request_row()], "log", 150))) == {True, False}
    lines = "\n".join(json.dumps(request_row(n)) for n in range(3)).encode()
    assert outcomes(tmp_path / "a.jsonl", log, damaged(lines, "log", 200)) == {True, False}


DEEP_JSON = [
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b'[{"a":' + b"[" * 900 + b"]" * 900 + b"}]",
    b'{"a":' * 900 + b"1" + b"}" * 900,
]


@pytest.mark.parametrize("read", [read_invoice, prices, log], ids=["bill", "prices", "log"])
@pytest.mark.parametrize("body", DEEP_JSON, ids=["lists", "objects", "a list in a row", "nearly too deep"])
def test_json_nested_without_end_is_refused(tmp_path: Path, read: Callable[[Path], Any], body: bytes) -> None:
    assert outcomes(tmp_path / "a.json", read, iter([body])) == {False}


@pytest.mark.parametrize("read", [read_invoice, prices, log], ids=["bill", "prices", "log"])
def test_a_file_too_large_is_refused_before_it_is_read(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    with bounded(max_bytes=8_000_000), pytest.raises(BadInput, match="larger than"):
        read(file)


def exported(file: Path) -> Any:
    _, _, slices = csv_in(file, "host_sample")
    return [row for rows in slices for row in rows]


def exported_parquet(file: Path) -> Any:
    _, _, slices = parquet_in(file, None)
    return [row for rows in slices for row in rows]


def test_exported_rows_with_damaged_bytes_are_read_or_refused(tmp_path: Path) -> None:
    from pertoken.store.export.files import columns, csv_out, parquet_out

    names = columns("event")
    value_by_kind: dict[str, int | str] = {"int": 1, "text": "words", "bool": True}
    row = tuple(value_by_kind[each.kind] if each.required or i % 2 else None for i, each in enumerate(names))
    file = tmp_path / "event.csv"
    with file.open("w", newline="") as out, csv_out(out, "event") as put:
        put([row] * 5)

    def events(path: Path) -> Any:
        return [row for rows in csv_in(path, "event")[2] for row in rows]

    assert events(file) == [row] * 5
    assert outcomes(tmp_path / "damaged.csv", events, damaged(file.read_bytes(), "event", 150)) == {True, False}
    whole = tmp_path / "event.parquet"
    with parquet_out(whole, "event") as put:
        put([row] * 5)
    bodies = damaged(whole.read_bytes(), "event", 150)
    assert False in outcomes(tmp_path / "damaged.parquet", exported_parquet, bodies)


def archive(file: Path, rows: list[tuple[Any, ...]]) -> Path:
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE sqlar(name, mode, mtime, sz, data)")
        database.executemany("INSERT INTO sqlar VALUES (?, 0, 0, ?, ?)", rows)
        database.commit()
    return file


def packed(content: bytes) -> tuple[int, bytes]:
    return len(content), zlib.compress(content)


HEADER = json.dumps({"format": 1, "start_ts": 0, "end_ts": 60, "anonymized": False}).encode()


def test_a_recording_with_other_contents_is_read_or_refused(tmp_path: Path) -> None:
    def unpacked(file: Path) -> Any:
        return unpack(file, tmp_path)

    name = "recording.json"
    for header in altered(json.loads(HEADER), "header", 40):
        file = archive(tmp_path / "a", [(name, *packed(json.dumps(header).encode()))])
        read_or_refused(lambda file=file: unpacked(file), BadInput)  # type: ignore[misc]
    for rows in (
        [(name, 3, "text"), ("telemetry.db", 3, "text")],
        [(name, None, None)],
        [(name, 10, 5)],
        [(name, *packed(b"[" * DEEP))],
        [(7, 1, b"a")],
        [(name, *packed(HEADER)), ("telemetry.db", 5, "words")],
        [(name, *packed(HEADER)), ("telemetry.db", 9, 7)],
        [(name, *packed(HEADER)), ("../../escaped.db", 1, b"a")],
    ):
        read_or_refused(lambda rows=rows: unpacked(archive(tmp_path / "a", rows)), BadInput)  # type: ignore[misc]
    assert not (tmp_path.parent / "escaped.db").exists()


def test_a_recording_that_unpacks_to_more_than_it_states_is_refused(tmp_path: Path) -> None:
    """60 MB of zeros, stated as 100 bytes."""
    bomb = zlib.compress(bytes(60_000_000), 1)
    file = archive(tmp_path / "bomb", [("recording.json", *packed(HEADER)), ("telemetry.db", 100, bomb)])
    with bounded(max_bytes=10_000_000), pytest.raises(BadInput):
        unpack(file, tmp_path / "out")


def test_a_recording_with_damaged_bytes_is_read_or_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path / "whole", [("recording.json", *packed(HEADER)), ("telemetry.db", *packed(b"a" * 5000))])
    (tmp_path / "out").mkdir()
    outcomes(
        tmp_path / "damaged", lambda file: unpack(file, tmp_path / "out"), damaged(whole.read_bytes(), "sqlar", 200)
    )
