"""Roll-up tables of telemetry: sums and counts by minute and by hour, never averages."""

from typing import Any

from sqlalchemy import Table, case, func, literal_column

from pertoken.metrics import LATER, STORED_GAUGES, DeviceMetric, RollUp, rolled
from pertoken.provenance import Provenance
from pertoken.store.schema.table_parts import integer, telemetry_table, text

MINUTE, HOUR = 60, 3600
"""Lengths of the buckets of roll-ups."""
ROLL_UP_S = 10
"""Roll-ups are made by the first tick of each stretch of this length; hours by the first of each minute."""


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


def busy_ms(columns: Any) -> Any:
    """Return the most that a row can have been busy: all of its observed time where the engine worked but exposes no
    time."""
    return func.coalesce(columns.busy_ms, case((columns.busy_provenance.is_not(None), columns.observed_ms)))


def busy_sum(columns: Any) -> Any:
    """Return the sum of `busy_ms` over rows; NULL where it is known of none of them."""
    return case((func.count(columns.busy_ms) > literal_column("0"), func.sum(busy_ms(columns))))


def busy_provenance(columns: Any) -> Any:
    """Return how the `busy_ms` of a row is known. Rows from before that column was there hold upper bounds."""
    bound: Any = literal_column(str(int(Provenance.BOUND)))
    return func.coalesce(columns.busy_provenance, case((columns.busy_ms > literal_column("0"), bound)))
