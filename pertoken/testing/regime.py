"""Regime: a fleet, the evidence of each part, and the market. It does not depend on thresholds of rules."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import pi, sin

from pertoken.catalog.market import Market, load_market
from pertoken.evidence import EPOCHS, Epoch, Evidence, Series
from pertoken.metrics import HISTOGRAMS, SERIES
from pertoken.rule import FleetEvidence
from pertoken.state.fleet import Device, Fleet
from pertoken.testing.builders import Week, evidence, series

SubjectKey = tuple[str, int | str]
"""Kind and id of a subject of evidence: `("service", "chat")`, `("device", 10)`."""

SUMMED = (
    "prompt_tok_s", "computed_tok_s", "generated_tok_s", "busy_generated_tok_s", "requests_s", "running", "waiting",
    "preemptions", "power_w", "energy_w", "device_memory", "host_memory_free", "host_memory_used", "host_cpus_used",
)  # fmt: skip
"""Series of a service that are sums over its replicas; the others equal those of each replica."""
OF_HOSTS = {"host_memory_free": 5e11, "host_memory_used": 6e10, "host_cpus_used": 4.0}
"""Series of a host that its devices and deployments have too: memory in bytes, and CPUs."""
_SHARED_BY_DEVICES = ("power_w", "energy_w", "device_memory")
_OF_DEVICES = (
    *(name for name, spec in SERIES.items() if spec.owner == "device" and name not in (*_SHARED_BY_DEVICES, "held")),
    *OF_HOSTS,
)
OBSERVED_H = 168.0
IDLE_DEVICE = {
    "device_util": 0.0, "power_w": 70.0, "energy_w": 70.0, "device_memory": 6e8, "sm_clock_mhz": 345.0,
    "temperature_c": 32.0, "throttled": 0.0, "throttled_power": 0.0, "throttled_thermal": 0.0,
    **OF_HOSTS,
}  # fmt: skip
_WITHOUT_HOURS = {*HISTOGRAMS, "itl_s", "observed_h"}
"""Series of requests, which are summed over the window, and the length of the window."""


@dataclass(frozen=True, slots=True)
class Regime:
    """A situation that a rule may meet."""

    name: str
    meaning: str
    fleet: Fleet
    measured: Mapping[SubjectKey, Evidence]
    market: Market

    @property
    def seen(self) -> FleetEvidence:
        """Fresh evidence by subject, with no series marked as read."""
        return FleetEvidence(self.measured)

    def of(self, kind: str, key: int | str) -> Evidence:
        """Return fresh evidence of one subject: `regime.of("service", "chat")`."""
        return self.measured.get((kind, key), Evidence({})).fresh()

    def without(self, *names: str) -> "Regime":
        """Return this regime without these series; without `epochs` there are no earlier epochs."""
        measured = {
            subject: Evidence(
                {name: evidence for name, evidence in known.items() if name not in names},
                epochs=() if EPOCHS in names else known.peek_epochs(),
            )
            for subject, known in self.measured.items()
        }
        return replace(self, measured=measured)

    def over(self, window_s: int | None) -> "Regime":
        """Return this regime for a rule with this window: observed at most for the length of the window.

        None is the window of a run, the default of every regime.
        """
        if window_s is None:
            return self
        hours = window_s / 3600
        measured = {}
        for subject, known in self.measured.items():
            observed = known.peek("observed_h")
            long = observed is not None and observed.mean > hours
            measured[subject] = (
                Evidence({**dict(known.items()), "observed_h": series(hours, n=1)}) if long else known.fresh()
            )
        return replace(self, measured=measured)


def regime(
    fleet: Fleet,
    measured: Mapping[str, Evidence],
    *,
    name: str = "own",
    meaning: str = "",
    market: Market | None = None,
) -> Regime:
    """Return a regime of a fleet and the evidence of each replica, by service name.

    The evidence of services, devices and hosts follows from it: a service is the sum of its replicas; a device of a
    deployment was in use all of the time and every other device never. A series without hours of its own follows
    the hours of a day, each day of the week alike, within its quantiles.
    """
    subjects: dict[SubjectKey, Evidence] = {}
    evidence_by_device: dict[int, Evidence] = {}
    for service in fleet.services:
        given = measured.get(service.name, Evidence({}))
        alone, before = _by_hour(given), given.peek_epochs()
        known = dict(alone.items())
        together = dict(_together(alone, len(service.deployments)).items())
        of = {one.deployment_id: _of(one.deployment_id, before) for one in service.deployments}
        subjects["service", service.name] = Evidence(together, epochs=tuple(chain.from_iterable(of.values())))
        for one in service.deployments:
            subjects["deployment", one.deployment_id] = Evidence(known, epochs=of[one.deployment_id])
            evidence_by_device |= {device_id: _device(alone, len(one.device_ids)) for device_id in one.device_ids}
    for device in fleet.devices:
        subjects["device", device.device_id] = _of_device(device, evidence_by_device)
    for host in fleet.hosts:
        subjects["host", host.host_id] = _of_host(
            [_of_device(fleet.device(device_id), evidence_by_device) for device_id in host.device_ids]
        )
    return Regime(name, meaning, fleet, subjects, market or load_market())


def _of(deployment_id: int, epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Return the earlier epochs of one replica: epochs without a deployment apply to each replica."""
    own = (epoch for epoch in epochs if epoch.deployment_id in (0, deployment_id))
    return tuple(replace(epoch, deployment_id=deployment_id) for epoch in own)


