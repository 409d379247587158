"""Several hosts' data in one report: the same dollars as the hosts' own reports, together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Select, column, literal_column, select, table

from pertoken.cli import main
from pertoken.costs import lines
from pertoken.costs.lines import Money
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import FleetReport
from pertoken.errors import StoreError
from pertoken.migrations.fleet import init_fleet
from pertoken.store import repository
from pertoken.store.central.server import enroll
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.query.rollups import fetch, pipelined
from pertoken.store.repository import AdviceRepository
from pertoken.window.reading import Window
from pertoken.window.totals import Details, Recent
from tests.fleet.servers import NOW, host, login, shipper
from tests.postgres import server_url

HOSTS = ("report-a", "report-b", "report-c")

Rows = Sequence[tuple[int]]


def price(where: StoreLocation) -> None:
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector="H100",
            nano_usd_per_device_hour=6_880_000_000,
            from_ts=0,
            set_ts=0,
            set_by="x",
            note=None,
        )


def test_a_fleets_bill_is_the_sum_of_its_hosts_bills(tmp_path: Path) -> None:
    with server_url(tmp_path / "server") as url:
        owner = locate(url)
        init_fleet(owner, NOW, keep={"1m": 86_400, "1h": 30 * 86_400})
        enroll(owner, "relay", len(HOSTS))
        price(owner)
        hosts = [host(tmp_path / name, host=name, gpus=4, minutes=130) for name in HOSTS]
        for where in hosts:
            price(where)
            shipper(where, login(url, "relay")).round()
        for window_s in (3600, 7200):
            alone = [fleet_report(open_store(where), window_s, NOW) for where in hosts]
            compare(alone, fleet_report(open_store(owner), window_s, NOW))
            past = NOW - 1200
            alone = [fleet_report(open_store(where), window_s, past, dated=True) for where in hosts]
            then = fleet_report(open_store(owner), window_s, past, dated=True)
            compare(alone, then)
            assert [host.age_s for host in then.hosts] == [0] * len(HOSTS)
        advice = CliRunner().invoke(main, ["advise", "--db", url, "--since", "2h", "--json"])
        assert advice.exit_code == 0, advice.output


def test_a_refused_statement_is_a_one_line_error_whether_it_is_awaited_or_not(server: StoreLocation) -> None:
    store = open_store(server)
    nothing: Select[Any] = select(column("x")).select_from(table("not_there"))
    with pytest.raises(StoreError, match="not_there"), store.read() as connection:
        list(fetch(connection, nothing))
    with pytest.raises(StoreError, match="not_there"), store.read() as connection, pipelined(connection):
        first: Rows = fetch(connection, select(literal_column("1")))
        second: Rows = fetch(connection, nothing)
        assert list(first) == [(1,)]
        list(second)
    with store.read() as connection:  # and nothing of it is left behind
        assert list(fetch(connection, select(literal_column("2")))) == [(2,)]


def test_pipelined_results_are_known_when_the_reading_has_ended(server: StoreLocation) -> None:
    with open_store(server).read() as connection, pipelined(connection):
        rows: list[Rows] = [fetch(connection, select(literal_column(str(n)))) for n in range(3)]
        assert list(rows[1]) == [(1,)]
        rows.append(fetch(connection, select(literal_column("3"))))
    assert [list(row) for row in rows] == [[(n,)] for n in range(4)]


def test_latencies_are_asked_when_the_sums_have_arrived_and_awaited_when_the_bill_is_made(
    server: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def recent(window: Window) -> Recent:
        asked["recent"] = RECENT(window)
        return asked["recent"]  # type: ignore[no-any-return]

    def details(window: Window) -> Details:
        assert _arrived(asked["recent"]._newest)
        asked["details"] = DETAILS(window)
        return asked["details"]  # type: ignore[no-any-return]

    def allocations(*values: Any) -> Money:
        assert not _arrived(asked["details"].histograms)
        return ALLOCATIONS(*values)

    monkeypatch.setattr(Window, "recent", recent)
    monkeypatch.setattr(Window, "details", details)
    monkeypatch.setattr("pertoken.costs.bill.allocations", allocations)
    fleet_report(open_store(server), 3600, NOW)
    assert _arrived(asked["details"].histograms)


RECENT, DETAILS = Window.recent, Window.details
ALLOCATIONS = lines.allocations


def _arrived(fetch: Any) -> bool:
    return "_rows" in vars(fetch) or fetch._cursor.pgresult is not None


def compare(alone: list[FleetReport], together: FleetReport) -> None:
    bill = together.bill
    assert bill is not None and bill.paid == bill.busy + bill.idle + bill.other + bill.unallocated
    for part in ("paid", "busy", "idle", "other", "unallocated"):
        assert getattr(bill, part) == sum(getattr(line.bill, part) for line in alone), part
    assert together.nano_usd_per_mtok == alone[0].nano_usd_per_mtok  # hosts that do the same cost the same
    assert [host.name for host in together.hosts] == list(HOSTS)
    assert len(together.devices) == 4 * len(HOSTS) and len(together.deployments) == len(HOSTS)
    assert together.power_w == pytest.approx(sum(line.power_w or 0 for line in alone))
