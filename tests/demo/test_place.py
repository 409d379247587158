"""Places of demos: in an empty database or in place of an earlier demo, in a folder or on a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, func, select, update
from sqlalchemy.schema import CreateSchema

from pertoken.costs.report.fleet_report import fleet_report
from pertoken.demo.live import Live
from pertoken.demo.making import make
from pertoken.demo.place import clear, refuse_real, settings_folder
from pertoken.errors import BadInput
from pertoken.migrations import upgrade
from pertoken.migrations.fleet import init_fleet
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store, writing
from pertoken.store.schema import telemetry as t
from pertoken.store.write.writer import Writer
from tests.demo.made import END, demo
from tests.postgres import server_url
from tests.scenario import HEALTHY_70B, seed

SEED, HOSTS, DAYS = 3, 2, 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreLocation]:
    """A server's database with a demo."""
    with server_url(tmp_path_factory.mktemp("demo")) as url:
        where = locate(url)
        refuse_real(where)
        clear(where)
        make(where, SEED, HOSTS, DAYS, END)
        yield where


def test_a_database_of_real_hosts_is_refused_and_a_demo_is_not(tmp_path: Path) -> None:
    real = seed(tmp_path / "real", HEALTHY_70B, gpus=2, usd_per_hour=None, minutes=2, end_ts=END)
    with pytest.raises(BadInput, match="telemetry of real hosts"):
        refuse_real(real)
    where, _ = demo(tmp_path / "demo")
    refuse_real(where)
    refuse_real(locate(str(tmp_path / "empty")))


def test_a_demo_on_a_server_has_the_figures_of_one_in_a_folder(server: StoreLocation, tmp_path: Path) -> None:
    folder = locate(str(tmp_path))
    make(folder, SEED, HOSTS, DAYS, END)
    of_server, of_folder = (fleet_report(open_store(where), 86_400 * DAYS, END) for where in (server, folder))
    assert of_server.bill == of_folder.bill and of_server.bill is not None and of_server.bill.paid > 0
    assert of_server.nano_usd_per_mtok == of_folder.nano_usd_per_mtok is not None
    assert [engine.model for engine in of_server.deployments] == [engine.model for engine in of_folder.deployments]


def test_a_demo_on_a_server_is_continued_and_replaced_by_the_next(server: StoreLocation) -> None:
    refuse_real(server)
    clear(server)
    made = make(server, SEED + 1, HOSTS, DAYS, END)
    live = Live(server, made, lambda: END + 25.0)
    with Writer(server) as writer:
        live.step(writer)
    with open_store(server).read() as connection:
        after = t.host_sample.c.ts > END
        assert connection.execute(select(func.count()).select_from(t.host_sample).where(after)).scalar() == 2 * HOSTS
        assert connection.execute(select(func.count()).select_from(t.host)).scalar() == HOSTS
    assert fleet_report(open_store(server), 3600, END + 5).source.startswith("generated demo, ")


def test_a_server_with_anything_but_a_demo_is_refused_and_left_alone(server: StoreLocation) -> None:
    """In this order: a real host beside demos, no host, schemas of somebody else, a fleet's server."""
    with writing(server, "telemetry").begin() as connection:
        host_id = connection.execute(select(func.min(t.host.c.host_id))).scalar()
        real = update(t.host).where(t.host.c.host_id == host_id).values(machine_id="4711", name="gpu-real")
        connection.execute(real)
    with pytest.raises(BadInput, match=r"holds telemetry of real hosts \(gpu-real\); give the demo an empty database"):
        refuse_real(server)
    clear(server)
    upgrade(server, "telemetry")
    with pytest.raises(BadInput, match="is set up for real hosts"):
        refuse_real(server)
    clear(server)
    refuse_real(server)
    foreign = Table("orders", MetaData(schema="advice"), Column("id", Integer))
    with writing(server, "advice").begin() as connection:
        connection.execute(CreateSchema("advice"))
        foreign.create(connection)
    with pytest.raises(BadInput, match="its schema advice has tables that are not pertoken's"):
        refuse_real(server)
    clear(server)
    init_fleet(server, END)
    with pytest.raises(BadInput, match="is set up for real hosts"):
        refuse_real(server)


def test_settings_of_a_demo_on_a_server_lie_in_a_folder_of_the_users_own(
    server: StoreLocation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert settings_folder(server) == tmp_path / "pertoken" / "demo-server"
    assert settings_folder(locate(str(tmp_path))) == tmp_path
