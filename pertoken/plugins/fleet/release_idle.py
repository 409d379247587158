"""Rule: release hosts whose devices nobody holds."""

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
    """What a person may set; the defaults are judgement (Sources, 2)."""

    idle_share: float = option(
        0.01, "share of the observed time that some process may have held a device that is called idle", low=0, high=1
    )
    observed_h: float = option(
        20.0, "hours that must have been observed: a day but for gaps, so that a daily job is not missed", low=0
    )


@rule("release-idle")
def release_idle(seen: FleetEvidence, fleet: Fleet, options: Options) -> Iterator[Proposal | Skip]:
    """Release hosts whose accelerators no process holds.

    ## Why it saves
    A device nobody holds costs as much per hour as a busy one. Idle power is a small part of it: only giving the
    instance or server back lowers the bill.
    ## When it is wrong
    It may be a warm spare, or held once a week. Clouds rent whole instances: a device in one that is otherwise used
    cannot be given back alone. Owned devices cost the same idle; move work to them instead.
    ## How to apply
    Make sure that nobody keeps it as a spare, then end its instance. Where part of a host is idle, move what runs on
    the rest first.
    ## Sources
    1. arXiv 2605.23918: idle power of loaded and empty GPUs; a released instance is the only large saving.
    2. The limits of 1 % and 20 h are judgement: a day of use must have been seen before a device is called idle.
    """
    for host in fleet.hosts:
        found = [fleet.device(each) for each in host.device_ids]
        devices = [each for each in found if each.kind != "cpu"] or found
        refusals = [refusal for each in devices if (refusal := _why_keep(each, host, seen, fleet, options))]
        idle = len(devices) - len(refusals)
        if devices and not refusals and not fleet.deployments_on(host):
            yield propose(fleet.release(host), risk="availability", effort="low")
        elif idle and all(each.code == "held" for each in refusals):
            yield skip("part-of-instance", _what_to_move(host, idle, len(devices), fleet), about=host)
        else:
            yield from dict.fromkeys(refusals)
    if not fleet.hosts:
        yield skip("no-devices", "0 devices were seen")


def _why_keep(device: Device, host: Host, seen: FleetEvidence, fleet: Fleet, options: Options) -> Skip | None:
    ids = {device.device_id, *(part.partition_id for part in device.partitions)}
    serving = dict.fromkeys(each.name for each in fleet.deployments if ids & set(each.device_ids))
    if serving:
        return skip("held", f"devices of {host.name} serve {', '.join(serving)}")
    if device.accelerator is None:
        return skip("no-accelerator", f"{device.name} on {host.name} is no accelerator of the catalog")
    try:
        share, observed_h = seen.of(device).held.mean, seen.of(device).observed_h.mean
    except NotMeasured as missing:
        return skip("holders-unknown", f"who holds {device.name} on {host.name} is not known: {missing}")
    if share > options.idle_share:
        return skip(
            "held",
            f"processes held devices of {host.name} for {share:.0%} of the time, more than {options.idle_share:.0%}",
        )
    if observed_h < options.observed_h:
        return skip(
            "observed-briefly",
            f"devices of {host.name} were idle, but only {observed_h:.1f} of {options.observed_h:g} h were observed",
        )
    return None


def _what_to_move(host: Host, idle: int, devices: int, fleet: Fleet) -> str:
    holders = ", ".join(dict.fromkeys(each.name for each in fleet.deployments_on(host)))
    first = f"move {holders} to other devices first" if holders else "other processes hold the rest: end these first"
    return f"{idle} of {devices} devices of {host.name} are idle, but it is released as a whole: {first}"
