"""Rows go out to a file and come back as they were, whatever they hold."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.cli import main
from pertoken.installed import install_command
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.export.files import TABLES, columns, csv_in, csv_out, parquet_in, parquet_out
from pertoken.store.integrity.verify import verify
from pertoken.units import format_utc
from tests.examples import examples
from tests.postgres import server_url
from tests.scenario import LOW_BATCH_70B, seed
from tests.store.filled import START, everything, filled


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    return filled(tmp_path_factory.mktemp("whole"), 60)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_every_table_is_restored_unchanged_with_its_checksums(whole: StoreLocation, form: str, tmp_path: Path) -> None:
    before = everything(whole.file("telemetry"))
    copy = tmp_path / "copy"
    for table in TABLES:
        file = tmp_path / f"{table}.{form}"
        done = run("export", form, "--table", table, "--out", file, "--db", whole)
        assert done.exit_code == 0, done.output
        assert f"{len(before[table])} rows of {table}" in done.output
        done = run("import", file, "--table", table, "--db", copy)
        assert done.exit_code == 0, done.output
    after = everything(copy / "telemetry.db")
    assert {table: after[table] for table in TABLES} == {table: before[table] for table in TABLES}
    assert [fault for fault in verify(locate(str(copy))) if fault is not None] == []


def test_a_second_import_adds_nothing_and_another_value_is_refused(whole: StoreLocation, tmp_path: Path) -> None:
    file, copy = tmp_path / "rows.parquet", tmp_path / "copy"
    run("export", "parquet", "--table", "device_1m", "--out", file, "--db", whole)
    assert "18 of 18 rows" in run("import", file, "--db", copy).output
    assert "0 of 18 rows" in run("import", file, "--db", copy).output
    with closing(sqlite3.connect(copy / "telemetry.db")) as connection:
        connection.execute("UPDATE device_1m SET samples = 99 WHERE device_id = 2")
        connection.commit()
    done = run("import", file, "--db", copy)
    assert done.exit_code == 1
    assert (
        f"device_1m: the row of device_id 2, ts {format_utc(START)} is there already, with other values" in done.output
    )


def test_only_the_rows_of_a_window_go(whole: StoreLocation) -> None:
    args = ("export", "csv", "--table", "host_sample", "--db", whole, "--from", "2026-09-21T14:05Z")
    done = run(*args, "--to", "2026-09-21T14:06")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 1 + 6, done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("xml", "--table", "host"), "'xml' is not a format"),
        (("csv", "--table", "hosts"), "'hosts' is not a table that can be exported"),
        (("csv", "--table", "host", "--from", "1h"), "host has no time to choose by"),
        (("csv", "--table", "host_1m", "--to", "noon"), "'noon' is not a time"),
        (("parquet", "--table", "host"), "--out FILE"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(
    whole: StoreLocation, arguments: tuple[str, ...], message: str
) -> None:
    done = run("export", *arguments, "--db", whole)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host_id,ts\n1,2\n", "has no column 'duration_ms'"),
        ("host_id,ts,colour\n1,2,3\n", "'colour' is not a column"),
        ("host_id,ts,duration_ms,observed_ms\n1,2,x,4\n", "'x' is not a value of duration_ms"),
        ("host_id,ts,duration_ms,observed_ms\n1,2,3\n", "line 2: 3 values for 4 columns"),
    ],
)
def test_a_malformed_file_is_reported_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    done = run("import", file, "--table", "host_sample", "--db", tmp_path / "db")
    assert done.exit_code == 2
    assert message in done.stderr
    assert "name it with --table" in run("import", file, "--db", tmp_path / "db").stderr


def test_a_column_that_a_file_is_too_old_to_have_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("host_id,ts,duration_ms,observed_ms\n1,2,3,4\n")
    assert run("import", file, "--table", "host_sample", "--db", tmp_path / "db").exit_code == 0
    assert everything(tmp_path / "db/telemetry.db")["host_sample"] == [(1, 2, 3, 4, *[None] * 8)]


def test_without_pyarrow_parquet_is_refused_in_one_line(whole: StoreLocation, tmp_path: Path) -> None:
    script = "import sys; sys.modules['pyarrow'] = None; from pertoken.cli import main; main()"
    command = [sys.executable, "-c", script, "export", "parquet", "--table", "host", "--out", str(tmp_path / "x")]
    done = subprocess.run([*command, "--db", str(whole)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"pertoken: Parquet needs pyarrow: {install_command('parquet')}; or use csv\n"


INTS = st.none() | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["\\N", "", "\\"])


@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(max_codepoint=127), max_size=3), TEXTS, INTS),
        max_size=20,
    )
)
@settings(max_examples=examples(40), deadline=None)
def test_any_value_comes_back_from_either_file(values: list[tuple[int, str, str | None, int | None]]) -> None:
    event_columns = columns("event")
    rows = [
        tuple(
            number
            if column.name == "subject_id"
            else key
            if column.kind == "int"
            else (text or word)
            if column.name == "message"
            else word
            for column in event_columns
        )
        for key, word, text, number in values
    ]
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        text_file, parquet_file = Path(folder) / "rows.csv", Path(folder) / "rows.parquet"
        with text_file.open("w", newline="", encoding="utf-8") as file, csv_out(file, "event") as put:
            put(rows)
        with parquet_out(parquet_file, "event") as put:
            put(rows)
        assert [row for batch in csv_in(text_file, "event")[2] for row in batch] == rows
        assert [row for batch in parquet_in(parquet_file, None)[2] for row in batch] == rows


def test_a_server_is_exported_by_the_same_command(tmp_path: Path) -> None:
    with server_url(tmp_path / "postgres") as url:
        seed(locate(url), LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=30, end_ts=1_790_000_400)
        file = tmp_path / "rows.parquet"
        done = run("export", "parquet", "--table", "deployment_sample", "--out", file, "--db", url)
        assert done.exit_code == 0, done.output
    assert "30 of 30 rows" in run("import", file, "--db", tmp_path / "copy").output
    assert {row[4] for row in everything(tmp_path / "copy/telemetry.db")["deployment_sample"]} == {1}
