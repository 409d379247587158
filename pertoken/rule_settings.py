"""Settings of rules: the tables `[rules.ID]` as plain values, which a rule's own dataclass checks once it is loaded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Values that a person set for one rule: `[rules.quantize-weights]`."""

    rule_id: str
    options: dict[str, object]


def read_rules(value: object) -> tuple[RuleSettings, ...]:
    """Return the tables of a setting, by rule id.

    Raises ValueError for what is no table by id, or a value that no option can have.
    """
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError("must be tables by rule id, each written [rules.ID]")
    for rule_id, row in value.items():
        for key, each in row.items():
            texts = isinstance(each, list) and all(isinstance(item, str) for item in each)
            if not isinstance(each, bool | int | float | str) and not texts:
                raise ValueError(f"{rule_id}.{key}: must be true or false, a number, text or a list of texts")
    return tuple(RuleSettings(rule_id, dict(row)) for rule_id, row in value.items())
