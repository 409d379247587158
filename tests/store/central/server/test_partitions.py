"""A fleet's server by time: partitions ahead, a DEFAULT for what comes late or early, retention by DROP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from pertoken.cli import main
from pertoken.errors import BadInput, StoreError
from pertoken.migrations import drift, upgrade
from pertoken.migrations.fleet import GROUPS, init_fleet, maintain
from pertoken.store.central.server import AHEAD_S, DAY, MAX_DROPPED, TIMED, enroll, partitions
from pertoken.store.connect.location import DatabaseServer, StoreLocation, locate
from pertoken.store.connect.open import reading
from tests.fleet.servers import NOW, execute, host, local_rows, scalar, server_rows, shipper
from tests.postgres import server_url

KEEP = {"raw": 2 * DAY, "1m": 3 * DAY, "1h": 60 * DAY}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreLocation]:
    """A server of its own, since its clock is moved."""
    with server_url(tmp_path_factory.mktemp("partitions")) as url:
        yield locate(url)


def starts(where: StoreLocation, table: str) -> list[int]:
    with reading(where, "telemetry").connect() as connection, connection.begin():
        return sorted(partitions(connection)[table].values())


def test_a_dry_run_prints_what_it_would_do_and_changes_nothing(fresh: StoreLocation) -> None:
    assert fresh.url is not None
    url = fresh.url.set(drivername="postgresql").render_as_string(hide_password=False)
    done = CliRunner().invoke(main, ["db", "init-fleet", url, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "CREATE ROLE pertoken_agent NOLOGIN;" in done.stdout
    assert "PARTITION BY RANGE (ts);" in done.stdout and "FUNCTION fleet.put(" in done.stdout
    assert scalar(fresh, "SELECT count(*) FROM pg_namespace WHERE nspname IN ('telemetry', 'advice', 'fleet')") == 0
    assert scalar(fresh, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'pertoken%'") == 0


def test_a_server_filled_before_it_was_a_fleets_keeps_its_rows(fresh: StoreLocation) -> None:
    for group in ("telemetry", "advice"):
        upgrade(fresh, group)
    execute(fresh, "INSERT INTO telemetry.engine_counter_1m VALUES (5, 'm', :ts, 42, 1)", ts=NOW - DAY)
    init_fleet(fresh, NOW, keep=KEEP)
    assert scalar(fresh, "SELECT delta FROM telemetry.engine_counter_1m WHERE ts = :ts", ts=NOW - DAY) == 42
    assert scalar(fresh, "SELECT count(*) FROM telemetry.engine_counter_1m_rest") == 0  # in the partition of its day
    for group in GROUPS:
        assert drift(fresh, group) is None


def test_doing_it_again_makes_no_new_thing(fresh: StoreLocation) -> None:
    before = scalar(fresh, "SELECT count(*) FROM pg_class"), scalar(fresh, "SELECT count(*) FROM pg_policy")
    again = init_fleet(fresh, NOW)
    assert not [
        statements
        for statements in again
        if statements.startswith(("CREATE TABLE", "CREATE POLICY", "ALTER", "DROP", "CREATE ROLE"))
    ]
    assert (scalar(fresh, "SELECT count(*) FROM pg_class"), scalar(fresh, "SELECT count(*) FROM pg_policy")) == before
    assert scalar(fresh, "SELECT age_s FROM fleet.kept WHERE resolution = '1m'") == KEEP["1m"]  # as it was set


def test_every_table_by_time_has_its_partitions_ahead_a_default_and_a_brin_index(fresh: StoreLocation) -> None:
    for table in TIMED:
        partitions = starts(fresh, table.name)
        assert (
            partitions[0] <= NOW - KEEP[table.resolution]
            and partitions[-1] + table.interval_s >= NOW + AHEAD_S - table.interval_s
        )
        assert partitions == list(range(partitions[0], partitions[-1] + 1, table.interval_s)), table.name
        default = "SELECT count(*) FROM pg_class WHERE relname = :n AND relkind = 'r'"
        assert scalar(fresh, default, n=table.rest) == 1
        assert scalar(fresh, "SELECT count(*) FROM pg_indexes WHERE indexname = :n", n=f"fleet_ts_{table.name}") == 1


def test_days_pass_late_rows_are_moved_and_old_partitions_dropped(fresh: StoreLocation) -> None:
    insert = "INSERT INTO telemetry.engine_counter_1m VALUES (1, 'm', :ts, 1, 1)"
    count = "SELECT count(*) FROM telemetry.engine_counter_1m WHERE ts = :ts"
    rest = "SELECT count(*) FROM telemetry.engine_counter_1m_rest"
    execute(fresh, insert, ts=NOW)
    far, ancient = NOW + AHEAD_S + 5 * DAY, NOW - 300 * DAY  # a clock that is wrong; a host that was away
    for ts in (far, ancient):
        execute(fresh, insert, ts=ts)
    assert scalar(fresh, rest) == 2
    assert scalar(fresh, count, ts=far) == 1 and scalar(fresh, count, ts=ancient) == 1  # read where they are
    maintain(fresh, NOW + 6 * DAY)
    assert scalar(fresh, rest) == 0
    assert scalar(fresh, count, ts=far) == 1  # in the partition of its day
    assert scalar(fresh, count, ts=NOW) == 0 and scalar(fresh, count, ts=ancient) == 0  # past their age
    partitions = starts(fresh, "engine_counter_1m")
    assert partitions[0] == (NOW + 6 * DAY - KEEP["1m"]) // DAY * DAY
    assert maintain(fresh, NOW + 6 * DAY) == []


def test_a_shipper_with_the_login_of_the_owner_maintains_the_partitions_too(
    fresh: StoreLocation, tmp_path: Path
) -> None:
    assert fresh.url is not None
    enroll(fresh, "postgres", 1)
    later = NOW + 9 * DAY
    where = host(tmp_path, host="owner", minutes=3, end_ts=later)
    shipper(where, DatabaseServer(fresh.url)).round()
    partitions = starts(fresh, "device_1m")
    assert partitions[-1] >= later + AHEAD_S - DAY and partitions[0] == (later - KEEP["1m"]) // DAY * DAY
    assert server_rows(fresh, where) == local_rows(where)


def test_a_partitioned_table_answers_for_an_hour_from_one_partition(fresh: StoreLocation) -> None:
    with reading(fresh, "telemetry").connect() as connection, connection.begin():
        plan = "\n".join(
            row[0]
            for row in connection.execute(
                text("EXPLAIN SELECT * FROM telemetry.device_1m WHERE ts >= :a AND ts < :b"),
                {"a": NOW + 6 * DAY, "b": NOW + 6 * DAY + 60},
            )
        )
    assert plan.count("Scan on device_1m_p") + plan.count("Scan using device_1m_p") == 1, plan


def test_a_clock_that_is_ahead_drops_no_partition_of_what_hosts_shipped(fresh: StoreLocation) -> None:
    newest = NOW + 9 * DAY  # the row of the host above
    maintain(fresh, newest)
    before = starts(fresh, "device_1m")
    assert maintain(fresh, newest + 1000 * DAY) == []
    assert starts(fresh, "device_1m") == before
    execute(fresh, "UPDATE telemetry.host SET last_ts = :ts", ts=newest + 1000 * DAY)  # this clock is ahead as well
    maintain(fresh, newest + 1000 * DAY)
    partitions = starts(fresh, "device_1m")
    assert partitions[0] == before[MAX_DROPPED]


def test_a_folder_is_no_fleet_and_an_unprepared_server_is_refused_with_the_command(
    tmp_path: Path, owner_url: str
) -> None:
    with pytest.raises(BadInput, match="needs a server"):
        init_fleet(locate(str(tmp_path)), NOW)
    done = CliRunner().invoke(main, ["db", "maintain", "--db", str(tmp_path)])
    assert done.exit_code == 2 and "name a server" in done.stderr
    with server_url(tmp_path / "bare") as url, pytest.raises(StoreError, match="init-fleet"):
        maintain(locate(url), NOW)
