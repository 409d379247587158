"""The DDL for Citus, over plain PostgreSQL in which Citus's functions record how they were called."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from pertoken.cli import main
from pertoken.migrations.fleet import init_fleet
from pertoken.store.central.partitions import TIMED
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import reading
from tests.fleet.servers import NOW, ask, change
from tests.postgres import server_url

STAND_IN = """
CREATE TABLE public.pg_dist_partition (logicalrelid regclass, owner text, colocated text);
CREATE FUNCTION public.create_reference_table(name regclass) RETURNS void LANGUAGE sql AS
  $$ INSERT INTO public.pg_dist_partition VALUES (name, NULL, NULL) $$;
CREATE FUNCTION public.create_distributed_table(name regclass, owner text, colocate_with text) RETURNS void LANGUAGE sql
  AS $$ INSERT INTO public.pg_dist_partition VALUES (name, owner, colocate_with) $$;
"""
"""The signatures as Citus 13 has them, for the arguments given by name and position here."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreLocation]:
    with server_url(tmp_path_factory.mktemp("citus")) as url:
        yield locate(url)


def test_without_citus_one_line_says_so_and_nothing_is_done(bare: StoreLocation) -> None:
    assert bare.url is not None
    url = bare.url.set(drivername="postgresql").render_as_string(hide_password=False)
    done = CliRunner().invoke(main, ["db", "init-fleet", url, "--citus"])
    assert done.exit_code == 1 and "has no Citus" in done.stderr and len(done.stderr.splitlines()) == 1
    assert ask(bare, "SELECT count(*) FROM pg_namespace WHERE nspname = 'telemetry'") == 0


def test_what_grows_is_spread_by_its_owner_and_what_is_looked_up_is_everywhere(bare: StoreLocation) -> None:
    change(bare, STAND_IN)
    init_fleet(bare, NOW, keep={"1m": 86_400, "1h": 30 * 86_400, "raw": 86_400}, distribute=True)
    with reading(bare, "telemetry").connect() as connection, connection.begin():
        rows = connection.execute(text("SELECT logicalrelid::text, owner, colocated FROM public.pg_dist_partition"))
        calls = {name: (owner, colocated) for name, owner, colocated in rows}
        keys = {
            table: set(columns)
            for table, columns in connection.execute(
                text(
                    "SELECT conrelid::regclass::text, array_agg(attname::text) FROM pg_constraint "
                    "JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey) "
                    "WHERE contype = 'p' GROUP BY conrelid"
                )
            )
        }
    everywhere = {name.partition(".")[2] for name, (owner, _) in calls.items() if owner is None}
    assert everywhere >= {"host", "device", "deployment", "epoch", "enrolment"}
    for each in TIMED:
        owner, colocated = calls[f"telemetry.{each.name}"]
        assert {owner, "ts"} <= keys[f"telemetry.{each.name}"], "a distributed key holds its distribution column"
        # Rows of one owner lie together, so that a join or a roll-up by it stays on one node.
        assert colocated == "none" or calls[colocated][0] == owner
    assert len(calls) == len(set(calls)) == len(TIMED) + len(everywhere)


def test_doing_it_again_spreads_nothing_twice(bare: StoreLocation) -> None:
    before = ask(bare, "SELECT count(*) FROM public.pg_dist_partition")
    init_fleet(bare, NOW, distribute=True)
    assert ask(bare, "SELECT count(*) FROM public.pg_dist_partition") == before
