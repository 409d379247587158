"""Telemetry tables: the agent writes them, everyone else only reads.

Keys begin with `(device_id, ts)` or `(epoch_id, ts)`, so that an owner's last minute is found at once; `ts` is integer
epoch seconds aligned to the tick; ids are deterministic 64-bit hashes of natural keys (`store.ids`). Ratios and shares
are scaled integers. A value that was not measured is NULL; `capability` tells why. Roll-ups keep sums and counts, never
averages.

A new column comes last and may be NULL: the seals of the rows before it then still hold (`store.seal`).

One row covers the `duration_ms` that end at its `ts`, back to the row before; `observed_ms` is the part of that
really watched (less after the agent was away). Counters are stored as what they grew by over the duration.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, SmallInteger, Table, Text

NAMING = {
    "pk": "pk_%(table_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
}
metadata = MetaData(schema="telemetry", naming_convention=NAMING)


def _table(name: str, *columns: Column[int] | Column[str] | Column[bool]) -> Table:
    return Table(name, metadata, *columns, sqlite_with_rowid=False)


def _key(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _int(name: str, *, required: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=not required)


def _text(name: str, *, required: bool = False) -> Column[str]:
    return Column(name, Text, nullable=not required)


# -- what there is ---------------------------------------------------------------------------------------------

host = _table(
    "host",
    _key("host_id"),
    _text("name", required=True),
    _text("machine_id"),
    _text("boot_id"),
    _int("boot_ms"),  # Unix time of the boot by the wall clock of the agent's start: for people, never compared
    _text("os"),
    _text("cpu_name"),
    _int("cpu_count"),
    _int("memory_bytes"),
    _text("agent_version", required=True),
    _int("interval_s", required=True),
    _text("dmi_vendor"),
    _text("dmi_product"),
    _text("cloud"),  # aws | gcp | azure, by the firmware
    _text("instance_type"),
    _text("region"),
    _text("purchase"),  # on_demand | spot
    _int("first_ts", required=True),
    _int("last_ts", required=True),
)
device = _table(
    "device",
    _key("device_id"),
    _int("host_id", required=True),
    _text("kind", required=True),  # gpu | mig | partition | cpu
    _text("uuid", required=True),
    _text("vendor"),
    _text("name", required=True),
    _int("slot"),
    _int("memory_bytes"),
    _int("power_limit_mw"),
    _text("driver_version"),
    _text("pci_bus_id"),
    _int("parent_id"),  # of a MIG device: the GPU it is a slice of, which alone is paid for
    _int("part_1e6"),  # what part of that GPU's compute slices it is
    _text("power_source"),  # what power_mw is, and of what: "average, gpu"
    _text("energy_source"),  # what the energy counter counts: gpu | module
    _int("first_ts", required=True),
    _int("last_ts", required=True),
)
engine = _table(
    "engine",
    _key("engine_id"),
    _int("host_id", required=True),
    _text("kind", required=True),
    _text("base_url", required=True),
    _int("port"),
    _int("pid"),
    _int("process_start_ms"),  # since the boot of the host; Unix time in rows of before schema 0005
    _text("version"),
    _text("found_by", required=True),  # process | setting
    _int("first_ts", required=True),
    _int("last_ts", required=True),
    _int("life"),  # id of the process: of the boot and its start after that (`agent.rows.life_ids`)
)
deployment = _table(
    "deployment",
    _key("deployment_id"),
    _int("engine_id", required=True),
    _int("host_id", required=True),
    _text("served_model", required=True),
    _text("model_path"),
    _text("model_facts"),  # JSON: what the engine itself says of the model's shape
    _int("first_ts", required=True),
    _int("last_ts", required=True),
)
epoch = _table(
    "epoch",
    _key("epoch_id"),
    _int("deployment_id", required=True),
    _int("start_ts", required=True),
    _int("end_ts"),
    _text("engine_version"),
    _text("knobs", required=True),  # JSON object; a knob nobody could see is absent
)
epoch_device = _table("epoch_device", _key("epoch_id"), _key("device_id"))

# -- ticks -----------------------------------------------------------------------------------------------------

_SPAN = ("duration_ms", "observed_ms")


def _span() -> tuple[Column[int], Column[int]]:
    return _int("duration_ms", required=True), _int("observed_ms", required=True)


device_sample = _table(
    "device_sample",
    _key("device_id"),
    _key("ts"),
    *_span(),
    _int("util_1e4"),
    _int("memory_used_bytes"),
    _int("power_mw"),
    _int("power_instant_mw"),
    _int("power_module_mw"),  # GPU and CPU together (GH200)
    _int("power_memory_mw"),
    _int("energy_counter_mj"),
    _int("energy_integral_mj"),
    _int("sm_clock_mhz"),
    _int("memory_clock_mhz"),
    _int("temperature_c"),
    _int("throttle_reasons"),  # NVML's bit mask
    _int("sm_active_1e4"),
    _int("sm_occupancy_1e4"),
    _int("tensor_active_1e4"),
    _int("dram_active_1e4"),
    _int("nvlink_rx_mib_s"),
    _int("nvlink_tx_mib_s"),
    _int("ecc_corrected"),
    _int("ecc_uncorrected"),
)
host_sample = _table(
    "host_sample",
    _key("host_id"),
    _key("ts"),
    *_span(),
    _int("cpu_util_1e4"),
    _int("load_1e2"),
    _int("memory_used_bytes"),
    _int("network_rx_bytes"),
    _int("network_tx_bytes"),
    _int("memory_traffic_bytes"),  # to and from memory by the CPUs
)
agent_sample = _table(
    "agent_sample",
    _key("host_id"),
    _key("ts"),
    *_span(),
    _int("cpu_ms"),
    _int("rss_bytes"),
    _int("tick_ms"),
    _int("missed_ticks"),
    _int("driver_calls"),
)
deployment_sample = _table(
    "deployment_sample",
    _key("epoch_id"),
    _key("ts"),
    *_span(),
    Column("complete", Boolean, nullable=False),  # False: tokens were counted that nobody could see
    _int("busy_ms"),
    _int("prompt_tokens"),
    _int("cached_tokens"),
    _int("computed_tokens"),
    _int("generated_tokens"),
    _int("requests_finished"),
    _int("preemptions"),
    _int("running_1e2"),
    _int("waiting_1e2"),
    _int("kv_use_1e4"),
    # By which it is known to hold each of its devices whole over the duration, busy as it is itself: then there is no
    # row in `device_share`. NULL: its shares are there.
    Column("whole_provenance", SmallInteger),
    # BOUND: busy_ms is an upper bound, or NULL since the engine exposes no time (at most observed_ms). NULL beside a
    # busy_ms: an older row, where it is the whole tick if anything ran in it (`store.rollup.busy_provenance`).
    Column("busy_provenance", SmallInteger),
)
OTHER = 0
"""`epoch_id` of foreign work in `device_share`."""
device_share = _table(
    "device_share",
    _key("device_id"),
    _key("ts"),
    _key("epoch_id"),
    _int("duration_ms", required=True),
    _int("share_1e6", required=True),
    _int("busy_ms", required=True),  # of the duration, while this epoch was busy
    Column("provenance", SmallInteger, nullable=False),
)
"""Who has what part of a device; `store.shares` tells it together with what a deployment holds whole."""
histogram_set = _table("histogram_set", _key("bucket_set_id"), _text("upper_bounds", required=True))
histogram_sample = _table(
    "histogram_sample",
    _key("epoch_id"),
    _key("ts"),
    Column("metric", Text, primary_key=True),
    _key("bucket_set_id"),
    Column("bucket", Integer, primary_key=True, autoincrement=False),  # index; the last is +Inf
    _int("count", required=True),
)
# What else an engine counts, by its word (`agent.engines.adapter.COUNTED`), `word{reason="..."}` for requests. A row
# only where it grew: none means that it stood still or is not counted, as what it is a part of (tokens) tells.
engine_counter_sample = _table(
    "engine_counter_sample",
    _key("epoch_id"),
    _key("ts"),
    Column("metric", Text, primary_key=True),
    _int("delta", required=True),
)

# -- the agent's memory ----------------------------------------------------------------------------------------

counter_state = _table(
    "counter_state",
    _key("owner_id"),  # device_id, engine_id or host_id
    Column("series", Text, primary_key=True),
    _int("value", required=True),
    _int("process_start_ms"),  # NULL since schema 0005; before, when the process that counts started by the wall clock
    _int("ts", required=True),
    _int("life"),  # id of the process (or boot) that counts (`agent.rows.life_ids`): another one counts from 0
)
capability = _table(
    "capability",
    _key("owner_id"),  # device_id, engine_id or host_id
    Column("metric", Text, primary_key=True),
    _text("status", required=True),  # ok | unsupported | denied | missing | failing
    _text("reason"),
    _text("remedy"),
    _int("since_ts", required=True),
)
event = _table(
    "event",
    _key("event_id"),
    _int("host_id", required=True),
    _int("ts", required=True),
    _int("last_ts", required=True),
    _int("count", required=True),
    _text("kind", required=True),
    _int("subject_id"),
    _text("message", required=True),
)
dirty = _table(
    "dirty",
    Column("rollup", Text, primary_key=True),  # name of the roll-up table
    _key("owner_id"),
    _key("ts"),  # start of the bucket
)
# Buckets whose roll-up cannot be computed, and by which version; keyed like their marks.
_MARK = (Column("rollup", Text, primary_key=True), _key("owner_id"), _key("ts"))
quarantine = _table("quarantine", *_MARK, _text("reason", required=True), _text("agent_version", required=True))

# -- shipping to a fleet's server ------------------------------------------------------------------------------

spool = _table(
    "spool",
    _key("spool_id"),  # made with the row, so that the server tells this file from one that replaced it
    _int("last_seq", required=True),  # the highest ever given to a mark
    _int("raw", required=True),  # 1: ticks are shipped too
)
"""One row where this host ships; none where it does not, and then nothing is marked."""
outbox = _table(
    "outbox",
    Column("source", Text, primary_key=True),  # see `store.outbox`
    _key("owner_id"),
    _key("ts"),  # start of the bucket; 0 for what has no time
    _int("seq", required=True),  # a changed row gets a new one: what is shipped is what lies behind the cursor
)
Index("ix_outbox_seq", outbox.c.seq)

# -- what is stored, counted ------------------------------------------------------------------------------------

batch = _table(
    "batch",
    _key("seq"),  # one for each transaction that changed anything, without gaps
    _int("ts", required=True),  # of the tick stored, or of the last one before
    _int("row_count", required=True),  # of samples
    _int("crc_sum", required=True),  # of those rows' CRC32
    _int("chain", required=True),  # CRC32 of this row's values, begun with the chain of the row before
)
seal = _table(
    "seal",
    Column("name", Text, primary_key=True),  # of the table
    _key("ts"),  # start of the hour or day whose rows are counted; 0 where rows have no time
    _int("row_count", required=True),
    _int("crc_sum", required=True),
    _int("owner_sum", required=True),  # of each CRC32 times whose row it is, modulo a prime (`store.seal`)
)

# -- roll-ups --------------------------------------------------------------------------------------------------


def _rollup(
    name: str,
    keys: tuple[str, ...],
    required: tuple[str, ...],
    nullable: tuple[str, ...] = (),
    *,
    gauges: tuple[str, ...] = (),
) -> dict[int, Table]:
    """The 1-min and 1-h tables of one roll-up, by bucket length in seconds.

    Of a gauge there is the sum and how many samples had it: NULL is as many as `samples`, which is nearly always so.
    """
    return {
        seconds: _table(
            f"{name}_{suffix}",
            *(Column("metric", Text, primary_key=True) if key == "metric" else _key(key) for key in keys),
            *(_int(column, required=True) for column in required),
            *(_int(f"{gauge}_n") for gauge in gauges),
            _int("revision", required=True),
            *(_int(column) for column in nullable),
        )
        for seconds, suffix in ((60, "1m"), (3600, "1h"))
    }


def _sums(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}_sum" for name in names)


_DEVICE = (
    "util_1e4",
    "memory_used_bytes",
    "power_mw",
    "sm_clock_mhz",
    "temperature_c",
    "sm_active_1e4",
    "sm_occupancy_1e4",
    "tensor_active_1e4",
    "dram_active_1e4",
    "nvlink_rx_mib_s",
    "nvlink_tx_mib_s",
)
device_rollup = _rollup(
    "device",
    ("device_id", "ts"),
    required=("duration_ms", "observed_ms", "samples", "throttled_n"),
    gauges=_DEVICE,
    nullable=(*_sums(*_DEVICE), "energy_counter_mj", "energy_integral_mj", "ecc_corrected", "ecc_uncorrected"),
)
_HOST = ("cpu_util_1e4", "load_1e2", "memory_used_bytes")
host_rollup = _rollup(
    "host",
    ("host_id", "ts"),
    required=("duration_ms", "observed_ms", "samples"),
    gauges=_HOST,
    nullable=(*_sums(*_HOST), "network_rx_bytes", "network_tx_bytes", "memory_traffic_bytes"),
)
_GAUGES = ("running_1e2", "waiting_1e2", "kv_use_1e4")
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
