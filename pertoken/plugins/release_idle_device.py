"""Rule: give back devices that nothing holds."""

from collections.abc import Iterator

from pertoken.rule import Fleet, FleetDevice, NotMeasured, Skip, rule, skip

IDLE = 0.01
"""Share of the observed time that some process may have held it."""
OBSERVED_H = 20.0
"""Hours that must have been observed: a day but for gaps, so that a daily job is not missed (Sources, 2)."""


@rule("release-idle-device")
def release_idle_device(fleet: Fleet) -> Iterator[Fleet | Skip]:
    """Give back accelerators that no process holds.

    ## Why it saves
    A device nobody holds costs as much per hour as a busy one. Idle power is a small part of it: only giving the
    device, its instance or its reservation back lowers the bill.
    ## When it is wrong
    It may be a warm spare, or held once a week. Clouds rent whole instances: a device in one that is otherwise used
    cannot be given back alone. Owned devices cost the same idle; move work to them instead.
    ## How to apply
    Make sure that nobody keeps it as a spare, then end its instance or shrink to a smaller one.
    ## Sources
    1. arXiv 2605.23918: idle power of loaded and empty GPUs; a released instance is the only large saving.
    2. The limits of 1 % and 20 h are judgement: a day of use must have been seen before a device is called idle.
    """
    idle: dict[str, list[FleetDevice]] = {}
    reasons: dict[str, None] = {}
    for device in fleet.devices:
        if device.device_id in fleet.released:
            continue
        if (reason := _why_keep(device)) is None:
            idle.setdefault(device.host, []).append(device)
        else:
            reasons[reason] = None
    for devices in idle.values():
        candidate = fleet
        for device in devices:
            candidate = candidate.release(device)
        yield candidate
    if not idle:
        yield skip("; ".join(reasons) or "no devices were seen")


def _why_keep(device: FleetDevice) -> str | None:
    if device.accelerator is None:
        return f"{device.name} is no accelerator of the catalog"
    try:
        held, observed_h = device.seen.held.mean, device.seen.observed_h.mean
    except NotMeasured as missing:
        return f"who holds {device.name} is not known: {missing}"
    if held > IDLE or device.deployment_ids:
        return f"{device.name} on {device.host} is held"
    if observed_h < OBSERVED_H:
        return f"{device.name} on {device.host} was idle, but only {observed_h:.1f} of {OBSERVED_H:g} h were observed"
    return None
