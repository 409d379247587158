"""The bill by host: the cost of each, the hosts that a change releases, and released ones that are still paid."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from pertoken.savings.context import Context
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet, Host


class NoPrice(Exception):
    """A device of the bill has no price; the message names it and how to set one."""


@dataclass(frozen=True, slots=True)
class Freed:
    """Hosts and devices that nothing uses after a change, nano-USD per hour."""

    released: tuple[Host, ...]
    """Hosts that leave the bill."""
    bankable: int
    capacity: int
    """Devices that are free on hosts that stay or stay paid for."""
    against: tuple[str, ...] = ()


def host_price(fleet: Fleet, host: Host, context: Context) -> int:
    """Return the cost of a host, nano-USD per hour: its devices together. Raises NoPrice.

    CPUs beside priced accelerators are taken to be part of their price where they have none of their own.
    """
    devices = fleet.devices_on(host)
    accelerators = any(device.kind != "cpu" for device in devices)
    total = 0
    for device in devices:
        price = context.nano_usd_per_hour.get(device.device_id)
        if price is not None:
            total += price
        elif device.kind != "cpu" or not accelerators:
            raise NoPrice(f"no price is set for {device.name} on {host.name}: set it with `pertoken prices set`")
    return total


def device_price(fleet: Fleet, device_id: int, context: Context) -> int:
    """Return the price of a device or partition, nano-USD per hour. Raises NoPrice."""
    price = context.nano_usd_per_hour.get(device_id)
    if price is None:
        name = next((device.name for device in fleet.devices if device.device_id == device_id), f"device {device_id}")
        raise NoPrice(f"no price is set for {name}: set it with `pertoken prices set`")
    return price


def whole_devices(fleet: Fleet, deployments: Iterable[Deployment]) -> frozenset[int]:
    """Return the devices that deployments run on; of a partition its whole device."""
    parts = fleet.partition_of
    return frozenset(
        parts[held][0].device_id if held in parts else held
        for deployment in deployments
        for held in deployment.device_ids
    )


def refuse_partitions(present: Fleet, deployment: Deployment) -> None:
    """Raise NoPrice for a deployment on partitions: facts on an accelerator do not hold for a part of one."""
    for held in deployment.device_ids:
        if held in present.partition_of:
            device, part = present.partition_of[held]
            raise NoPrice(
                f"{deployment.name} runs on {part.profile} of {device.name}: only whole devices can be given back, and "
                "what is known of an accelerator does not hold for a part of one"
            )


def freed(present: Fleet, still_used: frozenset[int], explicit: Iterable[Host], context: Context) -> Freed:
    """Return the hosts and devices that a change frees: `still_used` are the devices that run something after it.

    A host leaves the bill when something ran on it before and nothing does after, or when the proposal releases it
    (`explicit`), and no term or commitment keeps it paid for. Raises NoPrice.
    """
    used_before = present.used_devices
    named = {host.host_id for host in explicit}
    leaving: list[Host] = []
    capacity, against = 0, []
    unused = used_before - still_used
    affected = named.union(present.device(device_id).host_id for device_id in unused & present.device_ids)
    for host in present.hosts:
        if host.host_id not in affected:
            continue
        accelerators = present.accelerators_on.get(host.host_id, frozenset())
        if host.host_id in named or (accelerators & used_before and not accelerators & still_used):
            leaving.append(host)
            continue
        free = accelerators & unused
        if free:
            capacity += sum(device_price(present, device_id, context) for device_id in sorted(free))
            against.append(
                f"{len(free)} of {len(accelerators)} devices of {host.name}{_instance(host)} become free: the bill "
                "falls once the rest is moved elsewhere too"
            )
    released, paid = [], []
    committed = _commitments(present, context)
    staying: Counter[tuple[str | None, ...]] = Counter()
    if committed:
        staying = Counter(_unit(host) for host in present.hosts) - Counter(_unit(host) for host in leaving)
    for host in sorted(leaving, key=lambda host: (-host_price(present, host, context), host.host_id)):
        price, reason = host_price(present, host, context), _term(host, context)
        if reason is None and staying[_unit(host)] < committed[_unit(host)]:
            staying[_unit(host)] += 1  # the commitment pays for this one
            reason = f"{host.name} is covered by a commitment: the bill does not fall before it ends"
        if reason is None:
            released.append((host, price))
        else:
            paid.append((price, reason))
    return Freed(
        released=tuple(host for host, _ in released),
        bankable=sum(price for _, price in released),
        capacity=capacity + sum(price for price, _ in paid),
        against=(*against, *(reason for _, reason in paid)),
    )


def _term(host: Host, context: Context) -> str | None:
    """Return why a host stays paid for, or None."""
    purchase = host.placement.purchase
    if purchase == "owned":
        return f"{host.name} is owned: without it the bill falls by its energy only"
    if host.paid_until is not None and host.paid_until > context.now_ts:
        day = datetime.fromtimestamp(host.paid_until, UTC).date()
        return f"{host.name} is paid for until {day}: the bill does not fall before that"
    if purchase == "reserved" and host.paid_until is None:
        return f"{host.name} is reserved, and no end is set: set `paid_until` of the host"
    return None


def _commitments(fleet: Fleet, context: Context) -> Counter[tuple[str | None, ...]]:
    counts: Counter[tuple[str | None, ...]] = Counter()
    for commitment in fleet.commitments:
        if commitment.runs_after(context.now_ts):
            for unit in {_unit(host) for host in fleet.hosts}:
                if (
                    unit[0] == commitment.provider
                    and unit[2] == commitment.instance_type
                    and commitment.region in (None, unit[1])
                ):
                    counts[unit] += commitment.count
    return counts


def _unit(host: Host) -> tuple[str | None, ...]:
    return host.placement.provider, host.placement.region, host.placement.instance_type


def _instance(host: Host) -> str:
    return f" ({host.placement.instance_type}, one unit of the bill)" if host.placement.instance_type else ""
