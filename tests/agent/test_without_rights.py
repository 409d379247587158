"""An agent that may look into no process but its own: it runs, and says which right is missing for what."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
FOLDER = Path(__file__).parents[2]


def as_nobody(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(FOLDER), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of nobody's own."""
    if os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    try:
        refused = as_nobody("-c", "import pertoken.cli, sqlalchemy").returncode
    except PermissionError:
        refused = 1
    if refused:
        pytest.skip("nobody may not read this Python")
    folder = Path("/var/tmp") / f"pertoken-nobody-{os.getpid()}"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def test_it_runs_and_doctor_names_the_rights(place: Path) -> None:
    given = {"HOME": str(place), "PERTOKEN_DB": str(place / "db"), "PERTOKEN_AGENT_PROBES": ""}
    with socket.create_server(("127.0.0.1", 0)):  # of a process that nobody may not look into: ours
        done = as_nobody("-m", "pertoken", "doctor", "--json", **given)
        once = as_nobody("-m", "pertoken", "agent", "--once", "--json", **given)
    assert (done.returncode, once.returncode) == (0, 0), done.stderr + once.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)
    (ports,) = (each for each in findings if each["text"].startswith("engines: listening ports"))
    assert not ports["ok"] and "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH" in ports["remedy"]
    (cpu,) = (each for each in findings if each["area"] == "device" and each["ok"])
    assert "utilization" in cpu["text"]
    (sample,) = json.loads(once.stdout)["samples"]["DeviceSample"]
    assert sample["util_1e4"] is not None and sample["memory_used_bytes"]
