import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from pertoken import config, config_file
from pertoken.cli import main
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.fleet_settings import HOST_PURCHASES, CommitmentSettings, HostSettings, ServiceSettings
from pertoken.state.placement import PURCHASES


def written(folder: Path, text: str) -> Path:
    file = folder / "pertoken.toml"
    file.write_text(text)
    return file


def test_the_environment_wins_over_the_file_and_an_option_over_both(tmp_path: Path) -> None:
    file = written(tmp_path, '[agent]\ninterval = "5s"\n[advisor]\nsince = "2h"\n')
    settings = config.load(file, {"PERTOKEN_AGENT_INTERVAL": "15s"}, agent_interval=None)
    assert (settings.agent_interval, settings.advisor_since) == (15, 7200.0)
    assert config.load(file, {"PERTOKEN_AGENT_INTERVAL": "15s"}, agent_interval="1s").agent_interval == 1


def test_a_file_named_by_the_environment_is_read_and_must_exist(tmp_path: Path) -> None:
    file = written(tmp_path, 'db = "/srv/tokens"')
    assert config.load(None, {"PERTOKEN_CONFIG": str(file)}).db == "/srv/tokens"
    with pytest.raises(BadInput, match="no such settings file"):
        config.load(tmp_path / "other.toml", {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[agent]\ninterval = 0", r"pertoken\.toml: agent\.interval: must be at least 1 s \(got 0\)"),
        ('[agent]\ninterval = "7s"', r"agent\.interval: must be whole seconds that divide a minute"),
        ("[agent]\nintervall = 10", r"agent\.intervall: no such setting \(did you mean agent\.interval\?\)"),
        ("[agents]\ninterval = 10", r"agents: no such setting"),
        ("agent = 3", r"agent: must be a section, written \[agent\]"),
        ('[agent]\nengines = ["ftp://x"]', r"agent\.engines: 'ftp://x' is not a base URL"),
        ("[agent]\ndiscover = 3", r"agent\.discover: must be true or false"),
        ("[slo]\nttft_ms = -5", r"slo\.ttft_ms: must be a number above 0"),
        ("db = 3", r"db: must be text"),
        ("x = [", r"not valid TOML"),
    ],
)
def test_a_bad_setting_is_one_line_naming_key_and_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        config.load(written(tmp_path, text), {})
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(BadInput, match="PERTOKEN_AGENT_INTERVAL: "):
        config.load(None, {"PERTOKEN_AGENT_INTERVAL": "soon", "PERTOKEN_CONFIG": ""})


def test_the_template_sets_nothing_and_names_every_key() -> None:
    text = config_file.template()
    assert tomllib.loads(text) in (
        {},
        {section: {} for section in ("agent", "ship", "store", "advisor", "market", "slo", "energy")},
    )
    for key in Settings.table():
        assert key.environment in text
        assert f"# {key.key} = " in text
    assert set(config_file.meanings()) >= {key.attribute for key in Settings.table()}


def test_every_example_in_the_template_is_a_good_setting(tmp_path: Path) -> None:
    lines = config_file.template().splitlines()
    uncommented = "\n".join(line.removeprefix("# ") if " = " in line else line for line in lines)
    settings = config.load(written(tmp_path, uncommented), {})
    assert settings.agent_engines == ("http://127.0.0.1:8000",)


def test_an_unknown_probe_is_refused_by_name_and_none_at_all_are_a_choice(tmp_path: Path) -> None:
    file = written(tmp_path, '[agent]\nprobes = ["nvidia", "tpu"]\n')
    with pytest.raises(BadInput, match=r"agent\.probes: 'tpu' is not a probe: there are nvidia, amd, gaudi") as told:
        config.load(file, {})
    assert "\n" not in str(told.value)
    assert config.load(None, {"PERTOKEN_AGENT_PROBES": ""}).agent_probes == ()


