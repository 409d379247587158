"""The same metrics by OTLP, under the names of OpenTelemetry's semantic conventions where they define one.

Hardware metrics (hw.*): https://opentelemetry.io/docs/specs/semconv/hardware/ (gpu: hw.gpu.utilization,
hw.gpu.memory.usage; all: hw.energy, hw.power, hw.temperature), status development, as of 2026-11. The GenAI conventions
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/) define token usage per request of a client, as a
histogram, and no metric of cost: what is counted here is counted by the server, so that it keeps the prefix `pertoken.`
with the attribute `gen_ai.request.model`, and dollars are `pertoken.*` alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pertoken import __version__
from pertoken.errors import BadInput
from pertoken.exposition.page import Family

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

EVERY_S = 60.0
Families = Callable[[], Sequence[Family]]
NAMES: Mapping[str, tuple[str, str]] = {
    "pertoken_device_energy_joules_total": ("hw.energy", "J"),
    "pertoken_device_power_watts": ("hw.power", "W"),
    "pertoken_device_temperature_celsius": ("hw.temperature", "Cel"),
    "pertoken_device_utilization_ratio": ("hw.gpu.utilization", "1"),
    "pertoken_device_memory_used_bytes": ("hw.gpu.memory.usage", "By"),
}
"""Metrics of the Prometheus pages -> (name, unit) by the conventions; others keep their own name, with dots."""
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


def start_otlp(
    endpoint: str | None, known: Iterable[Family], families: Families, reader: "MetricReader | None" = None
) -> Any:
    """Push metrics to an OTLP endpoint each minute, and return what `shutdown` ends it. Raises BadInput.

    `endpoint`: URL of an OTLP/HTTP collector's metrics path. `known`: every metric that there may be, with or without
    samples. `reader`: in place of the exporter.
    """
    try:
        from opentelemetry.metrics import CallbackOptions, Observation
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ModuleNotFoundError:
        raise BadInput("OTLP needs OpenTelemetry: pip install 'pertoken[otlp]'") from None
    if reader is None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint), EVERY_S * 1000)
    resource = Resource.create({"service.name": "pertoken", "service.version": __version__})
    provider = MeterProvider([reader], resource=resource)
    meter = provider.get_meter("pertoken", __version__)

    def observe(metric: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def values(options: CallbackOptions) -> Iterable[Observation]:
            family = next((each for each in families() if each.name == metric), None)
            if family is not None:
                yield from (Observation(value, attributes) for value, attributes in exported(family)[2])

        return values

    for family in known:
        name, unit, _ = exported(family)
        make = meter.create_observable_counter if family.kind == "counter" else meter.create_observable_gauge
        make(name, [observe(family.name)], unit, family.help)
    return provider
