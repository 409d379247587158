"""A Spark cluster of one master and two workers on loopback answers as DuckDB does, also where a worker is killed.

Opt-in, `PERTOKEN_E2E_SPARK=1`: it needs Java 17 and the extra `spark`.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pertoken.lake import questions
from pertoken.lake.answers import LakeSession
from pertoken.lake.reading import Range
from tests.lake.lakes import DAY, END, asked, host, published

pytestmark = [
    pytest.mark.skipif(os.environ.get("PERTOKEN_E2E_SPARK") != "1", reason="PERTOKEN_E2E_SPARK is not 1"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master and two workers of one core each."""
    import pyspark

    java = shutil.which("java")
    assert java, "Java 17 is needed: Debian's openjdk-17-jre-headless"
    home, folder = Path(pyspark.__file__).parent, tmp_path_factory.mktemp("spark")
    version = next((home / "jars").glob("scala-library-*.jar")).stem.removeprefix("scala-library-")[:4]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": version,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    master, page = _free_port(), _free_port()
    url = f"spark://127.0.0.1:{master}"
    base = [java, "-cp", f"{home}/jars/*", "-Xmx512m"]
    for option in _OPENS:
        base += ["--add-opens", f"java.base/{option}=ALL-UNNAMED"]
    commands = [
        [
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(master),
            "--webui-port",
            str(page),
        ],
        *([*_WORKER, "--webui-port", str(_free_port()), "--work-dir", str(folder / str(n)), url] for n in range(2)),
    ]
    processes = []
    own = {name: os.environ.get(name) for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON")}
    os.environ.update({name: environment[name] for name in own})
    try:
        for n, command in enumerate(commands):
            log = (folder / f"{n}.log").open("wb")
            processes.append(
                subprocess.Popen([*base, *command], env=environment, stdout=log, stderr=log, start_new_session=True)
            )
            if n == 0:
                _wait_for(master)
        yield url, processes
    finally:
        for name, value in own.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


_WORKER = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
_OPENS = ("java.lang", "java.nio", "java.util", "sun.nio.ch", "java.net", "sun.util.calendar", "java.lang.invoke")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")


QUESTIONS: dict[str, Any] = {
    "dollars": partial(questions.dollars, by=["cell", "model"]),
    "per_mtok": partial(questions.per_mtok, by="model", hourly=True),
    "unused": partial(questions.unused, by=["cell"]),
    "months": questions.months,
    "advice": questions.advice,
    "realised": questions.realised,
}


def test_spark_answers_every_question_as_duckdb_does(cluster: Any, tmp_path: Path) -> None:
    for cell in ("one", "two"):
        published(host(tmp_path / cell), tmp_path / "lake", cell)
    with LakeSession(str(tmp_path / "lake"), Range(END - 30 * DAY, END), cluster[0]) as session:
        for name, question in QUESTIONS.items():
            assert session.rows(question) == asked(tmp_path / "lake", question), name


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
