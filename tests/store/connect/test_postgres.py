"""Statements that only PostgreSQL needs."""

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import writing
from pertoken.store.connect.sqlite import catalog, commands, set_local


def test_a_setting_holds_until_the_end_of_its_transaction(server: StoreLocation) -> None:
    with writing(server, "telemetry").connect() as connection:
        with connection.begin():
            set_local(connection, statement_timeout="1234ms", lock_timeout="2s")
            assert catalog(connection, "SHOW statement_timeout") == [("1234ms",)]
        with connection.begin():
            assert catalog(connection, "SHOW statement_timeout") == [("0",)]


def test_values_are_bound(server: StoreLocation) -> None:
    with writing(server, "telemetry").connect() as connection:
        assert catalog(connection, "SELECT :text", text="'; DROP TABLE x; --") == [("'; DROP TABLE x; --",)]


def test_a_percent_sign_in_a_command_stands_for_itself(server: StoreLocation) -> None:
    with writing(server, "telemetry").connect() as connection, connection.begin():
        commands(connection, "DO $$ BEGIN PERFORM format('%s %1$I', 'x'); END $$")
