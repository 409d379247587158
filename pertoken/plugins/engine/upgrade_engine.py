"""Rule: upgrade to an engine version, or move to an engine, that is known to be better."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import interval, is_newer, judged, percent
from pertoken.rule import (
    Deployment,
    Epoch,
    Fleet,
    FleetEvidence,
    Market,
    Proposal,
    Service,
    Skip,
    option,
    propose,
    rule,
    skip,
    version_numbers,
)

ALIKE = ("tp", "pp", "dp", "ep", "weight_dtype", "kv_dtype", "role")
"""Knobs that two deployments must share for their versions to be compared."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the default is judgement (Sources, 3)."""

    cheaper: float = option(0.03, "minimum decrease of device time per token with the newer version", low=0.0)


@rule("upgrade-engine")
def upgrade_engine(seen: FleetEvidence, fleet: Fleet, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Upgrade an engine where a newer version is cheaper or known to be faster, or leave one that is not developed.

    ## Why it saves
    Kernels and schedulers get faster with nearly every release: one vendor's B200s went from $0.11 to $0.02 per million
    tokens within two months through software alone. Where a replica of this service, or a like deployment of yours,
    already ran a newer version, the recorded hours show what it saves. Without such hours, the newest version is named
    where release notes since the present one state a gain in speed. An engine in maintenance mode receives no such
    improvements.
    ## When it is wrong
    Another model, device or format may gain nothing, or become slower: only deployments that agree in these are
    compared. Engines differ in flags, metrics and outputs, so that moving to another engine takes a trial; its saving
    is unknown beforehand, and none is stated.
    ## How to apply
    Install the named version, or set the image's tag to it, on one replica, and compare it for some days. For another
    engine: serve the same checkpoint with it beside the old one, send it a share of the requests, compare quality and
    latency, then move the rest.
    ## Sources
    1. Your own telemetry: device time per token in hours matched by hour of the week, load, mix and cache hits.
    2. The catalog's `engine_lines.toml`, with source and date: releases and what their notes state; TGI's own
       documentation: in maintenance mode, vLLM and SGLang recommended instead (read January 2026). The figure of the
       B200s is a vendor's.
    3. The minimum decrease of 3 % is judgement.
    """
    upgrades = _Upgrades(seen, fleet)
    for service in fleet.services:
        yield from _of_service(service, upgrades, market, options.cheaper)
    if not fleet.services:
        yield skip("no-service", "0 services run")


def _of_service(
    service: Service, upgrades: "_Upgrades", market: Market, min_decrease: float
) -> Iterator[Proposal | Skip]:
    lines = {
        deployment.engine: line for deployment in service.deployments if (line := market.engine_line(deployment.engine))
    }
    for line in lines.values():
        for successor in line.successors:
            yield propose(service.but(engine=successor), risk="quality", effort="high")
    advised = False
    refused: dict[str, str] = {}
    for replica in service.deployments:
        best: tuple[tuple[float, float, float], Epoch, str] | None = None
        for version, gain, epoch in _newer(replica, upgrades.of(replica)):
            if gain is None:
                reason = f"{version} cannot be compared with {replica.engine_version}: {epoch.present.reason}"
                refused.setdefault(epoch.present.code or "not-measured", reason)
            elif gain[0] <= 1 or gain[1] < 1 / (1 - min_decrease):
                figures = f"{percent(1 / gain[1])} device time per token than {replica.engine_version} at like load"
                refused.setdefault("not-cheaper", f"{version} takes {figures} ({interval(epoch)})")
            elif best is None or gain[1] > best[0][1]:
                best = gain, epoch, version
        if best is not None:
            advised = True
            gain, epoch, version = best
            source = f"epochs of {version} and {replica.engine_version} here at like load ({interval(epoch)})"
            yield propose(
                replica.but(engine_version=version).expecting(*gain, source), risk="availability", effort="medium"
            )
    if advised or lines:
        return
    for code, reason in refused.items():
        yield skip(code, reason, about=service)
    faster = [] if refused else list(_faster_releases(service, market))
    yield from faster
    if not refused and not faster:
        engines = ", ".join(
            sorted({f"{deployment.engine} {deployment.engine_version or '?'}" for deployment in service.deployments})
        )
        reason = f"no version newer than its own ({engines}) was seen on a like deployment in the last eight weeks"
        yield skip("no-newer-seen", reason, about=service)


def _faster_releases(service: Service, market: Market) -> Iterator[Proposal | Skip]:
    """Yield the newest known version where release notes since the oldest present one state a gain in speed."""
    oldest = min(service.deployments, key=lambda deployment: version_numbers(deployment.engine_version) or ())
    releases = market.newer_releases(oldest.engine, oldest.engine_version)
    engines = {deployment.engine for deployment in service.deployments}
    if len(engines) > 1 or not any(release.faster for release in releases):
        return
    reason = market.not_run(oldest.engine, oldest.weight_dtype, oldest.accelerator)
    if reason is not None:
        yield skip("newest-not-run", f"{releases[-1].version} is newer, but {reason}", about=service)
        return
    yield propose(service.but(engine_version=releases[-1].version), risk="availability", effort="medium")


class _Upgrades:
    """Epochs of like deployments before they changed their engine version, read once per kind of deployment."""

    def __init__(self, seen: FleetEvidence, fleet: Fleet) -> None:
        self._seen = seen
        self._alike: dict[tuple[object, ...], list[Deployment]] = {}
        for deployment in fleet.deployments:
            self._alike.setdefault(_kind(deployment), []).append(deployment)
        self._epochs: dict[tuple[object, ...], list[tuple[Deployment, Epoch]]] = {}

    def of(self, deployment: Deployment) -> list[tuple[Deployment, Epoch]]:
        """Return the epochs of deployments like this one, each with its deployment."""
        kind = _kind(deployment)
        if kind not in self._epochs:
            self._epochs[kind] = [
                (comparable, epoch)
                for comparable in self._alike[kind]
                for epoch in judged(self._seen.of(comparable).epochs)
                if set(epoch.changed) == {"engine_version"}
            ]
        return self._epochs[kind]


def _newer(
    replica: Deployment, upgrades: list[tuple[Deployment, Epoch]]
) -> Iterator[tuple[str, tuple[float, float, float] | None, Epoch]]:
    """Yield newer versions with tokens per device-second there over the present ones, None if unknown."""
    for comparable, epoch in upgrades:
        ratio = epoch.present.ratio
        if comparable.deployment_id == replica.deployment_id and is_newer(epoch.engine_version, replica.engine_version):
            # It ran a newer version earlier: the ratio is device time per token now over then.
            yield str(epoch.engine_version), ratio, epoch
        elif epoch.engine_version == replica.engine_version and is_newer(
            comparable.engine_version, replica.engine_version
        ):
            gain = None if ratio is None else (1 / ratio[2], 1 / ratio[1], 1 / ratio[0])
            yield str(comparable.engine_version), gain, epoch


def _kind(deployment: Deployment) -> tuple[object, ...]:
    """Return the key of deployments whose versions can be compared: model, engine, accelerator and layout."""
    shape = (getattr(deployment, name) for name in ALIKE)
    return (deployment.model.name, deployment.engine, deployment.accelerator, *shape)
