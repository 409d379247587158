"""An agent as a process, and what it recorded of one server: asked of its database, as anybody may."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import func, select

from pertoken.errors import StoreError
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from tests.soon import SOON

DEADLINE_S = 40.0
POLL_S = 0.2
"""A question to the database takes some 10 ms of CPU."""
TOKENS = ("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens")


class Server(Protocol):
    """A server on this host; others may run beside it."""

    port: int


def until(true: Callable[[], object], what: str, within_s: float = DEADLINE_S, every_s: float = POLL_S) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"waited {within_s:.0f} s for {what}"
        time.sleep(every_s)


@contextmanager
def agent(folder: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`pertoken agent` as a process that looks for servers soon, past its baseline; ended by SIGTERM."""
    log = folder.with_suffix(".log").open("ab")
    process = subprocess.Popen(
        [*SOON, "agent", "--db", str(folder), "--interval", "1s", *options],
        stderr=log,
        env={**os.environ, **environment},
    )
    try:
        before = newest(folder)
        until(lambda: process.poll() is not None or newest(folder) > before, "the first tick")
        assert process.poll() is None, folder.with_suffix(".log").read_text()
        yield process
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
        log.close()


@contextmanager
def agent_reading(server: Server, folder: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`agent`, past the baseline of a server: it is found in the background, on a busy machine after the first tick."""
    with agent(folder, *options, **environment) as process:
        until(lambda: process.poll() is not None or known_counters(folder, server), "the server's first page")
        yield process


def scalar(folder: Path, query: Any) -> Any:
    """Return the one value that answers a query."""
    with open_store(locate(str(folder))).read() as connection:
        return connection.execute(query).scalar()


def newest(folder: Path) -> int:
    """Return time of the newest row; 0 before there is one."""
    try:
        return int(scalar(folder, select(func.max(t.host_sample.c.ts))) or 0)
    except StoreError:
        return 0


def rows_of(server: Server, *columns: Any) -> Any:
    """Return a question about the rows of this server alone: other tests run servers on the same host."""
    return (
        select(*columns)
        .select_from(t.deployment_sample)
        .join(t.epoch, t.epoch.c.epoch_id == t.deployment_sample.c.epoch_id)
        .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
        .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
        .where(t.engine.c.port == server.port)
    )


def totals(folder: Path, server: Server) -> dict[str, int]:
    """Return tokens in the raw rows of this server, all epochs together."""
    columns = [func.sum(t.deployment_sample.c[name]) for name in TOKENS]
    with open_store(locate(str(folder))).read() as connection:
        sums = connection.execute(rows_of(server, *columns)).one()
    return {name: int(n or 0) for name, n in zip(TOKENS, sums, strict=True)}


def last_page(folder: Path, server: Server) -> dict[str, int]:
    """Return the last page taken of this server's present life, by word: what its counters stood at, not what they grew
    by."""
    state, engine = t.counter_state, t.engine
    query = (
        select(state.c.series, state.c.value)
        .join(engine, engine.c.engine_id == state.c.owner_id)
        .where(engine.c.port == server.port)
    )
    totals = dict.fromkeys(TOKENS, 0)
    with open_store(locate(str(folder))).read() as connection:
        for series, value in connection.execute(query):
            word = series.partition("{")[0]
            if word in totals and " le=" not in series:
                totals[word] += value
    # Each engine exposes two of these three.
    totals["prompt_tokens"] = totals["prompt_tokens"] or totals["cached_tokens"] + totals["computed_tokens"]
    totals["computed_tokens"] = totals["prompt_tokens"] - totals["cached_tokens"]
    return totals


def known_counters(folder: Path, server: Server) -> int:
    """Return how many counters of this server are known."""
    engine = t.engine.c
    query = select(func.count()).join_from(t.counter_state, t.engine, engine.engine_id == t.counter_state.c.owner_id)
    return int(scalar(folder, query.where(engine.port == server.port)) or 0)


def incomplete(folder: Path, server: Server) -> int:
    """Return rows of this server in which something was counted that nobody saw."""
    query = rows_of(server, func.count()).where(t.deployment_sample.c.complete.is_(False))
    return int(scalar(folder, query))


def epochs(folder: Path, server: Server) -> int:
    """Return epochs of this server that have rows."""
    return int(scalar(folder, rows_of(server, func.count(t.epoch.c.epoch_id.distinct()))))


def kinds(folder: Path) -> set[str]:
    """Return kinds of all events."""
    with open_store(locate(str(folder))).read() as connection:
        return set(connection.execute(select(t.event.c.kind)).scalars())


def plus(*parts: dict[str, int]) -> dict[str, int]:
    """Return totals by word over several lives."""
    return {name: sum(part[name] for part in parts) for name in parts[0]}
