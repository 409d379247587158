"""The settings file that is written for a person."""

import tomllib
from pathlib import Path

from pertoken import config
from pertoken.config import Settings
from tests.values import written


def test_the_template_sets_nothing_and_names_every_key() -> None:
    text = config.template()
    assert tomllib.loads(text) == {key.section: {} for key in Settings.table() if key.section}
    for key in Settings.table():
        assert key.environment in text
        assert f"# {key.key} = " in text
    assert set(config.meanings()) >= {key.attribute for key in Settings.table()}


def test_every_example_in_the_template_is_a_good_setting(tmp_path: Path) -> None:
    lines = config.template().splitlines()
    uncommented = "\n".join(line.removeprefix("# ") if " = " in line else line for line in lines)
    settings = config.load(written(tmp_path, uncommented), {})
    assert settings.agent_engines == ("http://127.0.0.1:8000",)