@pytest.mark.parametrize(
    ("text", "probes"),
    [("[]", ()), (" [ ] ", ()), ('["nvidia"]', ("nvidia",)), ('["amd", "gaudi"]', ("amd", "gaudi"))],
)
def test_a_list_in_the_environment_may_be_written_as_in_the_file(text: str, probes: tuple[str, ...]) -> None:
    environment = {"PERTOKEN_CONFIG": "", "PERTOKEN_AGENT_PROBES": text}
    assert config.load(None, environment).agent_probes == probes


def test_base_urls_in_the_environment_may_be_written_as_in_the_file() -> None:
    urls = '["http://gpu-1:8000", "http://gpu-2:8000/"]'
    settings = config.load(None, {"PERTOKEN_CONFIG": "", "PERTOKEN_AGENT_ENGINES": urls})
    assert settings.agent_engines == ("http://gpu-1:8000", "http://gpu-2:8000")
    assert config.load(None, {"PERTOKEN_CONFIG": "", "PERTOKEN_AGENT_ENGINES": "[]"}).agent_engines == ()


def test_half_a_list_in_the_environment_is_refused() -> None:
    with pytest.raises(BadInput, match="PERTOKEN_AGENT_PROBES: must be a list of probes"):
        config.load(None, {"PERTOKEN_CONFIG": "", "PERTOKEN_AGENT_PROBES": '["nvidia"'})


def test_zero_is_a_value_wherever_it_is_given_and_not_the_same_as_nothing(tmp_path: Path) -> None:
    nowhere = {"PERTOKEN_CONFIG": ""}
    with pytest.raises(BadInput, match=r"--interval: must be at least 1 s \(got 0\)"):
        config.load(None, nowhere, agent_interval=0)
    with pytest.raises(BadInput, match=r"PERTOKEN_SHIP_EVERY: must be at least 1 s \(got '0s'\)"):
        config.load(None, nowhere | {"PERTOKEN_SHIP_EVERY": "0s"})
    with pytest.raises(BadInput, match=r"ship\.every: must be at least 1 s \(got 0\)"):
        config.load(written(tmp_path, "[ship]\nevery = 0\n"), {})
    with pytest.raises(BadInput, match=r"slo\.ttft_ms: must be a number above 0 \(got 0\)"):
        config.load(written(tmp_path, "[slo]\nttft_ms = 0\n"), {})


def test_false_and_an_empty_list_are_values_and_win_over_what_comes_before(tmp_path: Path) -> None:
    file = written(tmp_path, '[agent]\ndiscover = false\nprobes = []\nengines = ["http://a:1"]\n')
    settings = config.load(file, {})
    assert (settings.agent_discover, settings.agent_probes) == (False, ())
    on = written(tmp_path, '[agent]\ndiscover = true\nengines = ["http://a:1"]\n')
    settings = config.load(on, {}, agent_discover=False, agent_engines=[])
    assert (settings.agent_discover, settings.agent_engines) == (False, ())
    assert config.load(on, {"PERTOKEN_AGENT_ENGINES": ""}).agent_engines == ()


FLEET = """
[services."chat"]
models = ["llama-70b", "llama-70b-v2"]
ttft_p95_ms = 500
min_replicas = 2
[services.code]
isolation = "tenant"
[hosts."gpu-1"]
provider = "aws"
purchase = "reserved"
paid_until = 2027-01-31
[[commitments]]
provider = "aws"
region = "us-east-1"
instance_type = "p5.48xlarge"
count = 2
usd_per_instance_hour = 30.123456789
end = "2027-01-31"
[rules.use-spot]
min_discount = 0.3
[energy]
usd_per_kwh = 0.12
"""


