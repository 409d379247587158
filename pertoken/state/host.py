"""Hosts, their devices, and the partitions of these."""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from pertoken.state.errors import InvalidEdit
from pertoken.state.placement import Placement

MAX_PARTITIONS = 8
"""Source: 7 MIG instances of an NVIDIA GPU, 8 partitions of an AMD MI300X."""
LINKS = ("nvlink", "pcie_switch", "pcie_host", "cross_socket", "network")
"""How two devices reach each other, fastest first: directly, below one PCIe switch, through the host bridge or NUMA
node they share, from one CPU socket to another, from host to host."""
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_/-]{0,31}")


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a device (MIG instance, AMD partition); it is paid for with the whole device."""

    partition_id: int
    """Below 0 for one that a proposal would make: `partition` numbers these -1, -2, ..."""
    profile: str
    """`1g.10gb`, `CPX`, ..."""
    share: float | None = None
    """Part of the device's compute, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, or the CPUs of a host."""

    device_id: int
    name: str
    host_id: int
    accelerator: str | None = None
    """Catalog name; None if the catalog does not know it."""
    kind: str = "gpu"
    """`gpu` or `cpu`: the CPUs of a host are one device, whose price GPUs usually include."""
    partitions: tuple[Partition, ...] = ()
    links: tuple[tuple[int, str], ...] = ()
    """(id of another device of this host, one of `LINKS`), as far as its driver reports them."""


@dataclass(frozen=True, slots=True)
class Host:
    """The unit that can be released: an instance or a server with all its devices."""

    host_id: int
    name: str
    device_ids: tuple[int, ...] = ()
    placement: Placement = field(default_factory=Placement)
    paid_until: int | None = None
    """Epoch seconds until which it is paid for anyway; None where no term is known."""


def divided(device: Device, profiles: Sequence[str], used: Container[int]) -> Device:
    """Return a device with a partition of each profile, numbered -1, -2, ... without the `used` ids.

    Raises InvalidEdit if it is divided already, for what is no profile, and for more than `MAX_PARTITIONS`.
    """
    if device.partitions:
        raise InvalidEdit(f"{device.name} is divided already")
    if not profiles or not all(isinstance(profile, str) and _PROFILE.fullmatch(profile) for profile in profiles):
        raise InvalidEdit("name the profile of each partition, such as 3g.40gb")
    if len(profiles) > MAX_PARTITIONS:
        raise InvalidEdit(f"a device is divided into at most {MAX_PARTITIONS} partitions")
    free = (-number for number in count(1) if -number not in used)
    return replace(device, partitions=tuple(Partition(next(free), profile) for profile in profiles))


def accelerators(devices: Sequence[Device]) -> frozenset[int]:
    """Return the ids of those devices of a host that decide whether it is used: its CPUs if it has nothing else."""
    chosen = [device for device in devices if device.kind != "cpu"] or devices
    return frozenset(device.device_id for device in chosen)
