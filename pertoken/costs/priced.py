"""A window with prices: the cost of each device, and its allocation to deployments."""

from collections.abc import Mapping
from functools import cached_property

from pertoken.costs.money import Money, allocations
from pertoken.costs.prices.book import Price, PriceBook
from pertoken.store.schema.rollup_tables import MINUTE
from pertoken.window.inventory import Inventory
from pertoken.window.observed import observed_share
from pertoken.window.reading import Window
from pertoken.window.recent import Recent
from pertoken.window.totals import Details, Totals


class PricedWindow:
    """Sums of a window, its present state, and prices."""

    def __init__(self, window: Window, totals: Totals, recent: Recent, details: Details, prices: PriceBook) -> None:
        self.window, self.totals, self.recent, self.details = window, totals, recent, details
        self.prices = prices

    @property
    def inventory(self) -> Inventory:
        """What there was."""
        return self.window.inventory

    @cached_property
    def money(self) -> Money:
        """The bill."""
        inventory = self.inventory
        return allocations(self.totals.stretches, inventory.devices, inventory.own_devices, self.prices)

    @cached_property
    def price_of(self) -> Mapping[int, Price | None]:
        """What an hour of each device costs now. A MIG device, which is paid for with its GPU, is not in it."""
        payers = {device_id: row for device_id, row in self.inventory.devices.items() if row.parent_id is None}
        return dict(zip(payers, self.prices.each_at(payers.values(), self.window.end), strict=True))

    def observed(self, deployment_id: int) -> tuple[int, int]:
        """Return milliseconds in which a deployment was observed, and in which it should have been."""
        row, observed_ms = self.inventory.newest[deployment_id], self.totals.of(deployment_id).get("observed_ms") or 0
        first_ts = self.inventory.epochs_of[deployment_id][0].start_ts
        return observed_ms, self._expected_ms(row.host_id, first_ts, row.newest_ts)

    def bill_observed(self) -> float | None:
        """Return the share of the time priced devices should have been there that was observed; None without any."""
        observed_ms = expected_ms = 0
        devices, money, newest_ts = self.inventory.devices, self.money, self.recent.newest_ts
        for device_id, price in self.price_of.items():
            if price is not None or device_id in money.priced_devices:
                row = devices[device_id]
                ms = self._expected_ms(row.host_id, row.first_ts, newest_ts[device_id])
                expected_ms += ms
                observed_ms += min(ms, money.observed_ms.get(device_id, 0))
        return observed_share(observed_ms, expected_ms)

    def _expected_ms(self, host_id: int, first_ts: int, newest_ts: int) -> int:
        """Return how long rows of a device or deployment should have been there, by its first and newest row.

        On a host that reports it was there until its newest row; on one that stopped nobody knows, so until now.
        """
        start, until, settled_s, reporting = self._expected
        if host_id in reporting:
            until = min(until, newest_ts // settled_s * settled_s)
        return 1000 * max(0, until - max(start, first_ts))

    @cached_property
    def _expected(self) -> tuple[int, int, int, frozenset[int]]:
        """Start and end of the window, multiple of seconds of the newest roll-up, and hosts that report."""
        start, inventory = self.window.start // MINUTE * MINUTE, self.inventory
        return start, self.window.end, inventory.settled_s, inventory.reporting
