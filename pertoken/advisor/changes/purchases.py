"""Commands that buy and return hardware: instances, hosts and commitments."""

from dataclasses import dataclass

from pertoken.catalog.clouds import cloud_commands
from pertoken.state.deployment import Commitment, Placement
from pertoken.state.fleet import Fleet, Host
from pertoken.units import NANO_USD, counted, format_usd

PROCESSES = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
"""Command that prints the processes on the devices of a host."""


@dataclass(frozen=True, slots=True)
class Step:
    """Commands that belong together, and the commands that undo them."""

    apply: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    retire: tuple[str, ...] = ()
    """Lines that stop servers or give hardware back: they follow every line of `apply` of all steps."""
    retire_undone: tuple[str, ...] = ()
    """The same among the lines of an undo."""


def commit(commitment: Commitment) -> Step:
    """Return the commands that buy a commitment. Nothing undoes them."""
    location = " ".join(part for part in (commitment.provider, commitment.region) if part)
    return Step(
        (
            f"Commit to {commitment.count} × {commitment.instance_type} at {location} for "
            f"{format_usd(commitment.nano_usd_per_instance_hour)} per instance and hour{_term(commitment)}.",
            *_buy(commitment),
        ),
        ("A commitment cannot be cancelled before it ends.",),
    )


def _buy(commitment: Commitment) -> tuple[str, ...]:
    """Return the commands that buy a commitment; empty if the cloud is unknown or has no such command."""
    cloud = cloud_commands().get(commitment.provider)
    if cloud is None or not commitment.region or not commitment.years:
        return ()
    usd = commitment.count * commitment.nano_usd_per_instance_hour / NANO_USD
    return cloud.committed(commitment.instance_type, commitment.region, years=commitment.years, usd_per_hour=usd)


def _term(commitment: Commitment) -> str:
    return f", for {commitment.years} year{'s' if commitment.years > 1 else ''}" if commitment.years else ""


def release(name: str, host: Host | None, before: Fleet, *, nvidia: bool = False) -> Step:
    """Return the commands that drain and return a host; `host` is None where only its name is known.

    `nvidia`: whether its devices are all of NVIDIA, whose tool shows that no process uses them.
    """
    count = len(
        [device for device in before.devices if host and device.host_id == host.host_id and device.kind != "cpu"]
    )
    placement = host.placement if host is not None else Placement()
    instance = f" ({placement.instance_type})" if placement.instance_type else ""
    devices = f" with its {counted(count, 'device')}" if count else ""
    cloud = cloud_commands().get(placement.provider or "")
    returned = cloud.released(name, placement.region) if cloud and placement.region else ()
    return Step(
        undo=(f"Order {name}{instance} again.", *order(placement)),
        retire=(
            f"Drain {name}{instance}.",
            f"on {name}: {PROCESSES}  # go on only if it prints nothing"
            if nvidia
            else f"Check that no process uses the devices of {name}.",
            f"Give {name} back{devices}.",
            *returned,
        ),
    )


def order(placement: Placement, count: int = 1) -> tuple[str, ...]:
    """Return the command that starts instances; empty if its cloud, region or type is unknown."""
    cloud = cloud_commands().get(placement.provider or "")
    if (
        cloud is None
        or not placement.region
        or not placement.instance_type
        or placement.purchase not in (None, "on_demand", "spot")
    ):
        return ()
    return (cloud.ordered(placement.instance_type, placement.region, spot=placement.purchase == "spot", count=count),)
