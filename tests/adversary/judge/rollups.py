"""Roll-ups hold exactly the sums of the rows below them, all of them, once the agent stopped."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.adversary.judge.finding import Finding

_DEVICE = ("duration_ms", "observed_ms", "energy_counter_mj", "energy_integral_mj")
_DEPLOYMENT = (
    "duration_ms",
    "observed_ms",
    "busy_ms",
    "prompt_tokens",
    "cached_tokens",
    "computed_tokens",
    "generated_tokens",
)
_TABLES = (
    ("host", ("host_id",), ("duration_ms", "observed_ms")),
    ("device", ("device_id",), _DEVICE),
    ("deployment", ("epoch_id",), _DEPLOYMENT),
)
_Sums = dict[Any, list[int | None]]
"""By the key of a bucket, which ends with its time: the sum of each column; None where no row has a value."""


def findings(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Yield differences between minutes and ticks, and between hours and minutes; and what is left to be done."""
    held = _quarantined(connection)
    for name, keys, columns in _TABLES:
        ticks = _sums(connection, f"{name}_sample", keys, columns, lambda ts: (ts - 1) // 60 * 60)
        minutes = _sums(connection, f"{name}_1m", keys, columns, lambda ts: ts)
        yield from _differences(f"{name}_1m", ticks, minutes, held)
        hours = _sums(connection, f"{name}_1h", keys, columns, lambda ts: ts)
        above = _sums(connection, f"{name}_1m", keys, columns, lambda ts: ts // 3600 * 3600)
        yield from _differences(f"{name}_1h", above, hours, held)
    shares = defaultdict[Any, list[int | None]](lambda: [0])
    for row in connection.execute("SELECT device_id, epoch_id, ts, share_1e6, duration_ms FROM device_share"):
        key = row["device_id"], row["epoch_id"], (row["ts"] - 1) // 60 * 60
        shares[key] = [(shares[key][0] or 0) + row["share_1e6"] * row["duration_ms"]]
    yield from _differences("share_1m", shares, _sums(connection, "share_1m", ("device_id", "epoch_id"), ("held_ns",)))
    ((left,),) = connection.execute("SELECT COUNT(*) FROM dirty").fetchall()
    if left:
        yield Finding("roll-ups", f"{left} buckets are still to be computed after an orderly end")


def _sums(
    connection: sqlite3.Connection,
    table: str,
    keys: tuple[str, ...],
    columns: tuple[str, ...],
    bucket: Any = lambda ts: ts,
) -> _Sums:
    """Return sums in Python, whose integers do not overflow."""
    sums: _Sums = {}
    known_busy: set[Any] = set()
    origin = ("busy_provenance",) if "busy_ms" in columns else ()
    for row in connection.execute(f"SELECT ts, {', '.join((*keys, *columns, *origin))} FROM {table}"):
        key = (*(row[key] for key in keys), bucket(row["ts"]))
        before = sums.setdefault(key, [None] * len(columns))
        for i, column in enumerate(columns):
            value = row[column]
            if column == "busy_ms":
                known_busy.update([key] if value is not None else [])
                if value is None and row["busy_provenance"] is not None:
                    value = row["observed_ms"]  # it worked, for at most all of that time
            if value is not None:
                before[i] = (before[i] or 0) + value
    if "busy_ms" in columns:
        for key in sums.keys() - known_busy:
            sums[key][columns.index("busy_ms")] = None
    return sums


def _differences(
    table: str, below: _Sums, stored: _Sums, held: frozenset[tuple[str, int, int]] = frozenset()
) -> Iterator[Finding]:
    different = sorted(
        key
        for key in below.keys() | stored.keys()
        if below.get(key) != stored.get(key) and (table, key[0], key[-1]) not in held
    )
    if different:
        key = different[0]
        text = f"{len(different)} buckets differ, first {key}: rows {below.get(key)}, bucket {stored.get(key)}"
        yield Finding("roll-ups", f"{table}: {text}")


def _quarantined(connection: sqlite3.Connection) -> frozenset[tuple[str, int, int]]:
    """Return buckets that are marked as not to be had, where there is a table for them; and the hours above them."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "quarantine" not in names:
        return frozenset()
    held = {(row[0], row[1], row[2]) for row in connection.execute("SELECT rollup, owner_id, ts FROM quarantine")}
    return frozenset(held | {(name.replace("_1m", "_1h"), owner, ts // 3600 * 3600) for name, owner, ts in held})
