"""A fleet's server that was made ready by an older pertoken: `init-fleet` brings its partitions up to date in place."""

from pathlib import Path

import pytest
from alembic import command
from click.testing import CliRunner
from sqlalchemy import Connection

from pertoken.cli import main
from pertoken.errors import StoreError
from pertoken.migrations import _configured, drift, fleet
from pertoken.store.central.server import enroll
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from tests.fleet.servers import NOW, execute, host, local_rows, login, scalar, server_rows, shipper
from tests.postgres import server_url

AGENTS_ONCE_HAD = (
    "GRANT SELECT, INSERT, UPDATE ON telemetry.device, telemetry.device_1m, fleet.shipped TO pertoken_agent",
    "GRANT UPDATE (done_ts, rows_n, note) ON fleet.raw_request TO pertoken_agent",
    "ALTER TABLE telemetry.device ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY agent_has_its_own ON telemetry.device TO pertoken_agent USING (true)",
    "CREATE FUNCTION fleet.claim(hosts bigint[]) RETURNS void LANGUAGE sql SECURITY DEFINER AS ''",
    "GRANT EXECUTE ON FUNCTION fleet.claim TO pertoken_agent",
    "DROP TABLE fleet.row_fault",
    "DROP TABLE fleet.alias",
    "ALTER TABLE fleet.shipped DROP COLUMN shipper_id, DROP COLUMN boot_id, DROP COLUMN chain_seq, DROP COLUMN chain",
    "UPDATE fleet.alembic_version SET version_num = '0001'",
)
"""A server as pertoken 0.1.0 made it ready, where it differs."""


def to_third(connection: Connection, group: str) -> None:
    command.upgrade(_configured(connection, group), "0003" if group == "telemetry" else "head")


def test_partitions_of_the_third_revision_take_what_hosts_ship_now(tmp_path: Path) -> None:
    with server_url(tmp_path / "postgres") as url:
        server = locate(url)
        with pytest.MonkeyPatch.context() as older:
            older.setattr(fleet, "upgrade_within", to_third)
            fleet.init_fleet(server, NOW)
        assert scalar(server, "SELECT version_num FROM telemetry.alembic_version") == "0003"
        with pytest.raises(StoreError, match="its owner runs `pertoken db init-fleet` there"):
            open_store(server)
        names = "device_id, epoch_id, ts, held_ns, busy_ns, provenance, revision"
        execute(server, f"INSERT INTO telemetry.share_1m ({names}) VALUES (1, 1, {NOW}, 1, 1, 0, 1)")
        for statement in AGENTS_ONCE_HAD:
            execute(server, statement)
        fleet.init_fleet(server, NOW)
        assert drift(server, "telemetry") is None and drift(server, "fleet") is None
        left = (
            "SELECT count(*) FROM pg_class WHERE has_table_privilege('pertoken_agent', oid, 'SELECT, INSERT, UPDATE') "
        )
        assert scalar(server, left + "AND relnamespace::regnamespace::text IN ('telemetry', 'fleet', 'advice')") == 0
        assert scalar(server, "SELECT count(*) FROM pg_policies") == 0
        assert scalar(server, "SELECT to_regproc('fleet.claim') IS NULL")
        done = CliRunner().invoke(main, ["db", "upgrade", "--db", url])
        assert done.exit_code == 2 and "its owner runs `pertoken db init-fleet` there" in done.stderr
        assert scalar(server, "SELECT held_ns FROM telemetry.share_1m") == 1
        enroll(server, "agent_1", 1)
        where = host(tmp_path / "host", raw=True)
        shipper(where, login(url, "agent_1")).round()
        assert server_rows(server, where) == local_rows(where)
        assert scalar(server, "SELECT count(*) FROM telemetry.device_1m WHERE util_1e4_n IS NULL") > 0
        assert scalar(server, "SELECT count(*) FROM telemetry.deployment_1m WHERE whole_ms IS NOT NULL") > 0
