"""The schema of code, migrations and stored databases is one, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from pertoken.advisor.present import present
from pertoken.catalog.market import load_market
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.errors import StoreError
from pertoken.migrations import _config, drift, upgrade
from pertoken.store.connect.location import GROUPS, StoreLocation, locate
from pertoken.store.connect.open import REVISIONS, open_store, revision, writing
from pertoken.store.write.writer import Writer
from pertoken.window.course import Subject, read_course
from pertoken.window.reading import weekly_power_w
from tests.postgres import server_url
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store, tick


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreLocation]:
    with server_url(tmp_path_factory.mktemp("postgres")) as url:
        yield locate(url)


@pytest.mark.parametrize("group", GROUPS)
def test_the_code_knows_every_revision_there_is(tmp_path: Path, group: str) -> None:
    with _config(locate(str(tmp_path)), group) as (config, _):
        scripts = ScriptDirectory.from_config(config)
        found = tuple(scripts.walk_revisions())
    assert tuple(each.revision for each in found)[::-1] == REVISIONS[group]
    for each in found:
        after = each.down_revision or ""
        assert f"Revision: {each.revision}, after {after}".strip() in each.longdoc.splitlines()


@pytest.mark.parametrize("group", GROUPS)
def test_migrated_sqlite_has_no_drift_from_the_code(tmp_path: Path, group: str) -> None:
    where = locate(str(tmp_path / "new"))
    assert upgrade(where, group) == (None, REVISIONS[group][-1])
    assert upgrade(where, group) == (REVISIONS[group][-1], REVISIONS[group][-1])
    assert drift(where, group) is None


@pytest.mark.parametrize("group", GROUPS)
def test_migrated_postgresql_has_no_drift_from_the_code(postgres: StoreLocation, group: str) -> None:
    assert upgrade(postgres, group) == (None, REVISIONS[group][-1])
    assert drift(postgres, group) is None


def test_postgresql_is_written_rolled_up_and_read_by_the_same_code(postgres: StoreLocation) -> None:
    for group in GROUPS:
        upgrade(postgres, group)
    with Writer(postgres) as writer:
        writer.commit(tick(10))
        writer.commit(tick(20))
        assert writer.roll_up() == 2
    with open_store(postgres).read() as connection:
        assert connection.execute(text("SELECT cpu_util_1e4_sum FROM telemetry.host_1h")).scalar() == 5000


def test_the_same_report_and_the_same_advice_come_from_postgresql(postgres: StoreLocation, tmp_path: Path) -> None:
    end, reports, evidence, power, courses = 1_790_000_400, [], [], [], []
    for where in (tmp_path, postgres):
        seeded = seed(where, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=90, end_ts=end)
        store = open_store(seeded)
        reports.append(replace(fleet_report(store, 3600, end), source=""))
        gathered = present(store, load_market(), 3600, end)
        evidence.append({key: dict(seen.items()) for key, seen in gathered.context.deployments.items()})
        with store.read() as connection:
            power.append(weekly_power_w(connection, gathered.fleet.device_ids))
            (host,) = gathered.fleet.hosts
            courses.append(read_course(connection, Subject("host", host.host_id), end - 3600, end).series)
    assert reports[0].deployments[0].nano_usd_per_mtok
    # At a server, *now* is the newest minutes that several hosts have shipped: a mean over more of them.
    lines = [[replace(each, running_now=None) for each in report.deployments] for report in reports]
    assert [lines[0], reports[0].bill] == [lines[1], reports[1].bill]
    assert evidence[0] == evidence[1]
    assert power[0] and power[0] == power[1]
    assert courses[0]["running"][-1] and courses[0] == courses[1]


def test_a_database_of_a_newer_pertoken_is_refused_and_left_alone(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with writing(where, "telemetry").connect() as connection, connection.begin():
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="written by a newer pertoken"):
        open_store(where)
    with pytest.raises(StoreError, match="written by a newer pertoken"):
        upgrade(where, "telemetry")
    assert revision(writing(where, "telemetry"), "telemetry") == "9999"


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o2775, 0o664), (0o750, 0o644)])
def test_a_database_is_written_by_the_group_that_may_write_its_folder(
    folder_mode: int, file_mode: int, tmp_path: Path
) -> None:
    folder = tmp_path / "advice"
    folder.mkdir()
    folder.chmod(folder_mode)
    where = locate(str(folder))
    for _ in range(2):  # as new, and as it is then
        upgrade(where, "advice")
        assert where.file("advice").stat().st_mode & 0o777 == file_mode
    with writing(where, "advice").connect() as connection:
        connection.execute(text("DELETE FROM price"))
        connection.commit()
        modes = {path.suffix: path.stat().st_mode & 0o777 for path in folder.glob("advice.db*")}
    assert set(modes.values()) == {file_mode}


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    where = locate("postgresql://someone:hush-hush@127.0.0.1:1/none")
    with pytest.raises(StoreError) as caught:
        open_store(where)
    assert "hush-hush" not in str(caught.value) + str(where)


def test_another_database_than_postgresql_is_refused() -> None:
    with pytest.raises(Exception, match="mysql is not supported"):
        locate("mysql://x@y/z")
