"""Running one rule by hand."""

from typing import Any

from pertoken.rule import Rule, Skip
from tests.fleets import LLAMA_70B, MARKET, low_batch


def proposals(rule: Rule, **arguments: Any) -> list[Any]:
    """What a rule proposes with these arguments, and for the rest two requests at a time on a 70B."""
    known = {"seen": low_batch(), "now": LLAMA_70B, "market": MARKET} | arguments
    return list(rule(**{name: known[name] for name in rule.needs}))


def refusal(rule: Rule, **arguments: Any) -> str:
    """The reason of a rule that proposes nothing."""
    (only,) = proposals(rule, **arguments)
    assert isinstance(only, Skip)
    return only.reason
