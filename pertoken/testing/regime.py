"""A regime: a fleet, what was measured on each part of it, and the market. No rule's threshold is in it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pertoken.catalog.market import Market, load_market
from pertoken.evidence import Evidence, Series
from pertoken.rule import FleetEvidence
from pertoken.state.fleet import Device, Fleet
from pertoken.testing.builders import evidence

SubjectKey = tuple[str, int | str]
"""Kind and id of what evidence is of: `("service", "chat")`, `("device", 10)`."""

SUMMED = (
    "prompt_tok_s", "computed_tok_s", "generated_tok_s", "busy_generated_tok_s", "requests_s", "running", "waiting",
    "preemptions", "power_w", "device_memory",
)  # fmt: skip
"""Series of a service that are the sum over its replicas; the others are as of each of them."""
_OF_DEVICES = ("device_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
_SHARED_BY_DEVICES = ("power_w", "device_memory")
OBSERVED_H = 24.0
IDLE_DEVICE = {"device_util": 0.0, "power_w": 70.0, "device_memory": 6e8}


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
        """What was measured, subject by subject, nothing of it read."""
        return FleetEvidence(self.measured)

    def of(self, kind: str, key: int | str) -> Evidence:
        """Return what was measured on one subject, nothing of it read: `regime.of("service", "chat")`."""
        return self.measured.get((kind, key), Evidence({})).fresh()

    def without(self, *names: str) -> "Regime":
        """Return this regime on hosts that do not measure these series."""
        measured = {
            subject: Evidence({name: each for name, each in known.items() if name not in names})
            for subject, known in self.measured.items()
        }
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

    The evidence of services, devices and hosts follows from it: a service is the sum of its replicas, a device that a
    deployment runs on was held all of the time and every other one never.
    """
    subjects: dict[SubjectKey, Evidence] = {}
    holders: dict[int, Evidence] = {}
    for each in fleet.services:
        alone = measured.get(each.name, Evidence({}))
        subjects["service", each.name] = _together(alone, len(each.deployments))
        for one in each.deployments:
            subjects["deployment", one.deployment_id] = alone.fresh()
            holders |= {device_id: _device(alone, len(one.device_ids)) for device_id in one.device_ids}
    for device in fleet.devices:
        subjects["device", device.device_id] = _of_device(device, holders)
    for host in fleet.hosts:
        held = [float(_of_device(fleet.device(each), holders).held.mean) for each in host.device_ids]
        subjects["host", host.host_id] = evidence(held=sum(held) / len(held), observed_h=OBSERVED_H)
    return Regime(name, meaning, fleet, subjects, market or load_market())


def _of_device(device: Device, holders: Mapping[int, Evidence]) -> Evidence:
    ids = [device.device_id, *(part.partition_id for part in device.partitions)]
    held = next((holders[each] for each in ids if each in holders), None)
    return (held or evidence(held=0, observed_h=OBSERVED_H, **IDLE_DEVICE)).fresh()


def _device(alone: Evidence, devices: int) -> Evidence:
    known = dict(alone.items())
    own = {name: known[name] for name in _OF_DEVICES if name in known}
    own |= {name: _times(known[name], 1 / devices) for name in _SHARED_BY_DEVICES if name in known}
    return evidence(held=1, observed_h=OBSERVED_H, **own)


def _together(alone: Evidence, replicas: int) -> Evidence:
    return Evidence({name: _times(each, replicas) if name in SUMMED else each for name, each in alone.items()})


def _times(known: Series, factor: float) -> Series:
    return replace(
        known, mean=known.mean * factor, p50=known.p50 * factor, p95=known.p95 * factor, max=known.max * factor
    )
