"""One host's login writes anything within its rights: commands answer, name that host, and bill others alike."""

import json
import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Table

from pertoken.cli import main
from pertoken.config import Settings
from pertoken.errors import StoreError
from pertoken.migrations.fleet import init_fleet
from pertoken.reports.exporters import Dollars
from pertoken.store.central.functions import MAX_ROWS_OF_HOST, UNTIMED
from pertoken.store.central.server import enroll
from pertoken.store.connect.location import locate
from pertoken.store.query.read import MAX_DEPLOYMENTS
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.sync import Batch, Row, Session
from tests.fleet.servers import execute, host, login, scalar, shipper
from tests.fleet.test_report import price
from tests.postgres import server_url
from tests.store.central.test_functions import entered, everything

COMMANDS = (("top", "--once"), ("plan", "--since", "1h"), ("costs", "--hours", "2", "--by", "gpu", "--json"))
"""Each reads the same rows in its own way."""
MORE_COMMANDS = (
    ("advise", "--since", "1h"),
    ("advise", "--since", "1h", "--json"),
    ("costs", "--hours", "2"),
    ("costs", "--hours", "2", "--figures"),
    ("report", "--from", "2h", "--md"),
    ("report", "--from", "2h", "--html"),
    ("report", "--from", "2h", "--focus"),
    ("report", "--weekly"),
    ("doctor",),
)
OTHER_FORMS = ("--json", "--figures", "--html", "--focus")
"""Last words of commands of `MORE_COMMANDS` that read what another one reads, and write it in another form."""
MAX_OUTPUT = 1_000_000
DIGITS = "9" * 5_000
NAMES = ("good", "bad")
HOST_LINE = ("costs", "--hours", "2", "--by", "host", "--json")


class Attacked:
    """A fleet of two hosts, one of which is written by whoever has its login."""

    def __init__(self, url: str, rows: Mapping[Table, Sequence[Row]], session: Session) -> None:
        self.url, self.rows, self.session = url, rows, session
        self.good_line = self.line_of_good()

    def ship(self, table: Table, **values: Any) -> None:
        """Ship all rows of a table, with other values in some columns."""
        columns = table.c.keys()
        rows = [
            tuple(values.get(name, value) for name, value in zip(columns, row, strict=True)) for row in self.rows[table]
        ]
        self.session.send(Batch({table: list(rows)}, 0))

    def repair(self) -> None:
        """Ship all rows as they were, and forget what was refused. Bounds of a set are what they were first."""
        for table, rows in self.rows.items():
            if table in UNTIMED and table is not t.histogram_set:
                self.session.send(Batch({table: list(rows)}, 0))
        execute(locate(self.url), "DELETE FROM fleet.row_fault")

    def run(self, *arguments: str) -> Result:
        result = CliRunner().invoke(main, [*arguments, "--db", self.url])
        # A process of a command would end here, and its connections with it.
        execute(
            locate(self.url),
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' "
            "AND pid <> pg_backend_pid()",
        )
        if result.exit_code:
            raise AssertionError((arguments, result.output[-500:])) from result.exception
        assert len(result.output) < MAX_OUTPUT, (arguments, len(result.output))
        for char in ("\x1b", "\x07", "\u202e", "\u2066"):
            assert char not in result.output, (arguments, char)
        return result

    def line_of_good(self) -> Mapping[str, Any]:
        lines = json.loads(self.run(*HOST_LINE).stdout)
        (line,) = (line for line in lines if line["host"] == "good")
        assert line["usd"] > 0
        return dict(line)

    def check(self, commands: Sequence[tuple[str, ...]] = COMMANDS) -> None:
        """These commands answer and name the bad host; the other one costs what it did."""
        for arguments in commands:
            result = self.run(*arguments)
            assert "Values in rows of" in result.output, arguments
        assert self.line_of_good() == self.good_line


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    now = int(time.time()) // HOUR * HOUR  # the hour under way has no rows, so that its dollars do not grow
    with server_url(tmp_path_factory.mktemp("server")) as url:
        init_fleet(locate(url), now, keep={"1h": 60 * 86_400, "1m": 10 * 86_400, "raw": 86_400})
        price(locate(url))
        hosts = {}
        for name in NAMES:
            enroll(locate(url), name, 1)
            hosts[name] = host(tmp_path_factory.mktemp(name), host=name, minutes=70, end_ts=now, raw=True)
            shipper(hosts[name], login(url, name)).round()
        with login(url, "bad").connect() as connection:
            connection.autocommit = True
            yield Attacked(url, everything(hosts["bad"]), entered(connection, hosts["bad"]))


@pytest.fixture(autouse=True)
def repaired(fleet: Attacked) -> Iterator[None]:
    yield
    fleet.repair()