def _of_device(device: Device, evidence_by_device: Mapping[int, Evidence]) -> Evidence:
    ids = [device.device_id, *(part.partition_id for part in device.partitions)]
    held = next((evidence_by_device[part_id] for part_id in ids if part_id in evidence_by_device), None)
    return (held or _by_hour(evidence(held=0, observed_h=OBSERVED_H, **IDLE_DEVICE))).fresh()


def _device(alone: Evidence, devices: int) -> Evidence:
    known = dict(alone.items())
    own = {name: known[name] for name in _OF_DEVICES if name in known}
    own |= {name: _times(known[name], 1 / devices) for name in _SHARED_BY_DEVICES if name in known}
    return _by_hour(evidence(held=1, observed_h=known.get("observed_h", OBSERVED_H), **own))


def _of_host(devices: Sequence[Evidence]) -> Evidence:
    """Return the evidence of a host from its devices: power, energy and memory are sums, other series are means."""
    known = [dict(device.items()) for device in devices]
    combined = {}
    for name in [key for key in known[0] if all(key in one for one in known)]:
        share = 1.0 if name in _SHARED_BY_DEVICES else 1 / len(known)
        mean, p50, p95, largest = (
            share * sum(getattr(one[name], statistic) for one in known) for statistic in ("mean", "p50", "p95", "max")
        )
        combined[name] = series(mean, p50=p50, p95=p95, max=largest)
    return _by_hour(evidence(**combined))


def _together(alone: Evidence, replicas: int) -> Evidence:
    return Evidence({name: _times(series, replicas) if name in SUMMED else series for name, series in alone.items()})


def _times(known: Series, factor: float) -> Series:
    scaled = series(
        known.mean * factor, p50=known.p50 * factor, p95=known.p95 * factor, max=known.max * factor, n=known.n
    )
    hours = known.distribution.times(factor) if isinstance(known.distribution, Week) else None
    return replace(scaled, provenance=known.provenance, distribution=None if hours is None else Week(scaled, hours))


def _by_hour(known: Evidence) -> Evidence:
    return Evidence({name: series if name in _WITHOUT_HOURS else _with_hours(series) for name, series in known.items()})


def _with_hours(known: Series) -> Series:
    """Return a series with hours that vary around the mean: highest at 15:00 UTC and below p95, lowest at 03:00."""
    if known.distribution is not None:
        return known
    swing = 0.8 * max(0.0, min(known.p95, 2 * known.mean) - known.mean)
    day = [known.mean + swing * sin(2 * pi * (hour - 9) / 24) for hour in range(24)]
    return replace(known, distribution=Week(known, tuple(7 * day)))
