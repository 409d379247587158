"""Tables of a lake: their columns, as Arrow types, and where their rows come from.

A table here is what is published of one day of one cell; cell and day stand in the path. Ids are those of the cell's
database: they are compared within a cell only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from sqlalchemy import Boolean, Table, Text

from pertoken.costs.ledger import KindDollars
from pertoken.store.schema import advice, telemetry
from pertoken.store.schema.telemetry import HOUR

COSTS, TOKENS, KINDS, OWNERS, SAVINGS, ADVICE = "costs", "tokens", "kinds", "owners", "savings", "advice"
UNPRICED = "unpriced"
"""Use of a line of a deployment's device time that has no price: its dollars are NULL."""
MAX_NANO_USD = 10**15
"""Largest amount of one line: a million dollars for a device and hour is no price."""
_OWNER = (
    *(("owner_epoch_id", "int64"), ("deployment_id", "int64")),
    *(("model", "string"), ("service", "string"), ("namespace", "string"), ("workload", "string")),
)
_PLACE = (("provider", "string"), ("region", "string"))
_TOKENS = (("prompt_tokens", "int64"), ("cached_tokens", "int64"), ("generated_tokens", "int64"))
WORK = tuple(field.name for field in fields(KindDollars))
"""Kinds of work, with the bounds of those that ran together."""
_LINES: Mapping[str, Sequence[tuple[str, str]]] = {
    # Allocated lines of the bill; `use` is one of `costs.lines.USES` or `UNPRICED`. Only lines of a deployment have
    # an owner. `hour` counts from the start of the day. `epoch_id` is the epoch whose engine counts the tokens of a
    # line; NULL: a worker rank, whose tokens its head rank counts. `owner_epoch_id` is the epoch that held the device,
    # whose owners by label, job and slice are in `owners`.
    COSTS: (
        *(("hour", "int8"), ("device_id", "int64"), ("accelerator", "string"), ("host", "string")),
        *(*_PLACE, ("epoch_id", "int64"), *_OWNER, ("use", "string"), ("nano_usd", "int64")),
    ),
    # Tokens and dollars of each epoch and hour: the dollars are the sum of its lines in `costs`, so that dollars per
    # Mtok need not read all devices. Tokens are NULL where none are counted, as for worker ranks, which have a row
    # without an `epoch_id`. `unpriced`: a device that it held has no price.
    TOKENS: (
        *(("hour", "int8"), *_PLACE, ("epoch_id", "int64"), *_OWNER, *_TOKENS, ("observed_ms", "int64")),
        *(("nano_usd", "int64"), ("unpriced", "bool_")),
    ),
    # Dollars of each deployment on that day by kind of work, of which `KindDollars.NAMES` sum to all of its dollars,
    # and its tokens.
    KINDS: (*_PLACE, *_OWNER, *((f"{kind}_nano_usd", "int64") for kind in WORK), *_TOKENS),
    # Owners of each epoch with a line, beside its namespace and workload: a basis of `settings.owners` and its name.
    OWNERS: (("owner_epoch_id", "int64"), ("basis", "string"), ("owner", "string")),
    # Receipts of that day: what they measured in the hours compared, and what left the bill by it.
    SAVINGS: (
        *(("receipt_id", "int64"), ("recommendation_id", "int64"), ("deployment_id", "int64"), ("epoch_id", "int64")),
        *(("model", "string"), ("result", "string"), ("rule", "string"), ("title", "string")),
        ("created_ts", "int64"),
        *((f"{end}_nano_usd", "int64") for end in ("low", "likely", "high")),
        *((f"{end}_nano_usd_month", "int64") for end in ("low", "likely", "high")),
    ),
    # Open recommendations at the time of publishing; of the newest day alone.
    ADVICE: (
        *(("recommendation_id", "int64"), ("rule", "string"), ("target", "string"), ("title", "string")),
        *(("low_nano_usd_month", "int64"), ("likely_nano_usd_month", "int64"), ("high_nano_usd_month", "int64")),
        *(("state", "string"), ("provider", "string"), ("commitment", "bool_")),
    ),
}
SNAPSHOTS = frozenset({ADVICE})
"""Tables of the present: those of a past day stay as they were published."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A table of the database of which rows are published as they are."""

    table: Table
    group: str
    time: str | None
    """Column of the time that decides a row's day; None: rows known on that day (`first_ts`, `last_ts`)."""
    columns: tuple[str, ...]


def _hourly(rollups: Mapping[int, Table]) -> Copied:
    table = rollups[HOUR]
    return Copied(table, "telemetry", "ts", tuple(column.name for column in table.columns if column.name != "revision"))


def _dated(table: Table, group: str, time: str) -> Copied:
    return Copied(table, group, time, tuple(column.name for column in table.columns))


COPIED: Mapping[str, Copied] = {
    "device_hours": _hourly(telemetry.device_rollup),
    "deployment_hours": _hourly(telemetry.deployment_rollup),
    "share_hours": _hourly(telemetry.share_rollup),
    "host_hours": _hourly(telemetry.host_rollup),
    "histogram_hours": _hourly(telemetry.histogram_rollup),
    "counter_hours": _hourly(telemetry.engine_counter_rollup),
    "hosts": Copied(
        telemetry.host, "telemetry", None,
        ("host_id", "name", "cpu_name", "cpu_count", "memory_bytes", "cloud", "instance_type", "region", "purchase"),
    ),
    "devices": Copied(
        telemetry.device, "telemetry", None,
        ("device_id", "host_id", "kind", "uuid", "vendor", "name", "memory_bytes", "parent_id", "part_1e6"),
    ),
    "deployments": Copied(
        telemetry.deployment, "telemetry", None, ("deployment_id", "engine_id", "host_id", "served_model", "model_path")
    ),
    "epochs": Copied(
        telemetry.epoch, "telemetry", "start_ts", ("epoch_id", "deployment_id", "start_ts", "engine_version", "knobs")
    ),
    "events": _dated(telemetry.event, "telemetry", "ts"),
    "prices": _dated(advice.price, "advice", "set_ts"),
    "verdicts": _dated(advice.verdict, "advice", "created_ts"),
    "receipts": _dated(advice.receipt, "advice", "created_ts"),
}  # fmt: skip
"""Rows that are published as they are stored. None has a column that changes while nothing happens."""
ROLLED_UP = ("device_hours", "deployment_hours")
"""Tables whose rows count how complete a day is."""


@cache
def schema(name: str) -> Any:
    """Return the Arrow schema of a table of the lake."""
    import pyarrow as pa

    if name in _LINES:
        return pa.schema([pa.field(column, getattr(pa, kind)()) for column, kind in _LINES[name]])
    copied = COPIED[name]
    kinds = {column.name: _arrow_type(pa, column.type) for column in copied.table.columns}
    return pa.schema([pa.field(column, kinds[column]) for column in copied.columns])


def _arrow_type(pa: Any, kind: Any) -> Any:
    if isinstance(kind, Text):
        return pa.string()
    return pa.bool_() if isinstance(kind, Boolean) else pa.int64()


def names() -> tuple[str, ...]:
    """Return the names of all tables."""
    return (*_LINES, *COPIED)
