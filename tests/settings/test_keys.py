"""Names of a setting, and the refusal of an unknown one."""

from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.settings.values import parsed, refuse_unknown

KEYS = {key.name: key for key in Settings.table()}
FILE = Path("pertoken.toml")


def test_a_key_has_its_name_in_the_file_the_environment_and_on_the_command_line() -> None:
    key = KEYS["agent.engines"]
    assert (key.section, key.key, key.environment, key.option) == (
        "agent",
        "engines",
        "PERTOKEN_AGENT_ENGINES",
        "--engine",
    )
    assert KEYS["advisor.every"].option == "--every"


def test_a_refused_value_names_the_place_where_it_was_set() -> None:
    with pytest.raises(BadInput, match=r"^--interval: .* \(got '7s'\)$"):
        parsed(KEYS["agent.interval"], "7s", "--interval")


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    keys = Settings.table()
    refuse_unknown({"agent": {"interval": 10}}, keys, FILE)
    with pytest.raises(BadInput, match=r"agent\.intervall: no such setting \(did you mean agent\.interval\?\)"):
        refuse_unknown({"agent": {"intervall": 10}}, keys, FILE)
    with pytest.raises(BadInput, match=r"agent: must be a section, written \[agent\]"):
        refuse_unknown({"agent": 10}, keys, FILE)
