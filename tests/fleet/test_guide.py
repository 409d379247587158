"""docs/fleet.md: its statements run as they are written."""

import re
from pathlib import Path

import psycopg
import pytest

from pertoken.store.central.logins import enroll, let_read
from pertoken.store.connect.location import StoreLocation
from tests.fleet.servers import ask, change, login

GUIDE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text(encoding="utf-8")


def test_a_pooler_reads_verifiers_of_hosts_and_readers_and_of_nobody_who_may_do_more(
    owner_url: str, server: StoreLocation
) -> None:
    (statements,) = re.findall(r"```sql\n(CREATE ROLE pgbouncer.*?)```", GUIDE, re.DOTALL)
    change(server, statements)
    enroll(server, "guide_host", 1)
    let_read(server, "guide_reader")
    change(server, "CREATE ROLE guide_owner LOGIN CREATEROLE PASSWORD 'x'")
    (query,) = re.findall(r"^auth_query = (.*)$", GUIDE, re.MULTILINE)
    query = query.replace("$1", "%s")
    with login(owner_url, "pgbouncer").connect() as connection:
        for name, known in (("guide_host", 1), ("guide_reader", 1), ("guide_owner", 0), ("postgres", 0), ("nobody", 0)):
            found = connection.execute(query, (name,)).fetchall()
            assert len(found) == known and all(each[1].startswith("SCRAM-SHA-256$") for each in found), name
    with login(owner_url, "guide_host").connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(query, ("guide_reader",))
    assert ask(server, "SELECT count(*) FROM pg_proc WHERE proname = 'get_auth'") == 1


def test_the_guide_names_every_command_for_logins() -> None:
    for command in (
        "--reader",
        "--advisor",
        "--new-password",
        "--via",
        "remove-login",
        "disown",
        ".pgpass",
        "ship.ca_file",
    ):
        assert command in GUIDE, command
