"""Readings that adapters make of captured pages, or of pages written with the engines' names."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.engines.adapters.adapter import Adapter, EngineIdentity
from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.readings import EngineReading, HistogramReading
from pertoken.agent.rows.counters import advance, word_totals
from pertoken.agent.scrape import MetricsPage, parse
from tests.agent.values import ENDPOINT

CAPTURES = Path(__file__).parents[1] / "captures"


def page(kind: str, name: str) -> MetricsPage:
    return parse((CAPTURES / f"{name}.prom").read_bytes(), ADAPTERS[kind].wanted)


def read_page(adapter: Adapter, metrics_page: MetricsPage) -> EngineReading:
    """Return what an adapter reads of a page, without histograms."""
    counters, gauges = adapter.counters_of(metrics_page), adapter.gauges_of(metrics_page)
    return EngineReading(replace(ENDPOINT, kind=adapter.kind), counters=counters, gauges=gauges)


def values(kind: str, name: str) -> EngineReading:
    return read_page(ADAPTERS[kind], page(kind, name))


def histograms(kind: str, name: str) -> dict[str, HistogramReading]:
    return ADAPTERS[kind].histograms_of(page(kind, name))


def growth(kind: str, before: str, after: str) -> dict[str, int | None]:
    first, second = values(kind, before), values(kind, after)
    states = advance({}, first.counters, owner_id=1, life=5, ts=1, from_zero=False, elapsed_s=60).states
    taken = advance(states, second.counters, owner_id=1, life=5, ts=2, from_zero=False, elapsed_s=60)
    assert taken.complete
    return tokens(word_totals(taken.deltas))


def identity(kind: str, name: str, replies: Mapping[str, str]) -> EngineIdentity:
    def ask(path: str) -> object:
        return json.loads((CAPTURES / replies[path]).read_text()) if path in replies else None

    return ADAPTERS[kind].identify(ask, page(kind, name))


def read_one(reader: EngineReader, *, latencies: bool = True) -> EngineReading:
    """Return the reading of an engine of one model."""
    (reading,) = reader.read(latencies=latencies)
    return reading
