"""A real agent with a server set: it ships, survives its shipper, and keeps secrets."""

import os
import signal
from pathlib import Path

import psutil
from sqlalchemy import select

from pertoken.store.central.server import enroll
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.schema import telemetry as t
from pertoken.store.sync import Local
from tests.fleet.servers import login
from tests.fleet.servers import scalar as server_scalar
from tests.recorded import agent, kinds, scalar, until


def shipped(server: StoreLocation, folder: Path) -> int:
    state = Local(locate(str(folder))).state()
    if state is None:
        return 0
    count = "SELECT count(*) FROM telemetry.host_1m WHERE host_id = :h"
    return int(server_scalar(server, count, h=state.host_ids[-1]) or 0)


def shipper_of(agent_pid: int) -> list[int]:
    children = psutil.Process(agent_pid).children()
    return [child.pid for child in children if "pertoken.agent.shipper.child" in child.cmdline()]


def test_an_agent_ships_and_goes_on_when_its_shipper_is_killed(
    owner_url: str, server: StoreLocation, tmp_path: Path
) -> None:
    enroll(server, "whole_agent", 1)
    url = login(owner_url, "whole_agent", "canary-env").url.set(drivername="postgresql")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "pertoken.database-url").write_text(url.render_as_string(hide_password=False) + "\n")
    folder = tmp_path / "db"
    environment = {"CREDENTIALS_DIRECTORY": str(credentials), "PERTOKEN_SHIP_EVERY": "1s"}
    with agent(folder, **environment) as process:
        until(lambda: shipped(server, folder) > 0, "the first minute at the server")
        (child,) = shipper_of(process.pid)
        seen = [" ".join(psutil.Process(pid).cmdline()) for pid in (process.pid, child)]
        seen += [str(psutil.Process(child).environ())]
        os.kill(child, signal.SIGKILL)
        until(lambda: "ship_failed" in kinds(folder), "an event that reports it")
        until(lambda: shipper_of(process.pid) not in ([], [child]), "another shipper")
        until(lambda: scalar(folder, select(t.outbox.c.seq).limit(1)) is not None, "marks")
    assert not any("canary-env" in text for text in seen)
    assert "canary-env" not in (folder.with_suffix(".log")).read_text()
    left = shipper_of(os.getpid())
    assert left == []
