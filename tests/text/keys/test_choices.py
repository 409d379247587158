"""Choices of the settings screen."""

from pertoken.settings.fleet import REFRESHES_S
from pertoken.text.keys import WINDOWS_S, KeyChoice, choices
from pertoken.units import parse_duration_s


def test_the_next_value_comes_after_the_last_again_and_one_of_the_file_leads_to_the_first() -> None:
    assert KeyChoice("theme", "light", ("dark", "light")).next == "dark"
    assert KeyChoice("refresh", "7s", ("1s", "2s")).next == "1s"


def test_every_offered_value_can_be_read_back() -> None:
    by_name = {choice.name: choice for choice in choices(("dark", "ascii", "NO_COLOR"), (2.0, 3600), "USD", {}, None)}
    assert [parse_duration_s(text) for text in by_name["refresh"].values] == list(REFRESHES_S)
    assert [parse_duration_s(text) for text in by_name["window"].values] == list(WINDOWS_S)
    assert by_name["currency"].values == ()
    assert "NO_COLOR" in by_name["theme"].note
