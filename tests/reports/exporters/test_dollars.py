import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pertoken.config import Settings
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.exposition.server import MetricsServer
from pertoken.reports.exporters.dollars import WINDOW_S, Dollars, known_dollars
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from tests.browser import wait_for
from tests.llama import free_port
from tests.promtool import PROMETHEUS, PROMTOOL, complaints
from tests.reports.builders import END, recorded


def dollars(tmp_path: Path) -> Dollars:
    return Dollars(recorded(tmp_path / "db"), Settings(), now=lambda: END)


def values(page: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples}


def test_dollars_are_those_of_the_screens(tmp_path: Path) -> None:
    page = dollars(tmp_path)
    exposed, report = values(page.page()), fleet_report(open_store(locate(str(tmp_path / "db"))), WINDOW_S, END)
    assert report.nano_usd_per_mtok is not None and report.bill is not None
    assert exposed["pertoken_fleet_usd_per_mtok"] == report.nano_usd_per_mtok / 1e9 == exposed["pertoken_usd_per_mtok"]
    assert exposed["pertoken_fleet_window_usd"] == report.bill.paid / 1e9 and exposed["pertoken_store_readable"] == 1
    assert "pertoken_fleet_budget_spent_ratio" not in exposed, "what is not known has no sample"
    assert page.families() is page.families(), "one reading a minute"
    assert {family.name for family in page.families()} == {family.name for family in known_dollars()}


def test_without_a_database_only_that_is_said(tmp_path: Path) -> None:
    assert values(Dollars(locate(str(tmp_path)), Settings()).page()) == {"pertoken_store_readable": 0}


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool (Debian: prometheus)")
def test_promtool_finds_nothing_to_complain_of(tmp_path: Path) -> None:
    assert complaints(dollars(tmp_path).page()) == ""


@pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus (Debian: prometheus)")
def test_a_real_prometheus_scrapes_the_same_dollars(tmp_path: Path) -> None:
    page, token, port = dollars(tmp_path), tmp_path / "token", free_port()
    token.write_text("s3cret\n")
    server = MetricsServer(("127.0.0.1", 0), page.page, token_file=str(token))
    server.start()
    scrape = {"job_name": "pertoken", "scrape_interval": "1s", "authorization": {"credentials_file": str(token)}}
    target = [{"targets": [f"127.0.0.1:{server.port}"]}]
    config = tmp_path / "prometheus.yml"
    config.write_text(json.dumps({"scrape_configs": [{**scrape, "static_configs": target}]}))
    assert PROMETHEUS is not None
    command = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    query = urllib.parse.urlencode({"query": "pertoken_fleet_usd_per_mtok"})
    url = f"http://127.0.0.1:{port}/api/v1/query?{query}"

    def scraped() -> list[str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                return [sample["value"][1] for sample in json.load(reply)["data"]["result"]]
        except OSError:
            return []

    with subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as run:
        try:
            wait_for(lambda: bool(scraped()), "Prometheus to scrape")
            assert float(scraped()[0]) == values(page.page())["pertoken_fleet_usd_per_mtok"]
        finally:
            run.terminate()
            server.stop()
