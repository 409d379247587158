"""Tokens, energy, devices and engines of this host as Prometheus metrics. It knows no price.

Front door: `TickTotals`, fed with ticks, `endpoint_of` and `pusher_of` settings.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.exposition import Family, MetricsServer, text_of
from pertoken.metrics import DEVICE, STORED_GAUGES, DeviceMetric, EngineMetric
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, EpochRow, HostSample, Tick
from pertoken.store.schema.shared import GATEWAY

if TYPE_CHECKING:
    from pertoken.exposition import Pusher


Labels = tuple[tuple[str, str], ...]

COUNTERS: Mapping[str, tuple[str, float, str]] = {
    "prompt_tokens": ("pertoken_prompt_tokens_total", 1, "Prompt tokens, cached ones included."),
    "cached_tokens": ("pertoken_cached_tokens_total", 1, "Prompt tokens taken from the prefix cache."),
    "generated_tokens": ("pertoken_generated_tokens_total", 1, "Tokens generated."),
    "requests_finished": ("pertoken_requests_finished_total", 1, "Requests that ended."),
    "preemptions": ("pertoken_preemptions_total", 1, "Requests put back to the queue because the KV cache was full."),
    "busy_ms": ("pertoken_engine_busy_seconds_total", 1000, "Time in which the engine worked."),
    "observed_ms": ("pertoken_engine_observed_seconds_total", 1000, "Time in which the engine was observed."),
}
"""Columns of `deployment_sample` -> (metric, stored value of one unit, help)."""
_NAMES = {
    "running_1e2": "pertoken_requests_running",
    "waiting_1e2": "pertoken_requests_waiting",
    "kv_use_1e4": "pertoken_kv_cache_use_ratio",
    "util_1e4": "pertoken_device_utilization_ratio",
    "memory_used_bytes": "pertoken_device_memory_used_bytes",
    "power_mw": "pertoken_device_power_watts",
    "temperature_c": "pertoken_device_temperature_celsius",
    "sm_active_1e4": "pertoken_device_sm_active_ratio",
    "dram_active_1e4": "pertoken_device_memory_bandwidth_ratio",
}
"""Columns of gauges in samples -> names of the metrics; unit and help are in `metrics`."""


def _exported(metric: EngineMetric | DeviceMetric) -> tuple[str, float, str]:
    return _NAMES[metric.stored or ""], metric.per_unit, f"{metric.meaning[0].upper()}{metric.meaning[1:]}."


GAUGES = {metric.column: _exported(metric) for metric in STORED_GAUGES}
DEVICE_GAUGES = {metric.stored: _exported(metric) for metric in DEVICE if metric.stored in _NAMES}
ENERGY = "pertoken_device_energy_joules_total"
PLUG_ENERGY = "pertoken_host_energy_joules_total"


class TickTotals:
    """Sums of ticks. The thread that ticks adds, another reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._gauges: dict[str, dict[Labels, float]] = {}
        self._epochs: dict[int, Labels] = {}
        """Of the previous tick: the last sample of an epoch may come after its end."""

    def add(self, tick: Tick, open_epochs: Iterable[EpochRow]) -> None:
        """Add a tick that was stored. `open_epochs`: all that are open, since a tick has only those that changed."""
        host = ("host", tick.host.name)
        devices: dict[int, Labels] = {
            row.device_id: (host, ("device", row.name), ("uuid", row.uuid), ("kind", row.kind)) for row in tick.devices
        }
        gateways = {row.engine_id for row in tick.engines if row.found_by == GATEWAY}
        kinds = {row.engine_id: row.kind for row in tick.engines}
        models: dict[int, Labels] = {
            row.deployment_id: (host, ("model", row.served_model), ("engine", kinds.get(row.engine_id, "")))
            for row in tick.deployments
            if row.engine_id not in gateways
        }
        present = {row.epoch_id: models[row.deployment_id] for row in open_epochs if row.deployment_id in models}
        epochs, self._epochs = self._epochs | present, present
        gauges: dict[str, dict[Labels, float]] = defaultdict(dict)
        with self._lock:
            for sample in tick.samples:
                if isinstance(sample, DeploymentSample) and sample.epoch_id in epochs:
                    self._add_deployment(sample, epochs[sample.epoch_id], gauges)
                elif isinstance(sample, DeviceSample) and sample.device_id in devices:
                    self._add_device(sample, devices[sample.device_id], gauges)
                elif isinstance(sample, HostSample):
                    self._add_host(sample, host, gauges)
            gauges["pertoken_tick_timestamp_seconds"][(host,)] = tick.ts
            self._gauges = dict(gauges)

    def _add_deployment(self, sample: DeploymentSample, labels: Labels, gauges: dict[str, dict[Labels, float]]) -> None:
        for column, (name, scale, _) in COUNTERS.items():
            value = getattr(sample, column)
            if value is not None:
                self._counts[name][labels] += value / scale
        for column, (name, scale, _) in GAUGES.items():
            value = getattr(sample, column)
            if value is not None:
                gauges[name][labels] = gauges[name].get(labels, 0.0) + value / scale

    def _add_device(self, sample: DeviceSample, labels: Labels, gauges: dict[str, dict[Labels, float]]) -> None:
        energy_mj = sample.energy_counter_mj if sample.energy_counter_mj is not None else sample.energy_integral_mj
        if energy_mj is not None:
            self._counts[ENERGY][labels] += energy_mj / 1000
        for column, (name, scale, _) in DEVICE_GAUGES.items():
            value = getattr(sample, column)
            if value is not None:
                gauges[name][labels] = value / scale

    def _add_host(self, sample: HostSample, host: tuple[str, str], gauges: dict[str, dict[Labels, float]]) -> None:
        if sample.memory_used_bytes is not None:
            gauges["pertoken_host_memory_used_bytes"][(host,)] = sample.memory_used_bytes
        if sample.plug_mj is not None:
            self._counts[PLUG_ENERGY][(host,)] += sample.plug_mj / 1000
            if sample.plug_ms:
                gauges["pertoken_host_power_watts"][(host,)] = sample.plug_mj / sample.plug_ms

    def families(self) -> list[Family]:
        """Return all that is known."""
        with self._lock:
            counts = {name: dict(values) for name, values in self._counts.items()}
            gauges = {name: dict(values) for name, values in self._gauges.items()}
        return [
            Family(name, kind, help_of, [(dict(labels), value) for labels, value in sorted(values.items())])
            for kind, values_by_name in (("counter", counts), ("gauge", gauges))
            for name, help_of in _HELP.items()
            if (values := values_by_name.get(name)) is not None
        ]

    @staticmethod
    def known() -> list[Family]:
        """Return every metric that there may be, without samples."""
        counted = {name for name, _, _ in COUNTERS.values()} | {ENERGY, PLUG_ENERGY}
        return [Family(name, "counter" if name in counted else "gauge", text, []) for name, text in _HELP.items()]

    def page(self) -> str:
        """Return the metrics page."""
        return text_of(self.families())


