"""PostgreSQL that holds the rows of a lake gives the answers that DuckDB gives, to the nano-dollar."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import lake_postgres as postgres
from pertoken.lake import questions
from pertoken.lake.reading import Range
from tests.costs.test_any_history import History, histories
from tests.examples import examples
from tests.lake.lakes import DAY, END, asked, host, published, random_lake

QUESTIONS: tuple[Any, ...] = (
    *(partial(questions.dollars, by=["cell", by]) for by in ("model", "provider", "job:user", "label:team", "slice")),
    *(partial(questions.per_mtok, by=by, hourly=True) for by in ("model", "job", "label:team")),
    partial(questions.unused, by=["cell", "job:user"]),
    questions.months,
)


def agree(folder: Path, lake: Path, end: int) -> None:
    """Ask PostgreSQL and DuckDB every question."""
    with postgres.filled(folder, lake) as url:
        connection = postgres.connect(url)
        for question in QUESTIONS:
            answer = postgres.rows(connection, question, Range(end - 30 * DAY, end))
            expected = asked(lake, question, start=end - 30 * DAY, end=end)
            assert sorted(answer, key=repr) == sorted(expected, key=repr)
        connection.disconnect()


def test_postgresql_answers_every_question_about_hours_as_duckdb_does(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    published(
        host(tmp_path / "one", hours=3, knobs={"job": "17", "job:user": "ada", "label:team": "search"}), lake, "one"
    )
    published(host(tmp_path / "two", hours=3, knobs={"label:team": "ads"}), lake, "two")
    published(host(tmp_path / "three", hours=3, usd_per_hour=None), lake, "three")
    agree(tmp_path, lake, END)


@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cells=st.lists(histories, min_size=2, max_size=2))
def test_postgresql_and_duckdb_agree_over_random_fleets(
    cells: list[History], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("random")
    lake, end = random_lake(folder, cells)
    if any(lake.rglob("manifest-*.json")):
        agree(folder, lake, end)
