import json
from pathlib import Path

from click.testing import CliRunner

from pertoken.cli import main
from pertoken.config import Settings
from tests.cli.builders import run


def test_settings_are_written_checked_and_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "sub" / "pertoken.toml")
    assert run("config", "init", "--config", file).output == f"Wrote {file}.\n"
    assert run("config", "init", "--config", file).exit_code == 2
    assert run("config", "check", "--config", file).output == f"{file}: good.\n"
    shown = json.loads(run("config", "show", "--config", file, "--json").stdout)
    assert shown["agent.interval"] == 10
    assert "agent.interval = 10" in run("config", "show", "--config", file).output


def test_options_of_an_unknown_rule_are_a_mistake_and_no_rule_is_loaded_for_this_check(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text("[rules.use-spott]\nmin_replicas = 3")
    done = run("config", "check", "--config", str(file))
    assert done.exit_code == 2
    assert f"{file}: rules.use-spott: no rule has this id (did you mean use-spot?)" in done.stderr
    (tmp_path / "rules.d").mkdir(mode=0o755)
    (tmp_path / "rules.d/mine.py").write_text("import os; os._exit(1)")  # it could hold that rule
    assert run("config", "check", "--config", str(file)).exit_code == 0


EVERYTHING = """
db = "postgresql://me:planted@127.0.0.1/x"
[agent]
interval = "20s"
access = [{url = "http://gw:4000", token_env = "GATEWAY_TOKEN"}]
otlp_endpoint = "http://me:planted@127.0.0.1:4318/v1/metrics?key=planted"
[delivery]
webhook = "https://hooks.example.com/planted"
smtp = "me:planted@mail.example.com:587"
[[gateways]]
url = "http://gw:4000"
kind = "litellm"
models = {gpt = "llama-70b"}
[tenants]
alpha = "search"
[services.chat]
models = ["llama-70b"]
[hosts.gpu-1]
purchase = "owned"
[[commitments]]
provider = "aws"
region = "us-east-1"
instance_type = "p5.48xlarge"
count = 2
usd_per_instance_hour = 40.0
end = "2027-01-31"
[rules.use-spot]
min_replicas = 3
[currency]
code = "EUR"
rates = [{date = "2026-11-01", per_usd = 0.87, source = "ECB"}]
[screens]
keys = {quit = "ctrl+q"}
[alerts.dear]
when = "usd_per_mtok > 2.5"
to = ["log", "https://hooks.example.com/?planted"]
"""


def test_every_setting_is_shown_also_as_json_with_its_origin_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text(EVERYTHING)
    done = CliRunner().invoke(
        main, ["config", "show", "--config", str(file), "--json"], env={"PERTOKEN_ENERGY_PUE": "1.5"}
    )
    assert done.exit_code == 0 and "planted" not in done.output, done.output
    values = json.loads(done.output)
    names = {key.name for key in Settings.table()}
    assert names | {"source", "set_by"} == set(values)
    assert values["gateways"] == [
        {"url": "http://gw:4000", "kind": "litellm", "models": {"gpt": "llama-70b"}, "users": False}
    ]
    assert values["tenants"] == [{"name": "alpha", "team": "search"}]
    assert values["alerts"][0]["to"] == ["log", "https://hooks.example.com/***"]
    assert values["currency.rates"][0]["source"] == "ECB" and values["commitments"][0]["count"] == 2
    assert values["set_by"]["energy.pue"] == "PERTOKEN_ENERGY_PUE"
    assert values["set_by"]["agent.interval"] == f"{file}: agent.interval" and "agent.probes" not in values["set_by"]
    text = run("config", "show", "--config", str(file)).stdout
    assert "planted" not in text and all(f"\n{name} = " in text for name in names)
    assert f"agent.interval = 20  # {file}: agent.interval" in text
