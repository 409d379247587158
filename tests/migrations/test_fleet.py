"""A fleet's server that was made ready by an older pertoken: `init-fleet` brings its partitions up to date in place."""

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection

from pertoken.migrations import _configured, drift, fleet
from pertoken.store.central.logins import enroll
from pertoken.store.connect.location import locate
from tests.fleet.servers import NOW, ask, change, here, host, login, shipper, there
from tests.postgres import server_url


def to_third(connection: Connection, group: str) -> None:
    command.upgrade(_configured(connection, group), "0003" if group == "telemetry" else "head")


def test_partitions_of_the_third_revision_take_what_hosts_ship_now(tmp_path: Path) -> None:
    with server_url(tmp_path / "postgres") as url:
        server = locate(url)
        with pytest.MonkeyPatch.context() as older:
            older.setattr(fleet, "upgrade_within", to_third)
            fleet.init_fleet(server, NOW)
        assert ask(server, "SELECT version_num FROM telemetry.alembic_version") == "0003"
        names = "device_id, epoch_id, ts, held_ns, busy_ns, provenance, revision"
        change(server, f"INSERT INTO telemetry.share_1m ({names}) VALUES (1, 1, {NOW}, 1, 1, 0, 1)")
        fleet.init_fleet(server, NOW)
        assert drift(server, "telemetry") is None
        assert ask(server, "SELECT held_ns FROM telemetry.share_1m") == 1
        enroll(server, "agent_1", 1)
        where = host(tmp_path / "host", raw=True)
        shipper(where, login(url, "agent_1")).round()
        assert there(server, where) == here(where)
        assert ask(server, "SELECT count(*) FROM telemetry.device_1m WHERE util_1e4_n IS NULL") > 0
        assert ask(server, "SELECT count(*) FROM telemetry.deployment_1m WHERE whole_ms IS NOT NULL") > 0
