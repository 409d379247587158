"""Computed dollars of each host and day: the other side of a reconciliation."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pertoken.costs.bill import Bill, midnights
from pertoken.units import HOUR_MS
from pertoken.window.reading import DAY, Window


@dataclass(slots=True)
class ComputedDay:
    """The devices of one host on one day."""

    nano_usd: int = 0
    """Of the device time that has a price."""
    device_ms: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """How long each device that is paid for was recorded."""

    @property
    def hours(self) -> float:
        """Hours in which the host was recorded: those of its device that was there longest."""
        return max(self.device_ms.values(), default=0) / HOUR_MS


Computed = Mapping[tuple[int, int], ComputedDay]
"""By host id and number of the day since 1970."""


def paid_devices(window: Window) -> dict[int, tuple[int, ...]]:
    """Return the devices that an instance's price is spread over, by host: its accelerators, else its CPUs."""
    by_host: dict[int, list[int]] = defaultdict(list)
    devices = window.inventory.devices
    for device_id, row in devices.items():
        if row.parent_id is None:
            by_host[row.host_id].append(device_id)
    return {
        host: tuple(device_id for device_id in ids if devices[device_id].kind != "cpu") or tuple(ids)
        for host, ids in by_host.items()
    }


def computed_days(bill: Bill) -> dict[tuple[int, int], ComputedDay]:
    """Return the dollars and hours of each host and day of a bill."""
    owners = {device: host for host, ids in paid_devices(bill.window).items() for device in ids}
    days: dict[tuple[int, int], ComputedDay] = defaultdict(ComputedDay)
    for line in bill.device_costs(midnights(bill.window)):
        if line.device_id in owners:
            day = days[owners[line.device_id], line.start_ts // DAY]
            day.device_ms[line.device_id] += line.duration_ms
            day.nano_usd += line.nano_usd or 0
    return dict(days)