def test_services_hosts_and_commitments_are_tables_by_name(tmp_path: Path) -> None:
    settings = config.load(written(tmp_path, FLEET), {})
    assert settings.services == (
        ServiceSettings("chat", ("llama-70b", "llama-70b-v2"), ttft_p95_ms=500.0, min_replicas=2),
        ServiceSettings("code", ("code",), isolation="tenant"),
    )
    end = int(datetime(2027, 2, 1, tzinfo=UTC).timestamp())
    assert settings.hosts == (HostSettings("gpu-1", provider="aws", purchase="reserved", paid_until=end),)
    assert settings.commitments == (
        CommitmentSettings("aws", "p5.48xlarge", 2, 30_123_456_789, end, region="us-east-1"),
    )
    assert (settings.energy_usd_per_kwh, settings.energy_pue) == (0.12, 1.0)


def test_tables_are_set_by_the_environment_as_inline_toml() -> None:
    environment = {"PERTOKEN_CONFIG": "", "PERTOKEN_SERVICES": "{chat = {spare_replicas = 1}}"}
    assert config.load(None, environment).services == (ServiceSettings("chat", ("chat",), spare_replicas=1),)
    with pytest.raises(BadInput, match="PERTOKEN_SERVICES: must be tables as in TOML, on one line"):
        config.load(None, {**environment, "PERTOKEN_SERVICES": "{chat"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("services = 3", r'services: must be tables by name, each written \[services\."NAME"\]'),
        ("[services.chat]\nmin_replicas = 0", r'"chat"\.min_replicas: must be a whole number of at least 1'),
        ("[services.chat]\nmin_replicas = true", r'"chat"\.min_replicas: must be a whole number'),
        ("[services.chat]\nreplicas = 2", r'"chat"\.replicas: no such key; there are models, min_replicas'),
        ("[services.chat]\nttft_p95_ms = -1", r'"chat"\.ttft_p95_ms: must be a number above 0'),
        ('[services.chat]\nisolation = "all"', r'"chat"\.isolation: must be one of tenant'),
        ("[services.chat]\nmodels = []", r'"chat"\.models: must be a list of served model names'),
        ('[services.a]\nmodels = ["m"]\n[services.b]\nmodels = ["m"]', r'"b"\.models: m is a model of "a" already'),
        ('[hosts.gpu-1]\npurchase = "stolen"', r'"gpu-1"\.purchase: must be one of on_demand, spot, reserved, owned'),
        ('[hosts.gpu-1]\npaid_until = "soon"', r'"gpu-1"\.paid_until: must be a date such as 2027-01-31'),
        ("[[commitments]]\ncount = 1", "commitment 1: provider is missing"),
        ("rules = 3", r"rules: must be tables by rule id, each written \[rules\.ID\]"),
        ("[rules.use-spot]\nx = 2026-11-01", r"use-spot\.x: must be true or false, a number, text or a list of texts"),
        ("[advisor]\nrules = [3]", r"advisor\.rules: must be a list of files and folders"),
        ("[advisor]\nallow = 3", r"advisor\.allow: must be a list of distributions"),
        ("commitments = 3", r"commitments: must be a list of tables, each written \[\[commitments\]\]"),
        ("[energy]\npue = 0.5", r"energy\.pue: must be at least 1"),
    ],
)
def test_a_bad_table_is_one_line_naming_table_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        config.load(written(tmp_path, text), {})
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(tmp_path))


def test_settings_with_tables_are_shown(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["config", "show", "--config", str(written(tmp_path, FLEET)), "--json"])
    shown = json.loads(done.stdout)
    assert shown["services"][0] == {
        "name": "chat",
        "models": ["llama-70b", "llama-70b-v2"],
        "ttft_p95_ms": 500.0,
        "min_replicas": 2,
        "spare_replicas": 0,
    }
    assert shown["commitments"][0]["nano_usd_per_instance_hour"] == 30_123_456_789
    assert shown["rules"] == [{"rule_id": "use-spot", "options": {"min_discount": 0.3}}]


def test_ways_to_pay_for_a_host_are_those_of_a_placement() -> None:
    assert {*HOST_PURCHASES, "per_token"} == set(PURCHASES)
