"""Evidence of a window by subject: of the run's window, and of other windows that rules ask for."""

from collections.abc import Mapping

from pertoken.advisor.present import Present
from pertoken.advisor.worker.inputs import Measured, MeasuredWindow
from pertoken.evidence import Evidence
from pertoken.store.connect.open import Store
from pertoken.units import format_duration
from pertoken.window.progress import Progress, ticking
from pertoken.window.reading import Window


def measured(gathered: Present) -> Measured:
    """Return the evidence of the run's window, by subject."""
    context = gathered.context
    return _by_subject(context.deployments, context.services, context.devices, gathered.hosts)


def measured_over(window_s: int, store: Store, gathered: Present, progress: Progress, *, dated: bool) -> MeasuredWindow:
    """Read the evidence of the same subjects in another window that ends at the same time.

    Most parts of a longer window are read only when a rule reads them: four weeks of histograms dominate the time.
    Raises StoreError if the database cannot be read.
    """
    span, context = format_duration(window_s), gathered.context

    def of_span(phase: str, share: float) -> None:
        progress(f"reading the last {span}: {phase.removeprefix('reading ')}", share)

    with store.read() as connection:
        window = Window(connection, context.now_ts - window_s, context.now_ts, dated=dated)
        seen = window.evidence(context.market, of_span, store.read, later=window_s > gathered.window_s)
    deployments = ticking(context.deployments, len(context.deployments), "evidence", of_span)
    alone = {deployment: seen.of_deployments((deployment,)) for deployment in deployments}
    measured = _by_subject(
        alone,
        {
            service.name: alone[service.deployments[0].deployment_id]
            if len(service.deployments) == 1
            else seen.of_deployments([replica.deployment_id for replica in service.deployments])
            for service in gathered.fleet.services
        },
        {device_id: seen.of_devices((device_id,)) for device_id in context.devices},
        {host.host_id: seen.of_devices(host.device_ids) for host in gathered.fleet.hosts},
    )
    return MeasuredWindow(measured, seen.parts)


def _by_subject(
    deployments: Mapping[int, Evidence],
    services: Mapping[str, Evidence],
    devices: Mapping[int, Evidence],
    hosts: Mapping[int, Evidence],
) -> Measured:
    return {
        **{("deployment", key): evidence for key, evidence in deployments.items()},
        **{("service", name): evidence for name, evidence in services.items()},
        **{("device", key): evidence for key, evidence in devices.items()},
        **{("host", key): evidence for key, evidence in hosts.items()},
    }
