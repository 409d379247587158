"""Choices of the person, from the settings."""

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.tui.options import options_of, setting_lines


def test_options_are_those_of_the_settings() -> None:
    found = options_of(Settings(screens_theme="light", screens_refresh=5.0, energy_usd_per_kwh=0.1, energy_pue=1.5))
    assert (found.theme, found.refresh_s, found.borders) == ("light", 5.0, "unicode")
    assert found.usd_per_kwh == pytest.approx(0.15)
    assert found.memory is not None and found.memory.name == "screens.json"
    assert options_of(Settings(screens_remember=False)).memory is None


def test_keys_that_clash_end_the_start_with_one_line() -> None:
    with pytest.raises(BadInput, match=r"screens\.keys: p is chosen for sort"):
        options_of(Settings(screens_keys=(("sort", "p"),)))


def test_every_setting_is_listed_with_its_meaning_and_without_a_secret() -> None:
    url = "postgresql://me:hidden@db.example.com/x"
    lines = setting_lines(Settings(db=url, ship_url=url, set_by={"db": "--db"}))
    assert [each.name for each in lines] == [each.name for each in Settings.table()]
    assert all(each.meaning for each in lines)
    assert "hidden" not in "".join(each.value for each in lines)
    assert lines[0].origin == "--db"
