"""A window with prices: what every device cost in it, and what of that each deployment carries."""

from functools import cached_property

from pertoken.costs.money import Money, allocations
from pertoken.costs.prices.book import Price, PriceBook
from pertoken.store.schema.rollup_tables import MINUTE
from pertoken.window.inventory import Inventory
from pertoken.window.observed import observed_share
from pertoken.window.reading import Window
from pertoken.window.recent import Recent
from pertoken.window.totals import Totals


class PricedWindow:
    """Sums of a window, how it is now, and prices."""

    def __init__(self, window: Window, totals: Totals, recent: Recent, prices: PriceBook) -> None:
        self.window, self.totals, self.recent, self.prices = window, totals, recent, prices

    @property
    def inventory(self) -> Inventory:
        """What there was."""
        return self.window.inventory

    @cached_property
    def money(self) -> Money:
        """The bill."""
        there = self.inventory
        return allocations(self.totals.stretches, there.devices, there.own_devices, self.prices)

    def price(self, device_id: int) -> Price | None:
        """Return what an hour of a device costs now."""
        return self.prices.at(self.inventory.devices[device_id], self.window.end)

    def observed(self, deployment_id: int) -> tuple[int, int]:
        """Return milliseconds in which a deployment was observed, and in which it should have been."""
        row, observed_ms = self.inventory.newest[deployment_id], self.totals.of(deployment_id).get("observed_ms") or 0
        first_ts = self.inventory.epochs_of[deployment_id][0].start_ts
        return observed_ms, self._expected_ms(row.host_id, first_ts, row.newest_ts)

    def bill_observed(self) -> float | None:
        """Return the share of the time priced devices should have been there that was observed; None without any."""
        observed_ms = expected_ms = 0
        for device_id, row in self.inventory.devices.items():
            if row.parent_id is None and (device_id in self.money.priced_devices or self.price(device_id) is not None):
                ms = self._expected_ms(row.host_id, row.first_ts, self.recent.newest_ts[device_id])
                expected_ms += ms
                observed_ms += min(ms, self.money.observed_ms.get(device_id, 0))
        return observed_share(observed_ms, expected_ms)

    def _expected_ms(self, host_id: int, first_ts: int, newest_ts: int) -> int:
        """How long rows of a device or deployment should have been there, by its first and newest row.

        On a host that reports it was there until its newest row; on one that stopped nobody knows, so until now.
        """
        settled = newest_ts // self.inventory.settled_s * self.inventory.settled_s
        reports = host_id in self.inventory.reporting
        until = min(settled, self.window.end) if reports else self.window.end
        return 1000 * max(0, until - max(self.window.start // MINUTE * MINUTE, first_ts))
