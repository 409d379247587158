"""Options of the screens, from the settings."""

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.tui.options import options_of, setting_lines


def test_options_are_those_of_the_settings() -> None:
    options = options_of(Settings(screens_theme="light", screens_refresh=5.0, energy_usd_per_kwh=0.1, energy_pue=1.5))
    assert (options.theme, options.refresh_s, options.borders) == ("light", 5.0, "unicode")
    assert options.usd_per_kwh == pytest.approx(0.15)
    assert options.memory is not None and options.memory.name == "screens.json"
    assert options_of(Settings(screens_remember=False)).memory is None


def test_keys_that_clash_end_the_start_with_one_line() -> None:
    with pytest.raises(BadInput, match=r"screens\.keys: p is chosen for sort"):
        options_of(Settings(screens_keys=(("sort", "p"),)))


def test_every_setting_is_listed_with_its_meaning_and_without_a_secret() -> None:
    url = "postgresql://me:hidden@db.example.com/x"
    lines = setting_lines(Settings(db=url, ship_url=url, set_by={"db": "--db"}))
    assert [line.name for line in lines] == [line.name for line in Settings.table()]
    assert all(line.meaning for line in lines)
    assert "hidden" not in "".join(line.value for line in lines)
    assert lines[0].origin == "--db"
