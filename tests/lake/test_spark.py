"""A Spark cluster of one master and two workers on loopback answers as DuckDB does, also where a worker is killed.

Opt-in, `PERTOKEN_E2E_SPARK=1`: it needs Java 17 and the extra `spark`.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertoken.lake import questions
from pertoken.lake.questions import LakeSession
from pertoken.lake.reading import Range
from tests.costs.test_any_history import History, histories
from tests.examples import examples
from tests.lake.lakes import DAY, END, asked, host, published, random_lake
from tests.lake.spark import spark_cluster

pytestmark = [
    pytest.mark.skipif(os.environ.get("PERTOKEN_E2E_SPARK") != "1", reason="PERTOKEN_E2E_SPARK is not 1"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    with spark_cluster(tmp_path_factory.mktemp("spark"), n_workers=2) as started:
        yield started


QUESTIONS: dict[str, Any] = {
    "dollars": partial(questions.dollars, by=["cell", "model"]),
    "per_mtok": partial(questions.per_mtok, by="model", hourly=True),
    "unused": partial(questions.unused, by=["cell"]),
    "months": questions.months,
    "kinds": partial(questions.by_kind, by="model"),
    "users": partial(questions.dollars, by=["cell", "job:user"]),
    "labels": partial(questions.per_mtok, by="label:acme.io/tier"),
    "advice": questions.advice,
    "realised": questions.realised,
}


def test_spark_answers_every_question_as_duckdb_does(cluster: Any, tmp_path: Path) -> None:
    published(host(tmp_path / "one", knobs={"job:user": "ada", "label:acme.io/tier": "gold"}), tmp_path / "lake", "one")
    published(host(tmp_path / "two"), tmp_path / "lake", "two")
    with LakeSession(str(tmp_path / "lake"), Range(END - 30 * DAY, END), cluster[0]) as session:
        for name, question in QUESTIONS.items():
            assert session.rows(question) == asked(tmp_path / "lake", question), name


@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cells=st.lists(histories, min_size=2, max_size=2))
def test_spark_and_duckdb_agree_over_random_fleets(
    cluster: Any, cells: list[History], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake, end = random_lake(tmp_path_factory.mktemp("random"), cells)
    if any(lake.rglob("manifest-*.json")):
        with LakeSession(str(lake), Range(end - 30 * DAY, end), cluster[0]) as session:
            for name, question in QUESTIONS.items():
                answer, expected = session.rows(question), asked(lake, question, start=end - 30 * DAY, end=end)
                assert sorted(answer, key=repr) == sorted(expected, key=repr), name


def test_a_worker_that_is_killed_in_the_middle_of_a_question_changes_no_nano_dollar(
    cluster: Any, tmp_path: Path
) -> None:
    url, processes = cluster
    store = host(tmp_path / "db")
    for n in range(40):
        published(store, tmp_path / "lake", f"cell{n}")
    question = QUESTIONS["dollars"]
    with LakeSession(str(tmp_path / "lake"), Range(END - 30 * DAY, END), url) as session:
        session.rows(question)
        killer = threading.Timer(0.3, lambda: os.killpg(processes[-1].pid, signal.SIGKILL))
        killer.start()
        answers = [session.rows(question) for _ in range(3)]
        killer.join()
        assert processes[-1].poll() is not None or processes[-1].wait(10) is not None
    assert all(answer == asked(tmp_path / "lake", question) for answer in answers)
