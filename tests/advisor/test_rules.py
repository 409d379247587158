from types import SimpleNamespace

import pytest

from pertoken.advisor.rules import rules_of
from pertoken.rule import (
    Rule,
)


def test_a_rule_made_without_its_decorator_is_checked_when_it_is_loaded() -> None:
    made = Rule("NO ID\ud800", lambda: (), (5, "colour"), "", {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use lower-case words"):
        rules_of(SimpleNamespace(made=made))
