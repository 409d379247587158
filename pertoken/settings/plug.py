"""Settings of energy: what measures a server at its plug, and the carbon of the grid."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

KINDS = ("ipmi", "redfish", "prometheus")
"""Kinds of sources, as `agent.host.plug` reads them."""
_GRID = re.compile(r"(\d+(?:\.\d+)?) g/kWh, (.+), (\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True)
class PlugSource:
    """What measures the power of this host's server at its plug."""

    kind: str
    url: str = ""
    query: str = ""
    """PromQL of kind `prometheus`."""

    @property
    def shown(self) -> str:
        """Kind and URL."""
        return f"{self.kind} {self.url}".strip()


def read_plug_sources(texts: Iterable[str]) -> tuple[PlugSource, ...]:
    """Return sources in their order. Raises ValueError."""
    sources = []
    for text in texts:
        kind, _, rest = text.strip().partition(" ")
        url, _, query = rest.strip().partition(" ")
        complete = {"ipmi": not rest, "redfish": bool(url and not query), "prometheus": bool(query.strip())}
        if not complete.get(kind):
            raise ValueError(f"{kind[:20]!r} is not one of: ipmi | redfish URL | prometheus URL QUERY")
        sources.append(PlugSource(kind, url, query.strip()))
    return tuple(sources)


@dataclass(frozen=True, slots=True)
class Grid:
    """Carbon intensity of the electricity that is used."""

    g_per_kwh: float
    """Grams of CO2 equivalent."""
    source: str
    as_of: str


def read_grid(value: object) -> Grid:
    """Return the intensity with its source and date. Raises ValueError."""
    match = _GRID.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be as in: 363 g/kWh, Ember for Germany in 2024, 2025-01-23")
    date.fromisoformat(match[3])
    return Grid(float(match[1]), match[2].strip(), match[3])
