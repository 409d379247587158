"""Facts of the screens as values and text."""

import json

import pytest

from pertoken.cli.screens.top import SCREENS, text, values
from tests.tui.reports import FixedSource


def test_the_values_of_every_screen_are_json_by_its_name() -> None:
    shown = values(FixedSource(), SCREENS)
    assert tuple(shown) == SCREENS
    assert json.loads(json.dumps(shown)).keys() == shown.keys()
    savings = shown["savings"]
    assert isinstance(savings, dict) and savings["recommendations"] and shown["hours"] and shown["rules"]


@pytest.mark.parametrize("screen", SCREENS)
def test_the_text_of_each_screen_is_not_empty(screen: str) -> None:
    assert text(FixedSource(), screen, 120, 75.0).strip()
