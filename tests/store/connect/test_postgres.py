"""What only PostgreSQL needs."""

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import writing
from pertoken.store.connect.postgres import catalog, set_local, tried_lock


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


def test_one_transaction_at_a_time_has_a_lock(server: StoreLocation) -> None:
    with writing(server, "telemetry").connect() as one, writing(server, "telemetry").connect() as other:
        with one.begin():
            assert tried_lock(one, 4711)
            with other.begin():
                assert not tried_lock(other, 4711)
        with other.begin():
            assert tried_lock(other, 4711)
