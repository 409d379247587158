from pathlib import Path

import pytest

from pertoken import config
from pertoken.errors import BadInput
from tests.values import written


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
    ("text", "message"),
    [
        ("[agent]\ninterval = 0", r"pertoken\.toml: agent\.interval: must be at least 1s \(got 0\)"),
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
def test_a_bad_setting_is_one_line_naming_key_and_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        config.load(written(tmp_path, text), {})
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(BadInput, match="PERTOKEN_AGENT_INTERVAL: "):
        config.load(None, {"PERTOKEN_AGENT_INTERVAL": "soon", "PERTOKEN_CONFIG": ""})


def test_an_unknown_probe_is_refused_by_name_and_none_at_all_are_a_choice(tmp_path: Path) -> None:
    file = written(tmp_path, '[agent]\nprobes = ["nvidia", "tpu"]\n')
    with pytest.raises(BadInput, match=r"agent\.probes: 'tpu' is not a probe: there are nvidia, amd, gaudi") as raised:
        config.load(file, {})
    assert "\n" not in str(raised.value)
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
    with pytest.raises(BadInput, match=r"--interval: must be at least 1s \(got 0\)"):
        config.load(None, nowhere, agent_interval=0)
    with pytest.raises(BadInput, match=r"PERTOKEN_SHIP_EVERY: must be at least 1s \(got '0s'\)"):
        config.load(None, nowhere | {"PERTOKEN_SHIP_EVERY": "0s"})
    with pytest.raises(BadInput, match=r"ship\.every: must be at least 1s \(got 0\)"):
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