_HELP = {
    **{name: text for name, _, text in (*COUNTERS.values(), *GAUGES.values(), *DEVICE_GAUGES.values())},
    ENERGY: "Energy drawn since the agent started, by its counter, else by power over time.",
    "pertoken_host_memory_used_bytes": "Memory of the host in use.",
    "pertoken_host_power_watts": "Power of the server at its plug.",
    PLUG_ENERGY: "Energy of the server at its plug since the agent started.",
    "pertoken_tick_timestamp_seconds": "When the newest tick was stored.",
}


log = logging.getLogger("pertoken.agent")


def pusher_of(settings: Settings, totals: TickTotals) -> Pusher | None:
    """Return the client of the collector that is set. Without the extra a fault is logged: recording goes on."""
    if settings.agent_otlp_endpoint is None:
        return None
    from pertoken.exposition import Pusher

    try:
        return Pusher(settings.agent_otlp_endpoint, totals.known(), totals.families)
    except BadInput as error:
        log.error("no metrics by OTLP: %s", error)
        return None


def endpoint_of(settings: Settings, totals: TickTotals) -> MetricsServer | None:
    """Return the started endpoint, None where none is set. One that cannot be bound is logged: recording goes on."""
    if settings.agent_metrics_listen is None:
        return None
    host, port = settings.agent_metrics_listen
    try:
        server = MetricsServer(
            (host, port),
            totals.page,
            token_file=settings.agent_metrics_token_file,
            cert_file=settings.agent_metrics_cert_file,
            key_file=settings.agent_metrics_key_file,
        )
    except (OSError, BadInput) as error:
        log.error("no metrics endpoint at %s:%d: %s", host, port, error)
        return None
    server.start()
    log.info("metrics at %s:%d/metrics", host, server.port)
    return server