IMPOSSIBLE: Mapping[Table, Mapping[str, Sequence[Any]]] = {
    t.epoch: {
        "knobs": (
            f'{{"tp": {DIGITS}}}',
            f'{{"new": {DIGITS}, "list": [{DIGITS}]}}',
            '{"tp": 0, "dp": 0, "pp": 0}',
            '{"tp": "x", "dp": [1], "pp": {"a": 1}, "ep": 1.5}',
            '{"gpu_memory_utilization": 1e999, "tp": 1e308}',
            '{"kv_dtype": "\\u001b[2J", "rendezvous": "\\u202e", "driver_version": {}, "workload": [1]}',
            '{"tp":' + "[" * 50_000 + "]" * 50_000 + "}",
            json.dumps({f"k{n}": n for n in range(10_000)}),
        ),
        "start_ts": (-(2**63), 2**63 - 1),
        "engine_version": ("\x1b[2J", "v" * 5_000_000),
    },
    t.device: {
        "links": (f'{{"nvlink": {DIGITS}}}', '{"nvlink": [1, null, {}], "network": "x"}', '{"nvlink": [["a"]]}', "7"),
        "name": ("H100 " + "x" * 5_000_000, "\x1b[2J", ""),
        "power_limit_mw": (2**63 - 1, -1),
        "slot": (-5, 2**62),
        "part_1e6": (2**53, -1),
        "kind": ("\x1b", "unknown"),
    },
    t.host: {
        "region": ("\x1b]0;owned\x07", "\u202eeu", "r" * 5_000_000, ""),
        "cloud": ("\x1b[2J", "\u2066", " "),
        "purchase": ("stolen", "\x1b"),
        "interval_s": (0, 2**63 - 1, -1),
        "memory_bytes": (2**63 - 1, -1),
    },
    t.deployment: {
        "served_model": ("m" * 20_000_000, "\x1b[31m\u202e", ""),
        "model_path": ("\x1b", "/" * 1_000_000),
        "model_facts": ('{"params_total": 0, "n_layers": -1, "head_dim": "x"}', f'{{"params_total": {DIGITS}}}', "[]"),
    },
    t.engine: {"kind": ("\x1b[2J", ""), "base_url": ("\x1b" * 5_000, "u" * 5_000_000), "port": (-1, 2**53)},
    t.capability: {"reason": ("\x1b[2J", "r" * 5_000_000), "status": ("\x1b", "s" * 1_000_000)},
    t.event: {"message": ("\x1b[2J", "m" * 5_000_000), "count": (2**63 - 1, -1)},
}
"""Values by column; each round ships the next one of every column."""


@pytest.mark.parametrize("number", range(8))
def test_values_that_nothing_can_have_are_named_as_their_hosts_and_blind_nobody(fleet: Attacked, number: int) -> None:
    for table, columns in IMPOSSIBLE.items():
        fleet.ship(table, **{name: values[number % len(values)] for name, values in columns.items()})
    fleet.check(COMMANDS if number else (*COMMANDS, *MORE_COMMANDS))
    refused = (
        "SELECT count(*) FROM fleet.row_fault WHERE host_id IN (SELECT host_id FROM telemetry.host WHERE name = 'bad')"
    )
    assert scalar(locate(fleet.url), refused) >= len(IMPOSSIBLE) - 2


def test_the_exporter_and_the_mcp_server_name_the_host(fleet: Attacked) -> None:
    from pertoken.reports.mcp_server import Replies

    fleet.ship(t.host, region="\x1b]0;owned\x07", purchase="stolen")
    server = locate(fleet.url)
    assert re.search(r'pertoken_row_faults{host="bad"} [1-9]', Dollars(server, Settings()).page())
    replies = Replies(server, Settings())
    for reply in (replies.now(), replies.costs(2)):
        assert isinstance(reply["notes"], list)
        assert any("Values in rows of bad are not used" in note for note in reply["notes"]), reply


def test_a_host_name_of_5_mb_is_cut_and_named(fleet: Attacked) -> None:
    fleet.ship(t.host, name="n" * 5_000_000)
    fleet.check()
    assert scalar(locate(fleet.url), "SELECT max(length(name)) FROM telemetry.host") == 255


@pytest.mark.parametrize("column", ["busy_provenance", "whole_provenance"])
def test_a_provenance_that_is_none_is_not_stored(fleet: Attacked, column: str) -> None:
    for seconds in (60, HOUR):
        fleet.ship(t.deployment_rollup[seconds], **{column: 2**53, "revision": 10**6})
    fleet.check()
    refused = "SELECT reason FROM fleet.row_fault WHERE field = 'deployment_1h'"
    assert scalar(locate(fleet.url), refused) == "has values or times that are not possible"


def test_a_stored_provenance_that_is_none_is_the_least_certain_one(fleet: Attacked) -> None:
    rows = {60: "deployment_1m", HOUR: "deployment_1h"}
    for name in rows.values():
        execute(locate(fleet.url), f"UPDATE telemetry.{name} SET busy_provenance = {2**53}, whole_provenance = {2**40}")
    for arguments in COMMANDS:
        fleet.run(*arguments)
    for name in rows.values():
        execute(locate(fleet.url), f"UPDATE telemetry.{name} SET busy_provenance = NULL, whole_provenance = 0")


