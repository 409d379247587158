"""Rule: release hosts with unused devices."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import (
    Device,
    Fleet,
    FleetEvidence,
    Host,
    NotMeasured,
    Proposal,
    Skip,
    option,
    propose,
    rule,
    skip,
)


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 2)."""

    idle_share: float = option(
        0.01,
        "maximum share of the observed time in which processes may use a device that counts as idle",
        low=0,
        high=1,
    )
    observed_h: float = option(
        20.0, "minimum observed hours: a day except gaps, so that a daily job is not missed", low=0
    )


@rule("release-idle")
def release_idle(seen: FleetEvidence, fleet: Fleet, options: Options) -> Iterator[Proposal | Skip]:
    """Release hosts whose accelerators no process uses.

    ## Why it saves
    An unused device costs as much per hour as a busy one. Idle power is a small part of that cost: only giving the
    instance or server back lowers the bill.
    ## When it is wrong
    The host may be a warm spare, or used once a week. Clouds rent whole instances: one idle device of an instance that
    is otherwise used cannot be given back alone. Owned devices cost the same while idle; move work to them instead.
    ## How to apply
    Make sure that nobody keeps the host as a spare, then end its instance. Where only some of its devices are idle,
    move the deployments of the other devices first.
    ## Sources
    1. arXiv 2605.23918: idle power of loaded and empty GPUs; a released instance is the only large saving.
    2. The thresholds of 1 % and 20 h are judgement: a day of use must have been observed before a device counts as
       idle.
    """
    for host in fleet.hosts:
        all_devices = [fleet.device(device_id) for device_id in host.device_ids]
        devices = [device for device in all_devices if device.kind != "cpu"] or all_devices
        refusals = [refusal for device in devices if (refusal := _why_keep(device, host, seen, fleet, options))]
        idle = len(devices) - len(refusals)
        if devices and not refusals and not fleet.deployments_on(host):
            yield propose(fleet.release(host), risk="availability", effort="low")
        elif idle and all(refusal.code == "held" for refusal in refusals):
            yield skip("part-of-instance", _what_to_move(host, idle, len(devices), fleet), about=host)
        else:
            yield from dict.fromkeys(refusals)
    if not fleet.hosts:
        yield skip("no-devices", "0 devices were seen")


def _why_keep(device: Device, host: Host, seen: FleetEvidence, fleet: Fleet, options: Options) -> Skip | None:
    ids = (device.device_id, *(part.partition_id for part in device.partitions))
    users = [deployment for device_id in ids for deployment in fleet.deployments_by_device.get(device_id, ())]
    if users:
        in_order = fleet.deployments if len(users) > 1 else users
        serving = dict.fromkeys(
            deployment.name for deployment in in_order if not set(ids).isdisjoint(deployment.device_ids)
        )
        return skip("held", f"devices of {host.name} serve {', '.join(serving)}")
    if device.accelerator is None:
        return skip("no-accelerator", f"{device.name} on {host.name} is no accelerator of the catalog")
    try:
        share, observed_h = seen.of(device).held.mean, seen.of(device).observed_h.mean
    except NotMeasured as missing:
        return skip("holders-unknown", f"whether processes use {device.name} on {host.name} is not known: {missing}")
    if share > options.idle_share:
        return skip(
            "held",
            f"processes used devices of {host.name} for {share:.0%} of the time, more than {options.idle_share:.0%}",
        )
    if observed_h < options.observed_h:
        return skip(
            "observed-briefly",
            f"devices of {host.name} were idle, but only {observed_h:.1f} of {options.observed_h:g} h were observed",
        )
    return None


def _what_to_move(host: Host, idle: int, devices: int, fleet: Fleet) -> str:
    names = ", ".join(dict.fromkeys(deployment.name for deployment in fleet.deployments_on(host)))
    first = f"move {names} to other devices first" if names else "other processes use the rest: end these first"
    return f"{idle} of {devices} devices of {host.name} are idle, but it can only be released as a whole: {first}"
