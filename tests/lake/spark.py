"""A Spark cluster on loopback: one master and some workers of one core each. It needs Java 17 and pyspark."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WORKER = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
_OPENS = ("java.lang", "java.nio", "java.util", "sun.nio.ch", "java.net", "sun.util.calendar", "java.lang.invoke")


@contextmanager
def spark_cluster(folder: Path, n_workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a cluster whose logs and work are in `folder`; yield its URL and its processes, the master first."""
    import pyspark

    java = shutil.which("java")
    assert java, "Java 17 is needed: Debian's openjdk-17-jre-headless"
    home = Path(pyspark.__file__).parent
    version = next((home / "jars").glob("scala-library-*.jar")).stem.removeprefix("scala-library-")[:4]
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": version, **own}
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    base = [java, "-cp", f"{home}/jars/*", "-Xmx512m"]
    base += [text for option in _OPENS for text in ("--add-opens", f"java.base/{option}=ALL-UNNAMED")]
    master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port))
    commands = [
        [*master, "--webui-port", str(_free_port())],
        *(
            [*_WORKER, "--webui-port", str(_free_port()), "--work-dir", str(folder / str(n)), url]
            for n in range(n_workers)
        ),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        for n, command in enumerate(commands):
            with (folder / f"{n}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen([*base, *command], env=environment, stdout=log, stderr=log, start_new_session=True)
                )
            if n == 0:
                _wait_for(port)
        yield url, processes
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")
