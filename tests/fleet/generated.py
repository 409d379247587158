"""A large fleet made by the server itself: hosts of GPUs that serve, with roll-ups from generate_series."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, text

from pertoken.store import telemetry as t
from pertoken.store.open import writing
from pertoken.store.place import Place
from pertoken.store.rollup import HOUR, MINUTE

DAY = 86_400
GPUS_OF_A_DEPLOYMENT = 4
_HOST, _DEVICE, _DEPLOYMENT, _ENGINE, _EPOCH, _SET = (n * 10**9 for n in range(1, 7))


@dataclass(frozen=True, slots=True)
class Fleet:
    """`hosts` of `gpus` each up to `end_ts`; every four GPUs serve one model."""

    hosts: int
    gpus: int
    end_ts: int

    def devices_of(self, host: int) -> list[int]:
        """Ids of one host's devices."""
        return [_DEVICE + host * self.gpus + i for i in range(self.gpus)]


def fill(where: Place, fleet: Fleet, *, hour_days: int, minute_hours: int) -> None:
    """Put a fleet into a server that is ready, with so much of each resolution. Again with more adds the rest."""
    with writing(where, "telemetry").connect() as connection, connection.begin():
        _identities(connection, fleet, fleet.end_ts - hour_days * DAY)
        for seconds, length_s in ((HOUR, hour_days * DAY), (MINUTE, minute_hours * HOUR)):
            _rollups(connection, fleet, seconds, fleet.end_ts - length_s)
        connection.execute(
            text("INSERT INTO advice.price VALUES (1, 'H100', 6880000000, 0, 0, 'x', NULL) ON CONFLICT DO NOTHING")
        )
    with writing(where, "telemetry").execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("VACUUM ANALYZE"))  # as autovacuum does in time


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


def _rollups(connection: Connection, fleet: Fleet, seconds: int, start: int) -> None:
    devices, deployments = fleet.hosts * fleet.gpus, fleet.hosts * fleet.gpus // GPUS_OF_A_DEPLOYMENT
    times = f"generate_series({start // seconds * seconds}, {fleet.end_ts - 1}, {seconds}) ts"
    ms, samples = seconds * 1000, seconds // 10
    gauge = "(600 + (o %% 1000 * 37 + ts / 60) %% 300)"
    device = f"generate_series({_DEVICE}::bigint, {_DEVICE + devices - 1}) o"
    epoch = f"generate_series({_EPOCH}::bigint, {_EPOCH + deployments - 1}) o"
    for table, source, special in (
        (t.device_rollup[seconds], device, {"device_id": "o", "throttled_n": "0", "ecc_corrected": "0"}),
        (t.host_rollup[seconds], f"generate_series({_HOST}, {_HOST + fleet.hosts - 1}) o", {"host_id": "o"}),
        (
            t.deployment_rollup[seconds],
            epoch,
            {
                "epoch_id": "o",
                "incomplete_n": "0",
                "busy_ms": f"{ms} * 6 / 10",
                "whole_ms": f"{ms}",
                "whole_busy_ms": f"{ms} * 6 / 10",
                "whole_provenance": "2",
            },
        ),
        (
            t.histogram_rollup[seconds],
            f"{epoch}, unnest(ARRAY['ttft_s', 'tpot_s', 'prompt_len', 'generated_len']) m, generate_series(2, 4) b",
            {"epoch_id": "o", "metric": "m", "bucket_set_id": str(_SET), "bucket": "b", "count": gauge},
        ),
    ):
        columns = [_value(table, column.name, special, gauge, ms, samples) for column in table.columns]
        names = ", ".join(column.name for column in table.columns)
        connection.exec_driver_sql(
            f"INSERT INTO {table.fullname} ({names}) SELECT {', '.join(columns)} FROM {times}, {source} "
            "ON CONFLICT DO NOTHING"
        )


def _value(table: Table, name: str, special: dict[str, str], gauge: str, ms: int, samples: int) -> str:
    if name in special:
        return special[name]
    known: dict[str, Any] = {"ts": "ts", "revision": "7", "duration_ms": ms, "observed_ms": ms, "samples": samples}
    if name in known:
        return str(known[name])
    if name.startswith("nvlink") or "occupancy" in name or name.startswith("ecc"):
        return "0" if name.endswith("_n") else "NULL"
    return "NULL" if name.endswith("_n") else f"{gauge} * {samples}"
