"""Jobs beside repeated advice: only those that settings ask for."""

import contextlib
import http.client
import socket
import time
from pathlib import Path

import pytest

from pertoken.cli.advise import alert_jobs, exports, lake_jobs, team_pages
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.lake.manifest import LakeFiles
from pertoken.lake.reading import inventory
from pertoken.settings.alerts import read_alerts
from pertoken.store.connect.location import locate
from tests.lake.lakes import host
from tests.llama import free_port


def test_without_settings_only_default_alerts_are_evaluated_beside_advice(tmp_path: Path) -> None:
    where = locate(str(tmp_path))
    with exports(where, Settings()) as pushes:
        assert pushes == []
    assert [job.name for job in alert_jobs(where, Settings())] == ["alerts"]


def test_dollars_are_pushed_and_alerts_evaluated_beside_the_next_run(tmp_path: Path) -> None:
    where = locate(str(tmp_path))
    alerts = read_alerts({"dear": {"when": "usd_per_mtok[service=*] > 2.5", "for": "15m"}})
    settings = Settings(advisor_otlp_endpoint="http://127.0.0.1:9/v1/metrics", alerts=alerts)
    with exports(where, settings) as pushes:
        assert [(job.name, job.beside) for job in pushes] == [("metrics push", True)]
    assert [(job.name, job.beside) for job in alert_jobs(where, settings)] == [("alerts", True)]


def test_team_pages_are_served_while_the_advisor_runs_where_an_address_is_set(tmp_path: Path) -> None:
    where, port = locate(str(tmp_path)), free_port()
    with team_pages(where, Settings()), pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", port))
    with team_pages(where, Settings(advisor_pages_listen=("127.0.0.1", port))):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", "/none")
            assert connection.getresponse().status == 404
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", port))


def test_the_advisor_publishes_closed_hours_into_a_lake_where_one_is_set(tmp_path: Path) -> None:
    now = int(time.time()) // 3600 * 3600
    where = host(tmp_path / "db", end_ts=now).location
    assert lake_jobs(where, Settings()) == []
    url = str(tmp_path / "lake")
    (job,) = lake_jobs(where, Settings(advisor_lake_url=url, advisor_lake_cell="eu-1", advisor_lake_every=600.0))
    assert (job.name, job.every_s, job.beside) == ("lake", 600.0, True)
    job.work()
    assert [cell.name for cell in inventory(LakeFiles(url))] == ["eu-1"]
    for settings in (Settings(advisor_lake_url="ftp://x"), Settings(advisor_lake_url=url, advisor_lake_cell="a/b")):
        with pytest.raises(BadInput):
            lake_jobs(where, settings)
