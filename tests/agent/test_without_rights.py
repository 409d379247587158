"""An agent that may look into no process but its own: it runs, and names the missing right for each metric."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.rights import run_without_rights


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights that a child can lack")
def test_it_runs_and_doctor_names_the_rights(tmp_path: Path) -> None:
    given = {"HOME": str(tmp_path), "PERTOKEN_DB": str(tmp_path / "db"), "PERTOKEN_AGENT_PROBES": ""}
    with socket.create_server(("127.0.0.1", 0)):  # of this process, which has rights that the child has not
        done = run_without_rights("-m", "pertoken", "doctor", "--json", **given)
        once = run_without_rights("-m", "pertoken", "agent", "--once", "--json", **given)
    assert (done.returncode, once.returncode) == (0, 0), done.stderr + once.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)
    (ports,) = (finding for finding in findings if finding["text"].startswith("engines: listening ports"))
    assert not ports["ok"] and "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH" in ports["remedy"]
    (cpu,) = (finding for finding in findings if finding["area"] == "device" and finding["ok"])
    assert "utilization" in cpu["text"]
    (sample,) = json.loads(once.stdout)["samples"]["DeviceSample"]
    assert sample["util_1e4"] is not None and sample["memory_used_bytes"]
