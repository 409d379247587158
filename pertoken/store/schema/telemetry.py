"""Telemetry tables: the agent writes them, everyone else only reads.

Keys begin with `(device_id, ts)` or `(epoch_id, ts)`, so that an owner's last minute is found at once; `ts` is integer
epoch seconds aligned to the tick; ids are deterministic 64-bit hashes of natural keys (`ids`). Ratios and shares are
scaled integers. A value that was not measured is NULL; `capability` holds the reason. Roll-ups keep sums and counts,
never averages.

A new column comes last and may be NULL: checksums of the rows before it then still hold.

One row covers the `duration_ms` that end at its `ts`, back to the row before; `observed_ms` is the part of that
really watched (less after the agent was away). Counters are stored as what they grew by over the duration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, itemgetter
from types import NoneType
from typing import get_args, get_type_hints

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    case,
    func,
    literal_column,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from pertoken.metrics import DEVICE_COLUMNS, LATER, STORED_GAUGES, DeviceMetric, RollUp, rolled
from pertoken.provenance import Provenance
from pertoken.store.schema import rows
from pertoken.store.schema.shared import Values

NAMING = {
    "pk": "pk_%(table_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
}
metadata = MetaData(schema="telemetry", naming_convention=NAMING)


def telemetry_table(name: str, *columns: Column[int] | Column[str] | Column[bool]) -> Table:
    """Build a table of telemetry, which SQLite keeps in the order of its key."""
    return Table(name, metadata, *columns, sqlite_with_rowid=False)


def integer(name: str, *, required: bool = False, key: bool = False) -> Column[int]:
    """Build a column of 64-bit integers."""
    return Column(name, BigInteger, primary_key=key, autoincrement=False, nullable=not (required or key))


def text(name: str, *, required: bool = False, key: bool = False) -> Column[str]:
    """Build a column of text."""
    return Column(name, Text, primary_key=key, nullable=not (required or key))


_TYPES = {int: BigInteger, str: Text, bool: Boolean, Provenance: SmallInteger}


def row_columns(row: type, *keys: str, **types: type[Integer]) -> Iterator[Column[int] | Column[str] | Column[bool]]:
    """Yield a column for each field of a row, NULL where it may be None: first those of the key, then the others.

    `types` are of columns that are narrower than their field.
    """
    kinds = get_type_hints(row)
    for name in (*keys, *(name for name in kinds if name not in keys)):
        kind = next(kind for kind in get_args(kinds[name]) or (kinds[name],) if kind is not NoneType)
        nullable = NoneType in get_args(kinds[name])
        stored = types.get(name, _TYPES[kind])
        yield Column(name, stored, primary_key=name in keys, autoincrement=False, nullable=nullable)


MINUTE, HOUR = 60, 3600
ROLL_UP_S = 10
"""Roll-ups are made by the first tick of each interval of this length; hours by the first of each minute."""


def _rollup(
    name: str,
    keys: tuple[str, ...],
    required: tuple[str, ...],
    nullable: tuple[str, ...] = (),
    *,
    gauges: tuple[str, ...] = (),
) -> dict[int, Table]:
    """Return the 1-min and 1-h tables of one roll-up, by bucket length in seconds.

    Of a gauge there is the sum and how many samples had it: NULL is as many as `samples`, which is nearly always so.
    """
    return {
        seconds: telemetry_table(
            f"{name}_{suffix}",
            *(text(key, key=True) if key == "metric" else integer(key, key=True) for key in keys),
            *(integer(column, required=True) for column in required),
            *(integer(f"{gauge}_n") for gauge in gauges),
            integer("revision", required=True),
            *(integer(column) for column in nullable),
        )
        for seconds, suffix in ((MINUTE, "1m"), (HOUR, "1h"))
    }


def _sums(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}_sum" for name in names)


THROTTLED = {"throttled_power_samples": 0x4 | 0x80, "throttled_thermal_samples": 0x20 | 0x40}
"""Samples in which one of these bits of `throttle_reasons` was set: power (software cap, external brake) and heat
(software, hardware). Source: nvml.h 12.9, nvmlClocksEventReasons."""


def _columns(metric: DeviceMetric) -> tuple[str, ...]:
    """Return the columns that roll-ups keep of a metric, in the order in which a migration adds them."""
    gauge = f"{metric.stored}_n", f"{metric.stored}_sum"
    return {RollUp.GAUGE: gauge, RollUp.COUNTER: (metric.stored,), RollUp.NOTHING: ()}[metric.roll_up]


_DEVICE = tuple(metric.stored for metric in rolled(RollUp.GAUGE) if metric.since is None)
device_rollup = _rollup(
    "device",
    ("device_id", "ts"),
    required=("duration_ms", "observed_ms", "samples", "throttled_n"),
    gauges=_DEVICE,
    nullable=(
        *_sums(*_DEVICE),
        *("energy_counter_mj", "energy_integral_mj", "ecc_corrected", "ecc_uncorrected"),
        *THROTTLED,  # of revision 0008, and so before the metrics of later ones
        *(column for metric in LATER for column in _columns(metric)),
    ),
)
_HOST = ("cpu_util_1e4", "load_1e2", "memory_used_bytes")
host_rollup = _rollup(
    "host",
    ("host_id", "ts"),
    required=("duration_ms", "observed_ms", "samples"),
    gauges=_HOST,
    nullable=(*_sums(*_HOST), "network_rx_bytes", "network_tx_bytes", "memory_traffic_bytes", "plug_mj", "plug_ms"),
)
_GAUGES = tuple(gauge.column for gauge in STORED_GAUGES)
deployment_rollup = _rollup(
    "deployment",
    ("epoch_id", "ts"),
    required=("duration_ms", "observed_ms", "samples", "incomplete_n"),
    gauges=_GAUGES,
    nullable=(
        "busy_ms",
        "prompt_tokens",
        "cached_tokens",
        "computed_tokens",
        "generated_tokens",
        "requests_finished",
        "preemptions",
        *_sums(*_GAUGES),
        # Of the duration: while it held each of its devices whole; of that, while it was busy; the worst provenance.
        "whole_ms",
        "whole_busy_ms",
        "whole_provenance",
        "busy_provenance",  # the worst one
        *("split_ms", "prefill_ms", "decode_ms"),
    ),
)
share_rollup = _rollup(
    "share",
    ("device_id", "ts", "epoch_id"),
    # Device time held, exact: sum of share x duration; of that, while the epoch was busy; the worst provenance. What
    # was held whole is in the roll-up of the deployment.
    required=("held_ns", "busy_ns", "provenance"),
)
histogram_rollup = _rollup("histogram", ("epoch_id", "ts", "metric", "bucket_set_id", "bucket"), required=("count",))
engine_counter_rollup = _rollup("engine_counter", ("epoch_id", "ts", "metric"), required=("delta",))
ROLLUPS = {
    "device": device_rollup,
    "host": host_rollup,
    "deployment": deployment_rollup,
    "share": share_rollup,
    "histogram": histogram_rollup,
    "engine_counter": engine_counter_rollup,
}


Columns = ReadOnlyColumnCollection[str, ColumnElement[int]]


def busy_ms(columns: Columns) -> ColumnElement[int]:
    """Return the most that a row can have been busy: all of its observed time where the engine worked but exposes no
    time."""
    return func.coalesce(columns.busy_ms, case((columns.busy_provenance.is_not(None), columns.observed_ms)))


def busy_sum(columns: Columns) -> ColumnElement[int]:
    """Return the sum of `busy_ms` over rows; NULL where it is known of none of them."""
    return case((func.count(columns.busy_ms) > literal_column("0"), func.sum(busy_ms(columns))))


def busy_provenance(columns: Columns) -> ColumnElement[int]:
    """Return how the `busy_ms` of a row is known. Rows from before that column was there hold upper bounds."""
    bound: ColumnElement[int] = literal_column(str(int(Provenance.BOUND)))
    return func.coalesce(columns.busy_provenance, case((columns.busy_ms > literal_column("0"), bound)))


def _identity_table(name: str, row: type, later: str = "") -> Table:
    """Build a table of what there is: the fields of a row, and when it was first and last seen.

    `later`: a column that was added after these.
    """
    columns = {column.name: column for column in row_columns(row, f"{name}_id")}
    added = [columns.pop(later)] if later else []
    seen = (integer(seen_ts, required=True) for seen_ts in ("first_ts", "last_ts"))
    return telemetry_table(name, *columns.values(), *seen, *added)


# -- what there is ---------------------------------------------------------------------------------------------
host = _identity_table("host", rows.HostRow, later="plug_source")
device = _identity_table("device", rows.DeviceRow, later="links")
engine = _identity_table("engine", rows.EngineRow, later="life")
deployment = _identity_table("deployment", rows.DeploymentRow)
epoch = telemetry_table(
    "epoch",
    integer("epoch_id", key=True),
    integer("deployment_id", required=True),
    integer("start_ts", required=True),
    integer("end_ts"),
    text("engine_version"),
    text("knobs", required=True),  # JSON object, the driver's version in it; what nobody could see is absent
)
epoch_device = telemetry_table("epoch_device", integer("epoch_id", key=True), integer("device_id", key=True))


# -- ticks -----------------------------------------------------------------------------------------------------
def _interval_columns() -> tuple[Column[int], Column[int]]:
    return integer("duration_ms", required=True), integer("observed_ms", required=True)


device_sample = telemetry_table(
    "device_sample",
    integer("device_id", key=True),
    integer("ts", key=True),
    *_interval_columns(),
    *(integer(name) for name in DEVICE_COLUMNS),
)
host_sample = telemetry_table("host_sample", *row_columns(rows.HostSample, "host_id", "ts"))
agent_sample = telemetry_table(
    "agent_sample",
    integer("host_id", key=True),
    integer("ts", key=True),
    *_interval_columns(),
    integer("cpu_ms"),
    integer("rss_bytes"),
    integer("tick_ms"),
    integer("missed_ticks"),
    integer("driver_calls"),
)
deployment_sample = telemetry_table(
    "deployment_sample",
    *row_columns(rows.DeploymentSample, "epoch_id", "ts", whole_provenance=SmallInteger, busy_provenance=SmallInteger),
)
device_share = telemetry_table("device_share", *row_columns(rows.DeviceShare, "device_id", "ts", "epoch_id"))
histogram_set = telemetry_table(
    "histogram_set", integer("bucket_set_id", key=True), text("upper_bounds", required=True)
)
histogram_sample = telemetry_table(
    "histogram_sample",
    *row_columns(rows.HistogramSample, "epoch_id", "ts", "metric", "bucket_set_id", "bucket", bucket=Integer),
)
engine_counter_sample = telemetry_table(
    "engine_counter_sample", *row_columns(rows.EngineCounterSample, "epoch_id", "ts", "metric")
)

# -- the agent's memory ----------------------------------------------------------------------------------------
counter_state = telemetry_table(
    "counter_state",
    integer("owner_id", key=True),  # device_id, engine_id, host_id, or made of an engine_id (`stored_peaks`)
    text("series", key=True),
    integer("value", required=True),
    integer("process_start_ms"),  # NULL since schema 0005; before, wall-clock start of the counting process
    integer("ts", required=True),
    integer("life"),  # id of the process (or boot) that counts (`life_ids`): another one counts from 0
)
capability = telemetry_table("capability", *row_columns(rows.UnreadableMetric, "owner_id", "metric"))
event = telemetry_table("event", *row_columns(rows.StoredEvent, "event_id"))
dirty = telemetry_table(
    "dirty",
    text("rollup", key=True),  # name of the roll-up table
    integer("owner_id", key=True),
    integer("ts", key=True),  # start of the bucket
)

# Buckets whose roll-up cannot be computed, and by which version; keyed like their marks.
_MARK = (text("rollup", key=True), integer("owner_id", key=True), integer("ts", key=True))
quarantine = telemetry_table("quarantine", *_MARK, text("reason", required=True), text("agent_version", required=True))

# -- shipping to a fleet's server ------------------------------------------------------------------------------
spool = telemetry_table(
    "spool",
    integer(
        "spool_id", key=True
    ),  # made with the row, so that the server distinguishes this file from one that replaced it
    integer("last_seq", required=True),  # the highest ever given to a mark
    integer("raw", required=True),  # 1: ticks are shipped too
    integer("acked_batch"),  # the server's count of batches when marks were last deleted: it must not fall below that
)
"""One row where this host ships; none where it does not, and then nothing is marked."""
outbox = telemetry_table(
    "outbox",
    text("source", key=True),  # see `store.write.outbox`
    integer("owner_id", key=True),
    integer("ts", key=True),  # start of the bucket; 0 for what has no time
    integer("seq", required=True),  # a changed row gets a new one: what is shipped is what lies behind the cursor
)
Index("ix_outbox_seq", outbox.c.seq)

# -- what is stored, counted ------------------------------------------------------------------------------------
batch = telemetry_table(
    "batch",
    integer("seq", key=True),  # one for each transaction that changed anything, without gaps
    integer("ts", required=True),  # of the tick stored, or of the last one before
    integer("row_count", required=True),  # of samples
    integer("crc_sum", required=True),  # of those rows' CRC32
    integer("chain", required=True),  # CRC32 of this row's values, begun with the chain of the row before
)
seal = telemetry_table(
    "seal",
    text("name", key=True),  # of the table
    integer("ts", key=True),  # start of the hour or day whose rows are counted; 0 where rows have no time
    integer("row_count", required=True),
    integer("crc_sum", required=True),
    integer("owner_sum", required=True),  # of each CRC32 times whose row it is, modulo a prime
)

# -- samples as rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stored:
    """Table of one type of sample, and the roll-up that its rows make dirty (None: none)."""

    table: Table
    rollup: str | None
    values: Callable[[rows.SampleValue], Values]
    """Columns of the table in their order, of one sample."""

    @cached_property
    def key(self) -> Callable[[Values], object]:
        """Primary key of a row."""
        names = [column.name for column in self.table.columns]
        return itemgetter(*(names.index(column.name) for column in self.table.primary_key))

    @cached_property
    def owner_and_ts(self) -> Callable[[Values], tuple[int, int]]:
        """Owner and time of a row."""
        return itemgetter(0, [column.name for column in self.table.columns].index("ts"))


def _stored(table: Table, rollup: str | None, integer: str | None = None) -> Stored:
    names = [column.name for column in table.columns]
    get: Callable[[rows.SampleValue], Values] = attrgetter(*names)
    if integer is None:
        return Stored(table, rollup, get)
    # A value with a type of its own is stored, and summed, as the integer it is.
    position = names.index(integer)

    def values(sample: rows.SampleValue) -> Values:
        row = get(sample)
        return (*row[:position], int(row[position] or 0), *row[position + 1 :])

    return Stored(table, rollup, values)


STORED_SAMPLES = {
    rows.DeviceSample: _stored(device_sample, "device"),
    rows.HostSample: _stored(host_sample, "host"),
    rows.AgentSample: _stored(agent_sample, None),
    rows.DeploymentSample: _stored(deployment_sample, "deployment", integer="complete"),
    rows.DeviceShare: _stored(device_share, "share", integer="provenance"),
    rows.HistogramSample: _stored(histogram_sample, "histogram"),
    rows.EngineCounterSample: _stored(engine_counter_sample, "engine_counter"),
}
