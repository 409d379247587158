"""Latency, energy and objectives of deployments in one window."""

from collections.abc import Iterable, Sequence

from pertoken.config import Settings
from pertoken.costs.fleet import objectives
from pertoken.proof.receipts.receipt import ServiceLevel
from pertoken.window.reading import Window

MIN_MEASURED = 0.9
"""Part of the device time of which energy must have been measured."""
P95 = 0.95


def service_level(window: Window, deployment_ids: Sequence[int]) -> ServiceLevel:
    """Return the worst p95 latencies of deployments over a window, whatever epochs they had, and their energy."""
    details = window.details()
    ttft, tpot = (
        max(
            filter(None, (details.latency(deployment_id, metric, P95) for deployment_id in deployment_ids)),
            default=None,
        )
        for metric in ("ttft_s", "tpot_s")
    )
    return ServiceLevel(ttft, tpot, _j_per_token(window, deployment_ids))


def limits(served_model: str, settings: Settings) -> ServiceLevel:
    """Return the objectives for the service of a model; what none is set for is None."""
    slo = objectives(served_model, settings)
    ttft, tpot = (None if value is None else value / 1000 for value in (slo.ttft_p95_ms, slo.tpot_p95_ms))
    return ServiceLevel(ttft, tpot)


def _j_per_token(window: Window, deployment_ids: Iterable[int]) -> float | None:
    inventory, energy = window.inventory, window.energy()
    led = [row.epoch_id for deployment_id in deployment_ids for row in inventory.epochs_of.get(deployment_id, ())]
    held = [*led, *(epoch for deployment_id in deployment_ids for epoch in inventory.workers_of.get(deployment_id, ()))]
    measured = [energy[allocation] for allocation in held if allocation in energy]
    if not measured or any(energy.measured_share < MIN_MEASURED for energy in measured):
        return None
    served = {row[0]: row[1] for row in window.tokens()}
    tokens = sum(served.get(epoch_id) or 0 for epoch_id in led)
    return sum(energy.joules for energy in measured) / tokens if tokens else None
