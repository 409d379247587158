"""A demo that is continued past its end, with changes of its services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from pertoken.demo.fleet import DrawnEngine, Knobs, resized
from pertoken.demo.making import HOUR_S, TICKS_M, Demo, minutes_of, restore
from pertoken.demo.rows import BucketSteps, EngineRows, HostRows
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.rows import Tick
from pertoken.store.write.writer import Writer

MINUTE = 60


def advance(location: StoreLocation, demo: Demo, seconds: int, changes: Mapping[str, Knobs] | None = None) -> Demo:
    """Write the rows of further `seconds` (whole minutes) of a demo; return the demo at its new end.

    `changes`: by service, its knobs from now on. Raises StoreError.
    """
    start, end = demo.interval.end_ts, demo.interval.end_ts + seconds // MINUTE * MINUTE
    changed = changes or {}
    fleet = replace(
        demo.fleet,
        engines=tuple(
            _changed(engine, changed[name]) if (name := engine.runs.served_model) in changed else engine
            for engine in demo.fleet.engines
        ),
    )
    engines = [
        EngineRows(old.host, drawn, start, start) if old.drawn is not drawn else old
        for old, drawn in zip(demo.engines, fleet.engines, strict=True)
    ]
    later = replace(demo, fleet=fleet, engines=engines, interval=replace(demo.interval, end_ts=end))
    with Writer(location) as writer:
        for host in demo.hosts.values():
            _write(writer, host, [engine for engine in engines if engine.host is host], later, start)
        writer.roll_up()
    return later


def _changed(drawn: DrawnEngine, knobs: Knobs) -> DrawnEngine:
    return replace(drawn, runs=resized(drawn.runs, knobs), previous_runs=None, stuck_h=0.0)


def _write(writer: Writer, host: HostRows, engines: list[EngineRows], demo: Demo, start: int) -> None:
    """Write one host: ticks up to the next hour, whole hours, and ticks of the last one."""
    end = demo.interval.end_ts
    first = min(end, -(-start // HOUR_S) * HOUR_S)
    last = max(first, (end - TICKS_M * MINUTE) // HOUR_S * HOUR_S)
    ticks = list(_ticks(host, engines, demo, start, first))
    new = tuple(engine.epochs[-1] for engine in engines if engine.start_ts == start)
    if ticks and new:
        ticks[0] = replace(ticks[0], epochs=new)
    writer.commit_all(ticks)
    if first < last:
        steps = BucketSteps(np.arange(first, last, HOUR_S), HOUR_S)
        for table, rows in minutes_of(host, engines, demo, steps).rows(HOUR_S):
            restore(writer, table, rows)
    after = list(_ticks(host, engines, demo, last, end))
    if new and not ticks and after:
        after[0] = replace(after[0], epochs=new)
    writer.commit_all(after)


def _ticks(host: HostRows, engines: list[EngineRows], demo: Demo, start: int, end: int) -> Iterator[Tick]:
    if start >= end:
        return iter(())
    steps = BucketSteps(np.arange(start, end, MINUTE), MINUTE)
    return minutes_of(host, engines, demo, steps).ticks(engines)
