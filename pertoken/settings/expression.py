"""Comparisons of a figure with a limit, as people write them for gates and alerts: `usd_per_mtok > 2.5`.

The grammar is one comparison; nothing is evaluated as code:

    comparison = figure [ "[" kind "=" target "]" ] operator number [ "%" ]
    operator   = ">" | ">=" | "<" | "<="
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pertoken.settings.owners import BASES, is_basis

MAX_LENGTH = 200
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
}
KINDS = ("fleet", "service", "model", "host")
"""What figures may be of, beside owners."""
_COMPARISON = re.compile(
    r"\s*(?P<figure>[a-z][a-z0-9_]*)\s*(?:\[(?P<scope>[^\]]*)\])?\s*(?P<operator>>=|<=|>|<)"
    r"\s*(?P<limit>-?[0-9]+(?:\.[0-9]+)?)\s*(?P<percent>%)?\s*"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The fleet, or the service, model, host or owner that a figure is of."""

    kind: str = "fleet"
    target: str = "*"
    """Name, or `*` for each."""

    def covers(self, name: str) -> bool:
        """Return whether a target is meant."""
        return self.target in ("*", name)

    def __str__(self) -> str:
        return self.kind if self.kind == "fleet" else f"{self.kind}={self.target}"


FLEET = Scope()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure, an operator and a limit."""

    figure: str
    operator: str
    limit: float
    scope: Scope | None = None
    """None: none was written."""

    def holds(self, value: float) -> bool:
        """Return whether the comparison is true of a value."""
        return OPERATORS[self.operator](value, self.limit)

    def __str__(self) -> str:
        scope = "" if self.scope is None else f"[{self.scope}]"
        return f"{self.figure}{scope} {self.operator} {self.limit:g}"


def read_comparison(text: object) -> Comparison:
    """Return the comparison that a text is. Raises ValueError with the accepted form."""
    match = _COMPARISON.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_LENGTH else None
    if match is None:
        raise ValueError("must compare a figure with a number, such as 'usd_per_mtok > 2.5' or 'idle_share >= 40%'")
    limit = float(match["limit"]) / (100 if match["percent"] else 1)
    scope = None if match["scope"] is None else read_scope(match["scope"])
    return Comparison(match["figure"], match["operator"], limit, scope)


def read_scope(text: object) -> Scope:
    """Return a scope: `fleet`, `service=chat`, `host=*`, `namespace=prod`. Raises ValueError with all forms."""
    kind, _, target = text.partition("=") if isinstance(text, str) else ("", "", "")
    kind, target = kind.strip(), target.strip()
    if (kind not in KINDS and not is_basis(kind)) or (kind == "fleet") == bool(target):
        raise ValueError(
            f"must be fleet, service=NAME, model=NAME, host=NAME or an owner ({', '.join(BASES)} or label:NAME, "
            "such as namespace=prod), with * for each"
        )
    return FLEET if kind == "fleet" else Scope(kind, target)
