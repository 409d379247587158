"""Events: one row for a change of state, however often it is repeated, and never more than a host's share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pertoken.agent.upkeep import Upkeep
from pertoken.config import Settings
from pertoken.migrations.fleet import init_fleet, maintain
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.checksums import DAY, HOUR
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import MAX_EVENTS, Event
from pertoken.store.write.retention import Ages, purge
from pertoken.store.write.writer import MAX_MESSAGE, Writer
from tests.fleet.servers import execute, scalar
from tests.postgres import server_url
from tests.values import HOST, new_store, tick

START = 1_790_000_000 // DAY * DAY


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path)


def events(where: StoreLocation) -> list[Any]:
    with open_store(where).read() as connection:
        return list(connection.execute(select(t.event).order_by(t.event.c.ts, t.event.c.message)))


def faults(where: StoreLocation) -> list[Any]:
    return [fault for fault in verify(where) if fault is not None]


def test_a_message_with_changing_figures_stays_one_row_with_its_newest_figures(where: StoreLocation) -> None:
    with Writer(where) as writer:
        for n in range(300):
            texts = (
                f"GPU 0: the counter jumped by {n * 1.5} mJ in {n:,} s",
                f"http://127.0.0.1:8000: HTTP {500 + n % 2}",
            )
            writer.commit(tick(START + 10 * n + 10, events=tuple(Event("odd", text, 5) for text in texts)))
    counter, _ = rows = events(where)
    assert [row._mapping["count"] for row in rows] == [300, 300]
    assert counter.message == "GPU 0: the counter jumped by 448.5 mJ in 299 s"
    assert (counter.ts, counter.last_ts) == (START + 10, START + 3000)
    assert faults(where) == []


def test_other_kinds_subjects_states_and_words_are_rows_of_their_own(where: StoreLocation) -> None:
    different = (
        Event("lost", "no answer for 3 s", 5),
        Event("back", "no answer for 3 s", 5),
        Event("lost", "no answer for 3 s", 6),
        Event("lost", "no power for 3 s", 5),
        Event("xid", "Xid 48", 5, state="48"),
        Event("xid", "Xid 79", 5, state="79"),
    )
    with Writer(where) as writer:
        writer.commit(tick(START + 10, events=different))
    assert len(events(where)) == len(different)


def test_a_long_message_is_cut(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(tick(START + 10, events=(Event("odd", "x" * 10**6),)))
    assert events(where)[0].message == "x" * MAX_MESSAGE


def test_a_flood_of_events_is_bounded_and_the_newest_stay(where: StoreLocation) -> None:
    with Writer(where) as writer:
        upkeep = Upkeep(where, writer, Settings())
        for minute in range(1, 16):
            flood = tuple(Event("odd", f"{minute}", state=f"{minute} {n}") for n in range(1000))
            upkeep.commit(tick(START + 60 * minute, events=flood))
            upkeep.tidy()
    rows = events(where)
    assert MAX_EVENTS * 0.9 <= len(rows) <= MAX_EVENTS
    assert rows[-1].message == "15" and "1" not in {row.message for row in rows}
    assert faults(where) == []


def test_events_are_deleted_by_their_age(where: StoreLocation) -> None:
    with Writer(where) as writer:
        for days in (0, 1, 10):
            writer.commit(tick(START + days * DAY + 10, events=(Event("odd", "something"),)))
        deleted, _ = purge(writer, Ages(20 * DAY, 20 * DAY, 20 * DAY, 5 * DAY), START + 10 * DAY + 10)
    assert deleted == 2
    assert [row.ts for row in events(where)] == [START + 10 * DAY + 10]
    assert faults(where) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreLocation]:
    with server_url(tmp_path_factory.mktemp("postgres")) as url:
        init_fleet(locate(url), START, keep={"1h": 30 * DAY})
        yield locate(url)


def test_a_fleets_server_deletes_old_events_and_those_of_a_flood(server: StoreLocation) -> None:
    with Writer(server) as writer:
        writer.commit(tick(START, events=(Event("odd", "now"),)))
    insert = "INSERT INTO telemetry.event SELECT n, :host, :ts + n, :ts + n, 1, 'odd', NULL, 'old' FROM "
    execute(server, insert + "generate_series(1, 5) n", host=HOST, ts=START - 31 * DAY)
    execute(server, insert + "generate_series(10, 12000) n", host=HOST + 1, ts=START - DAY)
    maintain(server, START + HOUR)
    count = "SELECT count(*) FROM telemetry.event WHERE host_id = :host"
    assert scalar(server, count, host=HOST) == 1
    assert scalar(server, count, host=HOST + 1) == MAX_EVENTS
    assert (
        scalar(server, "SELECT max(ts) FROM telemetry.event WHERE host_id = :host", host=HOST + 1)
        == START - DAY + 12_000
    )
    assert maintain(server, START + HOUR) == []
