import json
from pathlib import Path

import pytest

from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed
from tests.tenants import count, metric


def test_costs_are_printed_by_model_and_hour_as_text_json_and_csv(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=120, end_ts=NOW // 3600 * 3600)
    # Four hours hold both seeded ones, also when the hour turns between the import of this file and the command.
    text = run("costs", "--hours", "4", "--db", str(folder)).output
    assert "$/Mtok by hour" in text and f"{LOW_BATCH_70B.model[-10:]}  $19.11" in text
    lines = json.loads(run("costs", "--hours", "4", "--db", str(folder), "--json").stdout)
    assert [line["usd_per_mtok"] for line in lines] == [pytest.approx(2 * 6.88 / (3600 * 200) * 1e6, abs=1e-6)] * 2
    assert [line["usd"] for line in lines] == [13.76] * 2
    header, *rows = run("costs", "--hours", "4", "--db", str(folder), "--csv").output.splitlines()
    assert header == "model,hour,usd,tokens,usd_per_mtok,observed,estimated"
    assert [row.split(",")[2:4] for row in rows] == [["13.76", str(3600 * 200)]] * 2
    assert [row.split(",")[5:] for row in rows] == [["1.0", "False"]] * 2
    assert run("costs", "--hours", "0", "--db", str(folder)).exit_code == 2


@pytest.mark.parametrize(
    ("headline", "caption", "price"),
    [("generated", "$/gen Mtok", "$95.56"), ("per_request", "$/1k req", "$38.22"), ("good", "$/good Mtok", "–")],
)
def test_the_headline_of_the_settings_is_the_price_of_hours_hosts_and_models(
    tmp_path: Path, headline: str, caption: str, price: str
) -> None:
    folder, config = tmp_path / "db", tmp_path / "config.toml"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=NOW // 3600 * 3600)
    config.write_text(f'headline = "{headline}"\n', encoding="utf-8")
    given = ("costs", "--hours", "4", "--db", str(folder), "--config", str(config))
    for by in ((), ("--by", "host"), ("--by", "model")):
        text = run(*given, *by).output
        assert "$/Mtok" not in text
        assert price in text and caption in text if headline != "good" else "costs --figures" in text
    (line,) = json.loads(run(*given, "--by", "model", "--json").stdout)
    assert line["usd_per_mtok"] == pytest.approx(19.1111, abs=1e-3), "columns are named by their figure"
    gate = run(*given, "--fail-on", "usd_per_mtok > 20", "--json")
    assert gate.exit_code == 0, "a gate stays on the figure that it names"


def test_costs_by_host_and_by_service_have_a_row_for_each(tmp_path: Path) -> None:
    folder, config = tmp_path / "db", tmp_path / "config.toml"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=NOW // 3600 * 3600)
    config.write_text(f'[services."chat"]\nmodels = ["{LOW_BATCH_70B.model}"]\n', encoding="utf-8")
    given = ("costs", "--hours", "4", "--db", str(folder), "--config", str(config))
    (host,) = json.loads(run(*given, "--by", "host", "--json").stdout)
    assert (host["usd"], host["tokens"], host["devices"]) == (13.76, 3600 * 200, 2)
    text = run(*given, "--by", "host").output
    assert text.startswith("Hosts, last 4 hours of the clock (UTC)\n") and f"{host['host']}  $19.11" in text
    header, row = run(*given, "--by", "host", "--csv").output.splitlines()
    assert header == "host,devices,unpriced_devices,usd,tokens,usd_per_mtok" and row.startswith(
        f"{host['host']},2,0,13.76"
    )
    (service,) = json.loads(run(*given, "--by", "service", "--json").stdout)
    assert (service["service"], service["usd"]) == ("chat", 13.76)
    header, row = run(*given, "--by", "service", "--csv").output.splitlines()
    assert header.startswith("service,hour,") and row.startswith("chat,")


def test_costs_by_tenant_are_text_json_and_csv_and_teams_come_from_the_settings(tmp_path: Path) -> None:
    end = NOW // 3600 * 3600
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=end)
    word = {"model": LOW_BATCH_70B.model, "key": "alpha-prod"}
    count(where, end - 1800, {metric("prompt", **word): 1800 * 160, metric("generated", **word): 1800 * 40})
    settings = tmp_path / "pertoken.toml"
    settings.write_text('[tenants]\nalpha-prod = "search"\n')
    by = ("costs", "--hours", "3", "--by", "team", "--db", str(tmp_path / "db"), "--config", str(settings))
    text = run(*by).output
    assert [line.split()[:3] for line in text.splitlines()[2:5]] == [
        ["search", "$6.88", "50.0%"],
        ["unattributed", "$6.88", "50.0%"],
        ["together", "$13.76", "100.0%"],
    ]
    lines = json.loads(run(*by, "--json").stdout)
    assert [(line["team"], line["usd"], line["tokens"]) for line in lines] == [
        ("search", 6.88, 1800 * 200),
        (None, 6.88, 1800 * 200),
    ]
    assert (
        run(*by, "--csv").output.splitlines()[1]
        == f"team,search,search,,,6.88,{1800 * 200},19.111111111,,72000,0,0,0,0.0,False,"
    )


def test_costs_in_a_configured_currency_have_its_rate_date_and_source(tmp_path: Path) -> None:
    folder, settings = tmp_path / "db", tmp_path / "pertoken.toml"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=NOW // 3600 * 3600)
    settings.write_text(
        '[currency]\ncode = "EUR"\nrates = [{date = 2020-01-01, per_usd = 0.5, source = "ECB reference rate"}]\n'
    )
    given = ("costs", "--hours", "4", "--db", str(folder), "--config", str(settings))
    by_hour, by_host = run(*given).output, run(*given, "--by", "host").output
    assert "€ per Mtok" in by_hour and "€9.56" in by_hour and "€6.88" in by_host
    for text in (by_hour, by_host):
        assert text.endswith("Amounts are in EUR: 0.5 per USD, 2020-01-01, ECB reference rate.\n") and "$" not in text
    (host,) = json.loads(run(*given, "--by", "host", "--json").stdout)
    assert host["usd"] == 13.76
    assert host["currency"] == {
        "code": "EUR", "per_usd": 0.5, "date": "2020-01-01", "source": "ECB reference rate",
    }  # fmt: skip
    settings.write_text('[currency]\ncode = "EUR"\n')
    unknown = run(*given).output
    assert "No amount is shown: currency.rates has no rate of EUR" in unknown and "9.56" not in unknown
    assert "$19.11" in run("costs", "--hours", "4", "--db", str(folder)).output
