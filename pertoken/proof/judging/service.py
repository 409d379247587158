"""What clients and the power meter saw of deployments in one window, and the objectives that were agreed."""

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
        max(filter(None, (details.latency(each, metric, P95) for each in deployment_ids)), default=None)
        for metric in ("ttft_s", "tpot_s")
    )
    return ServiceLevel(ttft, tpot, _j_per_token(window, deployment_ids))


def limits(served_model: str, settings: Settings) -> ServiceLevel:
    """Return the objectives for the service of a model; what none is set for is None."""
    slo = objectives(served_model, settings)
    ttft, tpot = (None if each is None else each / 1000 for each in (slo.ttft_p95_ms, slo.tpot_p95_ms))
    return ServiceLevel(ttft, tpot)


def _j_per_token(window: Window, deployment_ids: Iterable[int]) -> float | None:
    there, energy = window.inventory, window.energy()
    led = [row.epoch_id for each in deployment_ids for row in there.epochs_of.get(each, ())]
    held = [*led, *(epoch for each in deployment_ids for epoch in there.workers_of.get(each, ()))]
    measured = [energy[each] for each in held if each in energy]
    if not measured or any(each.measured_share < MIN_MEASURED for each in measured):
        return None
    served = dict(window.tokens())
    tokens = sum(served.get(each) or 0 for each in led)
    return sum(each.joules for each in measured) / tokens if tokens else None
