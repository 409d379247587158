"""A large fleet made by the server itself: hosts of GPUs that serve, with roll-ups from generate_series."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, text

from pertoken.store.central.server import DAY, TIMED, Progress, no_progress, partitions
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import writing
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR, MINUTE

GPUS_OF_A_DEPLOYMENT = 4
_IDENTITIES = (t.host, t.device, t.engine, t.deployment, t.epoch, t.epoch_device, t.histogram_set, t.capability)
_ROLLUPS = (t.device_rollup, t.host_rollup, t.deployment_rollup)
_HOST, _DEVICE, _DEPLOYMENT, _ENGINE, _EPOCH, _SET = (n * 10**9 for n in range(1, 7))


@dataclass(frozen=True, slots=True)
class Fleet:
    """`hosts` of `gpus` each up to `end_ts`; every four GPUs serve one model."""

    hosts: int
    gpus: int
    end_ts: int

    def host_id(self, number: int) -> int:
        """Return the id of a host by its number."""
        return _HOST + number


def fill(
    where: StoreLocation,
    fleet: Fleet,
    *,
    hour_days: int,
    minute_days: int,
    histograms: bool = True,
    progress: Progress = no_progress,
) -> None:
    """Put a fleet into a server that is ready: `days` days of hours, and the minutes of the day under way and of so
    many before it. Again with more adds the rest. `histograms`, and with them counters of the engine, are most of it.

    A partition of the past is made without its indexes, which are built when it is full: that is much faster. Rows of
    the one under way come as they do from hosts.
    """
    with writing(where, "telemetry").connect() as connection:
        with connection.begin():
            _identities(connection, fleet, fleet.end_ts - hour_days * DAY)
            connection.execute(
                text(
                    "INSERT INTO advice.price VALUES (1, 'H100', 6880000000, 0, 0, 'x', NULL, 1) ON CONFLICT DO NOTHING"
                )
            )
            today = fleet.end_ts // DAY * DAY
            oldest = {HOUR: fleet.end_ts - hour_days * DAY, MINUTE: today - minute_days * DAY}
            rollups = (*_ROLLUPS, t.histogram_rollup, t.engine_counter_rollup) if histograms else _ROLLUPS
            due = _due(connection, fleet, oldest, rollups)
        for n, partition in enumerate(due, 1):
            with connection.begin():
                for statement in _filled(fleet, partition):
                    connection.exec_driver_sql(statement)
            progress(n, len(due))
    with writing(where, "telemetry").execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        # As autovacuum does in time; of old days, which no screen reads, only what the planner asks for.
        for name in [table.name for table in _IDENTITIES] + [
            partition.name for partition in due if partition.end > today - DAY
        ]:
            connection.exec_driver_sql(f"VACUUM ANALYZE telemetry.{name}")
        for name in [partition.name for partition in due if partition.end <= today - DAY]:
            connection.exec_driver_sql(f"ANALYZE telemetry.{name}")


@dataclass(frozen=True, slots=True)
class _Partition:
    """One partition of a roll-up, and from when to when it is to have rows."""

    table: Table
    name: str
    seconds: int
    bounds: tuple[int, int]
    start: int
    end: int


def _due(
    connection: Connection, fleet: Fleet, first: Mapping[int, int], rollups: Sequence[Mapping[int, Table]]
) -> list[_Partition]:
    """Return partitions that are empty and should not be, newest first; `first` is the oldest time by length of
    buckets."""
    existing = partitions(connection)
    due = []
    for tables in rollups:
        for seconds, table in tables.items():
            interval_s = next(timed.interval_s for timed in TIMED if timed.name == table.name)
            for name, at in existing[table.name].items():
                start, end = max(at, first[seconds] // seconds * seconds), min(at + interval_s, fleet.end_ts)
                if start < end and not connection.exec_driver_sql(f"SELECT 1 FROM telemetry.{name} LIMIT 1").first():
                    due.append(_Partition(table, name, seconds, (at, at + interval_s), start, end))
    return sorted(due, key=lambda item: -item.end)


def _filled(fleet: Fleet, partition: _Partition) -> Iterator[str]:
    """Yield statements that fill a partition, or put a full one in its place."""
    whole, (first, after) = partition.table.fullname, partition.bounds
    rows = f"({', '.join(partition.table.columns.keys())}) {_rows(fleet, partition)}"
    if fleet.end_ts < after:
        yield f"INSERT INTO {whole} {rows}"
        return
    yield f"DROP TABLE telemetry.{partition.name}"
    # Nobody vacuums what was just filled while something is measured.
    yield (
        f"CREATE TABLE telemetry.{partition.name} (LIKE {whole} INCLUDING DEFAULTS INCLUDING CONSTRAINTS) "
        "WITH (autovacuum_enabled = off)"
    )
    yield f"INSERT INTO telemetry.{partition.name} {rows}"
    yield f"ALTER TABLE {whole} ATTACH PARTITION telemetry.{partition.name} FOR VALUES FROM ({first}) TO ({after})"


def _identities(connection: Connection, fleet: Fleet, start: int) -> None:
    values = {"start": start, "end": fleet.end_ts, "hosts": fleet.hosts, "gpus": fleet.gpus}
    groups = fleet.gpus // GPUS_OF_A_DEPLOYMENT
    host = "FROM generate_series(0, :hosts - 1) h"
    group = f"{host}, generate_series(0, {groups} - 1) g"
    deployment = f"h * {groups} + g"
    device = f"{_DEVICE} + h * :gpus + i"
    for statement in (
        "host (host_id, name, agent_version, interval_s, first_ts, last_ts) "
        f"SELECT {_HOST} + h, 'host-' || h, '0.1.0', 10, :start, :end {host}",
        "device (device_id, host_id, kind, uuid, vendor, name, slot, memory_bytes, first_ts, last_ts) "
        f"SELECT {device}, {_HOST} + h, 'gpu', 'GPU-' || h || '-' || i, 'nvidia', 'NVIDIA H100 80GB HBM3', i, "
        f"85520809984, :start, :end {host}, generate_series(0, :gpus - 1) i",
        "engine (engine_id, host_id, kind, base_url, port, found_by, first_ts, last_ts) "
        f"SELECT {_ENGINE} + {deployment}, {_HOST} + h, 'vllm', 'http://127.0.0.1:' || 8000 + g, 8000 + g, 'process', "
        f":start, :end {group}",
        "deployment (deployment_id, engine_id, host_id, served_model, first_ts, last_ts) "
        f"SELECT {_DEPLOYMENT} + {deployment}, {_ENGINE} + {deployment}, {_HOST} + h, 'model-' || ({deployment}) % 9, "
        f":start, :end {group}",
        "epoch (epoch_id, deployment_id, start_ts, engine_version, knobs) "
        f"SELECT {_EPOCH} + {deployment}, {_DEPLOYMENT} + {deployment}, :start, '0.32.0', '{{}}' {group}",
        "epoch_device (epoch_id, device_id) "
        f"SELECT {_EPOCH} + h * {groups} + i / {GPUS_OF_A_DEPLOYMENT}, {device} "
        f"{host}, generate_series(0, :gpus - 1) i",
        f"histogram_set (bucket_set_id, upper_bounds) VALUES ({_SET}, '0.01,0.02,0.05,0.1,0.25,0.5,1.0,2.5')",
        "capability (owner_id, metric, status, reason, remedy, since_ts) "
        f"SELECT {device}, 'dram_active', 'unsupported', 'not on this device', NULL, :start "
        f"{host}, generate_series(0, :gpus - 1) i",
    ):
        connection.execute(text(f"INSERT INTO telemetry.{statement} ON CONFLICT DO NOTHING"), values)


def _rows(fleet: Fleet, partition: _Partition) -> str:
    devices, deployments = fleet.hosts * fleet.gpus, fleet.hosts * fleet.gpus // GPUS_OF_A_DEPLOYMENT
    seconds, name = partition.seconds, partition.table.name.rpartition("_")[0]
    ms, samples = seconds * 1000, seconds // 10
    gauge = "(600 + (o %% 1000 * 37 + ts / 60) %% 300)"
    epoch = f"generate_series({_EPOCH}::bigint, {_EPOCH + deployments - 1}) o"
    source, special = {
        "device": (
            f"generate_series({_DEVICE}::bigint, {_DEVICE + devices - 1}) o",
            {"device_id": "o", "throttled_n": "0", "ecc_corrected": "0"},
        ),
        "host": (f"generate_series({_HOST}, {_HOST + fleet.hosts - 1}) o", {"host_id": "o"}),
        "deployment": (
            epoch,
            {
                "epoch_id": "o",
                "incomplete_n": "0",
                "busy_ms": f"{ms} * 6 / 10",
                "whole_ms": f"{ms}",
                "whole_busy_ms": f"{ms} * 6 / 10",
                "whole_provenance": "2",
                "busy_provenance": "0",
            },
        ),
        "histogram": (
            f"{epoch}, unnest(ARRAY['ttft_s', 'tpot_s', 'prompt_len', 'generated_len']) m, generate_series(2, 4) b",
            {"epoch_id": "o", "metric": "m", "bucket_set_id": str(_SET), "bucket": "b", "count": gauge},
        ),
        "engine_counter": (
            f"{epoch}, unnest(ARRAY['prefix_queries', 'prefix_hits', 'requests_finished']) m",
            {"epoch_id": "o", "metric": "m", "delta": gauge},
        ),
    }[name]
    columns = [_value(partition.table, column.name, special, gauge, ms, samples) for column in partition.table.columns]
    times = f"generate_series({partition.start}, {partition.end - 1}, {seconds}) ts"
    return f"SELECT {', '.join(columns)} FROM {times}, {source}"


def _value(table: Table, name: str, special: dict[str, str], gauge: str, ms: int, samples: int) -> str:
    if name in special:
        return special[name]
    known: dict[str, Any] = {"ts": "ts", "revision": "7", "duration_ms": ms, "observed_ms": ms, "samples": samples}
    if name in known:
        return str(known[name])
    if name.startswith("nvlink") or "occupancy" in name or name.startswith("ecc"):
        return "0" if name.endswith("_n") else "NULL"
    return "NULL" if name.endswith("_n") else f"{gauge} * {samples}"