def test_a_flood_of_deployments_is_refused_with_the_number_that_a_host_may_have(fleet: Attacked) -> None:
    allowed = MAX_ROWS_OF_HOST["deployment"]
    rows = [(n, *fleet.rows[t.deployment][0][1:]) for n in range(10**6, 10**6 + allowed + 1)]
    with pytest.raises(psycopg.Error, match=f"a host may have {allowed} rows of deployment"):
        fleet.session.send(Batch({t.deployment: rows}, 0))
    for arguments in COMMANDS:
        fleet.run(*arguments)


def test_of_many_deployments_of_a_host_the_newest_are_read_and_the_rest_are_counted(fleet: Attacked) -> None:
    deployment, epoch = fleet.rows[t.deployment][0], fleet.rows[t.epoch][0]
    ids = range(10**6, 10**6 + MAX_ROWS_OF_HOST["deployment"] - 10)
    model = t.deployment.c.keys().index("served_model")
    flood = [(n, *deployment[1:model], f"{n} " + "m" * 240, *deployment[model + 1 :]) for n in ids]
    fleet.session.send(Batch({t.deployment: flood}, 0))
    fleet.session.send(Batch({t.epoch: [(n, n, *epoch[2:]) for n in ids]}, 0))
    owners = fleet.rows[t.deployment_rollup[HOUR]][0], fleet.rows[t.device_rollup[HOUR]][0]
    devices = range(2 * 10**6, 2 * 10**6 + 1_000)
    fleet.session.send(Batch({t.device: [(n, *fleet.rows[t.device][0][1:]) for n in devices]}, 0))
    fleet.session.send(Batch({t.deployment_rollup[HOUR]: [(n, *owners[0][1:]) for n in ids[:2_000]]}, 0))
    fleet.session.send(Batch({t.device_rollup[HOUR]: [(n, *owners[1][1:]) for n in devices]}, 0))
    gap = "denied", "r" * 500, "s" * 500, 0
    fleet.session.send(Batch({t.capability: [(n, f"metric {m}", *gap) for n in devices for m in range(5)]}, 0))
    fleet.check((*COMMANDS, *(command for command in MORE_COMMANDS if command[-1] not in OTHER_FORMS)))
    once = fleet.run("top", "--once").output
    assert f"the newest {MAX_DEPLOYMENTS} of a host are read" in once
    server = locate(fleet.url)
    execute(server, "DELETE FROM telemetry.epoch WHERE epoch_id BETWEEN 1000000 AND 2000000")
    execute(server, "DELETE FROM telemetry.deployment WHERE deployment_id BETWEEN 1000000 AND 2000000")
    execute(server, "DELETE FROM telemetry.device WHERE device_id BETWEEN 2000000 AND 3000000")
    execute(server, "DELETE FROM telemetry.capability WHERE owner_id BETWEEN 2000000 AND 3000000")


def any_value(column: Any, chance: random.Random) -> Any:
    """Return a value that the column's type allows, and that no agent ships."""
    if column.type.python_type is bool:
        return chance.random() < 0.5
    if column.type.python_type is int:
        limit = {"SMALLINT": 2**15, "INTEGER": 2**31}.get(str(column.type), 2**63)
        return chance.choice((0, 1, -1, limit - 1, -limit, min(limit - 1, 2**53), chance.randrange(-limit, limit)))
    texts = (
        "",
        " ",
        "\x1b[2J",
        "\u202e",
        "x" * 100_000,
        "[]",
        "{}",
        "null",
        '{"tp": 0}',
        f'{{"tp": {DIGITS}}}',
        "7",
        "é",
    )
    return chance.choice(texts)


MANY = bool(os.environ.get("PERTOKEN_MANY_ROWS"))
SEEDS = range(100 if MANY else 3)
"""Each ships up to 200 rows of each of some thirty tables."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_rows_of_every_table_within_a_hosts_rights_blind_nobody(fleet: Attacked, seed: int) -> None:
    chance = random.Random(seed)
    for table, rows in fleet.rows.items():
        changed = []
        for row in rows[:200]:
            values = dict(zip(table.c.keys(), row, strict=True))
            for column in table.columns:
                is_id = column.name.endswith("_id") and column.name != "boot_id" and column.name != "machine_id"
                if not is_id and chance.random() < 0.3:
                    values[column.name] = any_value(column, chance)
            if "revision" in values:
                values["revision"] = 10**6 + seed
            changed.append(tuple(values.values()))
        try:
            fleet.session.send(Batch({table: changed}, 0))
        except StoreError:  # of its own shipper: other values were stored than it sent
            pass
        except psycopg.Error as refused:  # a refused batch stores nothing
            assert refused.sqlstate is not None, refused
    for arguments in (*COMMANDS, *MORE_COMMANDS) if MANY or seed == 0 else COMMANDS:
        fleet.run(*arguments)
    assert fleet.line_of_good() == fleet.good_line
