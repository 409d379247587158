"""Prices of an invoice: the billed price of each device-hour, with its first day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.costs.invoice.reconcile import Reconciliation
from pertoken.costs.prices.book import BILLED, Price
from pertoken.window.reading import DAY

SAME = 1e-4
"""Difference of two days' prices, relative, up to which they are one: exports round their amounts."""
MIN_HOURS = 0.5
"""Hours of a day from which its price is taken: of fewer the roundings of a bill would be the price."""


@dataclass(frozen=True, slots=True)
class HostDevices:
    """Devices of a host among which its price is divided."""

    name: str
    uuids: tuple[str, ...]


def billed_prices(
    reconciliation: Reconciliation, hosts: Mapping[int, HostDevices], source: str, set_ts: int
) -> tuple[Price, ...]:
    """Return a price for each device of each billed host, in force from the first day of each billed rate.

    It is the cost of the host's instance-hours, with their part of commitments, over these hours and its devices. Hours
    at $0 or that a fee on another line pays for give no price: a capacity block, credits, a commitment without its
    part. The last one stays in force after the bill, until the next.
    """
    prices: list[Price] = []
    for host_id, host in sorted(hosts.items()):
        for day, nano_usd_per_hour in _rates(reconciliation, host_id):
            per_device = round(nano_usd_per_hour / len(host.uuids))
            note = f"{source}, {host.name}"
            prices += [
                Price(uuid, per_device, from_ts=day * DAY, set_ts=set_ts, set_by=BILLED, note=note)
                for uuid in host.uuids
            ]
    return tuple(prices)


def _rates(reconciliation: Reconciliation, host_id: int) -> Sequence[tuple[int, float]]:
    """Return (day, nano-USD of an hour of the host) of the days on which its billed price changed."""
    rates: list[tuple[int, float]] = []
    for (host, day), billed in sorted(reconciliation.billed.items()):
        if host != host_id or billed.priced_hours < MIN_HOURS or billed.priced_nano_usd <= 0:
            continue
        rate = billed.priced_nano_usd / billed.priced_hours
        if not rates or abs(rate - rates[-1][1]) > SAME * rates[-1][1]:
            rates.append((day, rate))
    return rates
