"""Settings of services, hosts and commitments."""

import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from pertoken import config
from pertoken.cli import main
from pertoken.errors import BadInput
from pertoken.settings.fleet import (
    DEMANDS,
    HOST_PURCHASES,
    KNOBS,
    PLACEMENTS,
    QUALITY_FIELDS,
    CommitmentSettings,
    HostSettings,
    ServiceSettings,
)
from pertoken.state.deployment import PURCHASES, Placement, knobs
from pertoken.state.service import EDITABLE
from tests.values import written

FLEET = """
[services."chat"]
models = ["llama-70b", "llama-70b-v2"]
ttft_p95_ms = 500
min_replicas = 2
[services.code]
isolation = "tenant"
forbid = ["model", "region"]
quality_gate = true
quality_passed = ["weight_dtype=fp8", "output_len"]
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
        ServiceSettings(
            "code",
            ("code",),
            isolation="tenant",
            forbid=("model", "region"),
            quality_gate=True,
            quality_passed=("weight_dtype=fp8", "output_len"),
        ),
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
    ("text", "message"),
    [
        ("services = 3", r'services: must be tables by name, each written \[services\."NAME"\]'),
        ("[services.chat]\nmin_replicas = 0", r'"chat"\.min_replicas: must be a whole number of at least 1'),
        ("[services.chat]\nmin_replicas = true", r'"chat"\.min_replicas: must be a whole number'),
        ("[services.chat]\nreplicas = 2", r'"chat"\.replicas: no such key; there are models, min_replicas'),
        ("[services.chat]\nttft_p95_ms = -1", r'"chat"\.ttft_p95_ms: must be a number above 0'),
        ('[services.chat]\nisolation = "all"', r'"chat"\.isolation: must be one of tenant'),
        (
            '[services.chat]\nforbid = ["modle"]',
            r"forbid: 'modle' is nothing that can be forbidden: there are model, eng",
        ),
        ("[services.chat]\nforbid = true", r'"chat"\.forbid: must be a list of what may not change, such as'),
        ('[services.chat]\nquality_passed = ["tp=2"]', r"'tp=2': write FIELD=VALUE or FIELD; fields are model, weight"),
        ('[services.chat]\nquality_passed = "fp8"', r"quality_passed: must be a list of evaluated changes"),
        ('[services.chat]\nquality_gate = "yes"', r'"chat"\.quality_gate: must be true or false'),
        ('[advisor]\nforbid = ["all"]', r"advisor\.forbid: 'all' is nothing that can be forbidden"),
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
def test_a_bad_table_is_one_line_naming_table_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
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
        "forbid": [],
        "quality_passed": [],
    }
    assert shown["commitments"][0]["nano_usd_per_instance_hour"] == 30_123_456_789
    assert shown["rules"] == [{"rule_id": "use-spot", "options": {"min_discount": 0.3}}]


def test_ways_to_pay_for_a_host_are_those_of_a_placement() -> None:
    assert {*HOST_PURCHASES, "per_token"} == set(PURCHASES)


def test_fields_that_proposals_change_can_be_forbidden_or_evaluated() -> None:
    quality = {name for name, knob in knobs().items() if knob.risk == "quality"}
    assert set(KNOBS) == set(knobs())
    assert {*PLACEMENTS} - {"placement"} == {field.name for field in fields(Placement)} - {
        "devices_per_instance",
        "offer",
    }
    assert {*DEMANDS} - {"demand"} == set(EDITABLE)
    assert {*QUALITY_FIELDS} & set(KNOBS) == quality
    assert {field for field in QUALITY_FIELDS if field not in KNOBS} <= set(EDITABLE)
