"""More time of a demo, with a change made: what the fleet does after somebody followed advice."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pertoken.demo.fleet import DrawnEngine
from pertoken.demo.making import HOUR_S, TICKS_M, Made, minutes_of, restore
from pertoken.demo.rows.buckets import Steps
from pertoken.demo.rows.identities import EngineRows, HostRows
from pertoken.demo.worth import resized
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import Tick
from pertoken.store.write.writer import Writer

MINUTE = 60
Knobs = Mapping[str, Any]


def advance(place: StoreLocation, made: Made, seconds: int, changes: Mapping[str, Knobs] | None = None) -> Made:
    """Write what a demo does in so many more seconds (whole minutes); return it as it then is.

    `changes`: by service, the knobs it runs with from now on. Raises StoreError.
    """
    start, end = made.span.end_ts, made.span.end_ts + seconds // MINUTE * MINUTE
    changed = changes or {}
    fleet = replace(
        made.fleet,
        engines=tuple(
            _changed(each, changed[name]) if (name := each.runs.served_model) in changed else each
            for each in made.fleet.engines
        ),
    )
    engines = [
        EngineRows(old.host, drawn, start, start) if old.drawn is not drawn else old
        for old, drawn in zip(made.engines, fleet.engines, strict=True)
    ]
    later = replace(made, fleet=fleet, engines=engines, span=replace(made.span, end_ts=end))
    with Writer(place) as writer:
        for host in made.hosts.values():
            _write(writer, host, [each for each in engines if each.host is host], later, start)
        writer.roll_up()
    return later


def _changed(drawn: DrawnEngine, knobs: Knobs) -> DrawnEngine:
    """Return an engine that runs with other knobs, and did nothing else before."""
    return replace(drawn, runs=resized(drawn.runs, knobs), before=None, stuck_h=0.0)


def _write(writer: Writer, host: HostRows, engines: list[EngineRows], made: Made, start: int) -> None:
    """Write one host: ticks up to the next hour, whole hours, and ticks of the last one."""
    end = made.span.end_ts
    first = min(end, -(-start // HOUR_S) * HOUR_S)
    last = max(first, (end - TICKS_M * MINUTE) // HOUR_S * HOUR_S)
    ticks = list(_ticks(host, engines, made, start, first))
    new = tuple(each.epochs[-1] for each in engines if each.start_ts == start)
    if ticks and new:
        ticks[0] = replace(ticks[0], epochs=new)
    writer.commit_all(ticks)
    if first < last:
        steps = Steps(np.arange(first, last, HOUR_S), HOUR_S)
        for table, rows in minutes_of(host, engines, made, steps).rows(HOUR_S):
            restore(writer, table, rows)
    after = list(_ticks(host, engines, made, last, end))
    if new and not ticks and after:
        after[0] = replace(after[0], epochs=new)
    writer.commit_all(after)


def _ticks(host: HostRows, engines: list[EngineRows], made: Made, start: int, end: int) -> Iterator[Tick]:
    if start >= end:
        return iter(())
    steps = Steps(np.arange(start, end, MINUTE), MINUTE)
    return minutes_of(host, engines, made, steps).ticks(engines, len(steps.ts))
