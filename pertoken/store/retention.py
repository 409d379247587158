"""Deleting old telemetry, resolution by resolution, in small steps that neither a tick nor a full disk minds."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.store.rollup import HOUR, MINUTE, ROLLUPS
from pertoken.store.seal import SAMPLES, SEALED, Sealed
from pertoken.store.write import Writer


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds after which ticks, 1-min and 1-h roll-ups are deleted."""

    raw_s: int
    minutes_s: int
    hours_s: int


def purging(writer: Writer, ages: Ages, now_ts: int) -> Iterator[int]:
    """Delete what is older than `ages`, an hour's ticks or minutes or a day's hours of one table at each step.

    Yields the rows each step deleted. Every row deleted is in its roll-up: those are brought up to date first.
    """
    writer.roll_up()
    # A bucket is recomputed from all rows below it, so they go only by whole hours.
    raw_before = (now_ts - ages.raw_s) // HOUR * HOUR
    writer.delete_batches(raw_before)
    for tables, before in (
        (SAMPLES, raw_before),
        (_resolution(MINUTE), now_ts - ages.minutes_s),
        (_resolution(HOUR), now_ts - ages.hours_s),
    ):
        for sealed in tables:
            while (deleted := writer.delete_oldest(sealed, before)) is not None:
                yield deleted


def purge(writer: Writer, ages: Ages, now_ts: int) -> int:
    """Delete all that is older than `ages`; returns the rows deleted."""
    return sum(purging(writer, ages, now_ts))


def _resolution(seconds: int) -> list[Sealed]:
    return [SEALED[each.tables[seconds].name] for each in ROLLUPS]
