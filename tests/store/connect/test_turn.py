from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

from pertoken.errors import StoreError
from pertoken.store.central.server import let_read
from pertoken.store.connect.location import StoreLocation, locate, server_url
from pertoken.store.connect.open import writing
from pertoken.store.connect.turn import AdvisorTurn, is_served
from tests.fleet.servers import login


@pytest.fixture
def turns() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def turn_on(where: StoreLocation, turns: ExitStack) -> AdvisorTurn:
    turn = AdvisorTurn(where)
    turns.callback(turn.release)
    return turn


def check_second_waits(where: StoreLocation, turns: ExitStack) -> None:
    first, second = turn_on(where, turns), turn_on(where, turns)
    assert not is_served(where)
    assert first.take() and first.take() and not second.take()
    assert is_served(where)
    first.release()
    assert second.take() and not first.take()


def test_a_second_advisor_of_a_folder_has_its_turn_when_the_first_ends(tmp_path: Path, turns: ExitStack) -> None:
    check_second_waits(locate(str(tmp_path)), turns)


def test_a_second_advisor_of_a_server_has_its_turn_when_the_first_ends(server: StoreLocation, turns: ExitStack) -> None:
    check_second_waits(server, turns)


def test_advisors_with_a_login_of_their_own_wait_for_each_other(
    owner_url: str, server: StoreLocation, turns: ExitStack
) -> None:
    places = []
    for name in ("turn_a", "turn_b"):
        let_read(server, name, advisor=True)
        places.append(StoreLocation(url=login(owner_url, name).url))
    first, second = (turn_on(where, turns) for where in places)
    assert first.take() and not second.take()
    first.release()
    assert second.take()


def test_a_lock_of_a_login_that_is_no_advisor_stops_none(
    owner_url: str, server: StoreLocation, let_in: str, turns: ExitStack
) -> None:
    host = StoreLocation(url=login(owner_url, let_in).url)
    with writing(host, "advice").connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(1886745968, 1)"))
        assert turn_on(server, turns).take()
        assert not is_served(server), "the lock is not an advisor's"


def test_a_turn_whose_session_the_server_ended_is_reported_as_lost_and_can_be_taken_again(
    server: StoreLocation, turns: ExitStack
) -> None:
    turn = turn_on(server, turns)
    assert turn.take()
    with writing(server, "advice").connect() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1")
        )
    with pytest.raises(StoreError):
        turn.take()
    assert turn.take()


def test_a_server_that_cannot_be_reached_is_reported(turns: ExitStack) -> None:
    nowhere = StoreLocation(url=server_url("postgresql://nobody@127.0.0.1:1/none", "test"))
    with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
        turn_on(nowhere, turns).take()
