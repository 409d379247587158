"""Push of the same metrics by OTLP, with names of OpenTelemetry's semantic conventions where they exist.

Hardware metrics (hw.*): https://opentelemetry.io/docs/specs/semconv/hardware/ (gpu: hw.gpu.utilization,
hw.gpu.memory.usage; all: hw.energy, hw.power, hw.temperature), status development, as of 2026-11. The GenAI conventions
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/) define token usage per request of a client, as a
histogram, and no metric of cost: what is counted here is counted by the server, so that it keeps the prefix `pertoken.`
with the attribute `gen_ai.request.model`, and dollars are `pertoken.*` alone.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pertoken import __version__
from pertoken.errors import BadInput, PertokenError
from pertoken.exposition.page import Family
from pertoken.installed import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

PUSH_EVERY_S = 60.0
PUSH_S = 10.0
"""Longest time that a push may take, its retries included."""
Families = Callable[[], Sequence[Family]]
NAMES: Mapping[str, tuple[str, str]] = {
    "pertoken_device_energy_joules_total": ("hw.energy", "J"),
    "pertoken_device_power_watts": ("hw.power", "W"),
    "pertoken_device_temperature_celsius": ("hw.temperature", "Cel"),
    "pertoken_device_utilization_ratio": ("hw.gpu.utilization", "1"),
    "pertoken_device_memory_used_bytes": ("hw.gpu.memory.usage", "By"),
}
"""Metrics of the Prometheus pages -> (name, unit) of the conventions; other metrics keep their name, with dots."""
_ATTRIBUTES = {"model": "gen_ai.request.model", "uuid": "hw.id", "device": "hw.name", "host": "host.name"}


def exported(family: Family) -> tuple[str, str, list[tuple[float, dict[str, str]]]]:
    """Return name, unit and (value, attributes) of a metric as it is exported."""
    own = family.name.removesuffix("_total").replace("pertoken_", "pertoken.", 1)
    name, unit = NAMES.get(family.name, (own, "1"))
    samples = []
    for labels, value in family.samples:
        attributes = {_ATTRIBUTES.get(key, key): text for key, text in labels.items() if key != "kind"}
        if name.startswith("hw."):
            attributes["hw.type"] = "cpu" if labels.get("kind") == "cpu" else "gpu"
        samples.append((value, attributes))
    return name, unit, samples


class NotPushed(PertokenError):
    """A collector did not accept the metrics."""


class Pusher:
    """OTLP client that pushes when called: the program's own scheduler decides when.

    The SDK's periodic reader would start a thread of its own, and another one in each fork of the process, such as the
    workers in which rules run.
    """

    def __init__(self, endpoint: str, known: Iterable[Family], families: Families) -> None:
        """Prepare the exporter; nothing is sent yet. Raises BadInput if OpenTelemetry is not installed.

        `endpoint`: URL of an OTLP/HTTP collector's metrics path. `known`: every possible metric, with or without
        samples.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        except ModuleNotFoundError:
            raise BadInput(f"OTLP needs OpenTelemetry: {install_command('otlp')}") from None
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a failed push is reported here
        self._endpoint = endpoint
        self._reader = InMemoryMetricReader()
        self._provider = provider_of(self._reader, known, families)
        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=PUSH_S)
        self._pushing: threading.Thread | None = None
        self._is_taken = False

    def push(self) -> None:
        """Push all metrics as they are now. Raises NotPushed, at the latest after `PUSH_S`.

        The exporter bounds each read of a reply, not all of them: a collector that sends a byte now and then holds a
        thread of its own, and nothing else is pushed until it returns.
        """
        if self._pushing is None or not self._pushing.is_alive():
            self._pushing = threading.Thread(target=self._export, name="metrics push", daemon=True)
            self._is_taken = False
            self._pushing.start()
        self._pushing.join(PUSH_S)
        if not self._is_taken:
            raise NotPushed(f"{self._shown()}: did not take the metrics within {PUSH_S:g} s")

    def end(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown(timeout_millis=0)
        self._provider.shutdown()

    def _export(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        data = self._reader.get_metrics_data()
        self._is_taken = data is None or self._exporter.export(data) is MetricExportResult.SUCCESS

    def _shown(self) -> str:
        """Return the endpoint without a user, a password or a query."""
        parts = urlsplit(self._endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def provider_of(reader: "MetricReader", known: Iterable[Family], families: Families) -> "MeterProvider":
    """Return the provider that gives metrics to a reader, with their names by the conventions."""
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.name": "pertoken", "service.version": __version__})
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter("pertoken", __version__)

    def observe(metric: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def values(options: CallbackOptions) -> Iterable[Observation]:
            for family in families():
                if family.name == metric:
                    yield from (Observation(value, attributes) for value, attributes in exported(family)[2])

        return values

    for family in known:
        name, unit, _ = exported(family)
        make = meter.create_observable_counter if family.kind == "counter" else meter.create_observable_gauge
        make(name, [observe(family.name)], unit, family.help)
    return provider
