"""Claims of the field about the cost of serving, each with its source and how it is checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache

from pertoken.catalog.offers import toml_table

CHECKS = ("forecast", "offer", "arithmetic", "measurement", "not checkable")


@dataclass(frozen=True, slots=True)
class Reference:
    """Deployment and load that a claim is checked on where no fleet is given."""

    words: str
    model: str
    accelerator: str
    tp: int
    weights: str
    prompt: float
    output: float
    running: float
    acceptance: float | None = None
    """Chance that a drafted token is accepted; None where nothing is drafted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. Its verdict is computed, never stored."""

    id: str
    topic: str
    text: str
    check: str
    """One of `CHECKS`."""
    why: str
    """The reason for what holds, or why it cannot be checked."""
    source: str
    as_of: date
    claimed: tuple[float, float] | None = None
    """Range of the claimed figure in `unit`; None where it is not checkable."""
    unit: str = ""
    """`less` (share of the cost that falls away), `times`, or a unit of its own."""
    references: tuple[str, ...] = ()
    """Of a forecast: names of references, each of which is one case."""
    figure: str = "rate"
    """Of a forecast: `rate` (tokens/s), `cost` (of a token), `latency` (per output token), `first token`, `sequences`
    (that fit), `speed` (tokens/s of two forecasts, for changes that no one measured together), or
    `tokens/s` after the change, no ratio."""
    before: Mapping[str, object] = field(default_factory=dict)
    """Of a forecast: knobs and load before; of an offer: device and purchase before."""
    after: Mapping[str, object] = field(default_factory=dict)
    cases: Mapping[str, str] = field(default_factory=dict)
    """Of arithmetic: expressions over the catalog, by words of the case."""
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of a measurement: published ranges, by words of the case with their source."""
    rules: tuple[str, ...] = ()
    """Rules that would realise it on a fleet."""

    def about(self, word: str) -> bool:
        """Return whether a word is in its id, topic or text."""
        return word.casefold() in " ".join((self.id, self.topic, self.text)).casefold()

    def mentions(self, word: str) -> bool:
        """Return whether it is about a word, or names a rule with it."""
        return self.about(word) or word.casefold() in " ".join(self.rules)


@cache
def references() -> Mapping[str, Reference]:
    """Return the reference deployments by name."""
    return {name: Reference(**row) for name, row in toml_table("claims.toml")["references"].items()}


@cache
def claims() -> tuple[Claim, ...]:
    """Return every claim in the order of the table."""
    table = toml_table("claims.toml")
    sources = {key: {"as_of": row["as_of"], "source": row["words"]} for key, row in table["sources"].items()}
    return tuple(Claim(**row | sources[row["source"]]) for row in table["claims"])
