"""PostgreSQL that holds the rows of a lake gives the answers that DuckDB gives, to the nano-dollar."""

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import lake_postgres as postgres
from pertoken.lake import questions
from pertoken.lake.reading import Range
from tests.lake.lakes import DAY, END, asked, host, published

QUESTIONS: tuple[Any, ...] = (
    *(partial(questions.dollars, by=["cell", by]) for by in ("model", "provider", "job:user", "label:team", "slice")),
    *(partial(questions.per_mtok, by=by, hourly=True) for by in ("model", "job", "label:team")),
    partial(questions.unused, by=["cell", "job:user"]),
    questions.months,
)


def test_postgresql_answers_every_question_about_hours_as_duckdb_does(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    published(
        host(tmp_path / "one", hours=3, knobs={"job": "17", "job:user": "ada", "label:team": "search"}), lake, "one"
    )
    published(host(tmp_path / "two", hours=3, knobs={"label:team": "ads"}), lake, "two")
    published(host(tmp_path / "three", hours=3, usd_per_hour=None), lake, "three")
    with postgres.filled(tmp_path, lake) as url:
        connection = postgres.connect(url)
        for question in QUESTIONS:
            answer = postgres.rows(connection, question, Range(END - 30 * DAY, END))
            assert answer and sorted(answer, key=repr) == sorted(asked(lake, question), key=repr)
        connection.disconnect()
