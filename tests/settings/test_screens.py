"""Settings of the screens."""

import pytest

from pertoken.settings.fleet import THEMES, one_of, read_keys


def test_only_a_name_that_there_is_can_be_chosen() -> None:
    assert one_of(THEMES)("light") == "light"
    with pytest.raises(ValueError, match="must be one of dark, light, 16-colour"):
        one_of(THEMES)("solarized")


@pytest.mark.parametrize("table", ["s", ["s"], {"sort": 5}, {"sort": " "}, {"so rt": "s"}, {"sort": "x" * 41}])
def test_keys_are_a_table_of_actions(table: object) -> None:
    with pytest.raises(ValueError, match=r"must be|is not an action"):
        read_keys(table)
    assert read_keys({"sort": " f6 "}) == (("sort", "f6"),)
