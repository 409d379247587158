"""`pertoken trial`: what it prints, and that it goes on after Ctrl-C."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.proof.recommendation import short_id
from pertoken.proof.stored import keep
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import writing
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import DeploymentSample
from pertoken.store.write.writer import Writer
from tests.cli.builders import run
from tests.proof.rows import row
from tests.proof.trials.minutes import CANARY, CONTROL, OTHER, OTHER_ENGINE, OTHER_GPU, VARIANT
from tests.values import new_store, tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU

PROPOSED = row(variants=(replace(VARIANT, undo=("restart chat with bf16",)),), target_key="8", deployment_id=8)
ID = short_id(PROPOSED)


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Two replicas that run now, and a recommendation for one of them."""
    now = int(time.time())
    where = new_store(tmp_path)
    epochs = [replace(replica, start_ts=now - 7200, end_ts=None) for replica in (CANARY, CONTROL)]
    with Writer(where) as writer:
        samples = [DeploymentSample(epoch.epoch_id, now, 60_000, 60_000, True, 30_000) for epoch in epochs]
        writer.commit(
            tick(
                now,
                *samples,
                epochs=tuple(epochs),
                engines=(ENGINE, OTHER_ENGINE),
                deployments=(DEPLOYMENT, OTHER),
                devices=(GPU, OTHER_GPU),
            )
        )
    writing(where, "advice").dispose()
    keep(AdviceRepository(where), [PROPOSED], {"quantize"}, now - 60, "advisor")
    return str(tmp_path)


def test_a_trial_prints_what_to_restart_and_is_looked_at_again(db: str) -> None:
    refused = run("trial", ID, "--once", "--db", db)
    assert refused.exit_code == 2 and "set advisor.quality_check" in refused.stderr
    begun = run("trial", ID, "--once", "--without-quality-check", "--db", db)
    assert begun.output.splitlines()[:6] == [
        f"Trial of weights bf16 → fp8 ({ID})",
        "",
        "1. Restart the canary, tiny on gpu-1 (http://127.0.0.1:8000), with the change, and no other replica:",
        "  restart chat with --quantization fp8",
        "2. Restart the control, tiny on gpu-1 (http://127.0.0.1:8001), unchanged and at about the same time: both "
        "begin with cold caches.",
        "",
    ]
    assert begun.stderr == (
        "waiting for the canary, tiny on gpu-1, to run with weight_dtype fp8 and the control, tiny on gpu-1, to be "
        "restarted\n"
    )
    again = run("trial", ID, "--once", "--db", db, "--json")
    assert (json.loads(again.stdout)["status"], again.exit_code) == ("RUNNING", 0)
    stopped = run("trial", ID, "--stop", "--db", db)
    assert stopped.output.splitlines()[1:] == [
        "Trial: stopped, nothing was compared.",
        "",
        "To undo the change:",
        "  restart chat with bf16",
    ]
    assert run("trial", ID, "--stop", "--db", db).exit_code == 2
    entries = json.loads(run("advise", "show", ID, "--json", "--db", db).stdout)["journal"]
    assert [entry["what"] for entry in entries] == ["open", "accepted", "trial begun", "trial stopped"]


def test_ctrl_c_ends_the_waiting_and_not_the_trial(db: str) -> None:
    command = [sys.executable, "-m", "pertoken", "trial", ID, "--without-quality-check", "--db", db]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("waiting for the canary")
        waiting.send_signal(signal.SIGINT)
        left = waiting.stderr.read()
        assert waiting.wait(20) == 130
    assert left.strip() == f"The trial goes on: `pertoken trial {ID}` waits for it again."
    assert json.loads(run("trial", ID, "--once", "--db", db, "--json").stdout)["status"] == "RUNNING"
    assert locate(db).exists("advice")
