"""The bill: a window with its prices, and every dollar of it. The one place where recorded time meets prices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from pertoken.costs.ledger import KindDollars, cost, kinds_by_deployment
from pertoken.costs.lines import Money, allocations
from pertoken.costs.prices.book import Discount, Price, PriceBook
from pertoken.costs.prices.stored import price_book
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import MINUTE
from pertoken.window.figures import counted_ms, observed_share
from pertoken.window.inventory import Inventory, KnownDevice
from pertoken.window.reading import DAY, Window, WindowInterval
from pertoken.window.totals import Details, Recent, Totals

if TYPE_CHECKING:  # numpy is loaded by the methods that need it: the first screen does not
    from pertoken.costs.lines import BilledBuckets


class DeviceCost(NamedTuple):
    """Time of one device that is paid for, at one price."""

    start_ts: int
    end_ts: int
    device_id: int
    duration_ms: int
    nano_usd: int | None
    """None: the device has no price then."""


class Bill:
    """A window, its prices and its dollars. Each part is read on first access, in the caller's transaction."""

    def __init__(self, store: Store, connection: Connection, window: Window, proposed: Sequence[Discount] = ()) -> None:
        """`connection` reads the telemetry of `store`, as `window` does; `proposed` discounts are not stored yet."""
        self._store, self._connection, self.window, self._proposed = store, connection, window, proposed

    @property
    def inventory(self) -> Inventory:
        """Hosts, devices and deployments of the window."""
        return self.window.inventory

    @cached_property
    def prices(self) -> PriceBook:
        """All prices of the database."""
        return price_book(self._store, self._connection, self.inventory, self._proposed)

    @cached_property
    def _intervals(self) -> tuple[WindowInterval, ...]:
        return self.window.intervals(self.prices.changes())

    @cached_property
    def totals(self) -> Totals:
        """Sums of the window, cut where prices change."""
        return self.window.totals(self._intervals)

    @cached_property
    def recent(self) -> Recent:
        """Present state."""
        return self.window.recent()

    @cached_property
    def details(self) -> Details:
        """Figures that only the lines of deployments show."""
        return self.window.details()

    @contextmanager
    def pipelined(self) -> Iterator[None]:
        """Send the queries of sums and present state without waiting: the server works while Python does."""
        window_intervals = self._intervals
        with self.window.pipelined():
            self.totals, self.recent = self.window.totals(window_intervals), self.window.recent()
            yield

    def fetch_details(self) -> None:
        """Wait for the sums, then send the queries of details: the server works while the bill is computed."""
        self.recent.wait()
        self.details = self.window.details()

    @cached_property
    def money(self) -> Money:
        """Dollars of the window, split among their payers."""
        inventory = self.inventory
        held_times = (interval.held_time(inventory) for interval in self.totals.intervals)
        return allocations(held_times, inventory.devices, self.prices)

    @cached_property
    def kinds(self) -> Mapping[int, KindDollars]:
        """Dollars of each deployment with a price by kind of token; they sum to its part of the bill."""
        return kinds_by_deployment(self.totals.intervals, self.money.allocations, self.inventory)

    def by_bucket(self, bucket_s: int) -> "BilledBuckets":
        """Return the same dollars by bucket of time, with the readings of each. `bucket_s`: whole hours."""
        from pertoken.costs.lines import BilledBuckets

        return BilledBuckets(self.window, self.prices, bucket_s)

    @cached_property
    def payers(self) -> Mapping[int, KnownDevice]:
        """Rows of the devices that are paid for, by id: a MIG device is paid for with its GPU."""
        return {device_id: row for device_id, row in self.inventory.devices.items() if row.parent_id is None}

    def device_costs(self, cuts: Iterable[int] = ()) -> Iterator[DeviceCost]:
        """Yield the cost of each device that is paid for between two cuts each; prices change at cuts of their own."""
        for start_ts, end_ts, times in self.window.device_time({*self.prices.changes(), *cuts}):
            paid = [(device_id, ms) for device_id, ms, _ in times if device_id in self.payers]
            rates = self.prices.rates((self.payers[device_id] for device_id, _ in paid), start_ts)
            for (device_id, ms), rate in zip(paid, rates, strict=True):
                yield DeviceCost(start_ts, end_ts, device_id, ms, None if rate is None else cost(ms, rate))

    @cached_property
    def price_of(self) -> Mapping[int, Price | None]:
        """Present price of each device that is paid for."""
        return dict(zip(self.payers, self.prices.each_at(self.payers.values(), self.window.end), strict=True))

    def observed(self, deployment_id: int) -> tuple[int, int]:
        """Return milliseconds in which a deployment was observed, and in which it should have been."""
        row, observed_ms = self.inventory.newest[deployment_id], self.totals.of(deployment_id).get("observed_ms") or 0
        first_ts = self.inventory.epochs_of[deployment_id][0].start_ts
        expected_ms = self._expected_ms(row.host_id, first_ts, row.newest_ts)
        return counted_ms(observed_ms, expected_ms), expected_ms

    def bill_observed(self) -> float | None:
        """Return the share of the time priced devices should have been there that was observed; None without any."""
        observed_ms = expected_ms = 0
        devices, money, newest_ts = self.inventory.devices, self.money, self.recent.newest_ts
        for device_id, price in self.price_of.items():
            if price is not None or device_id in money.priced_devices:
                row = devices[device_id]
                ms = self._expected_ms(row.host_id, row.first_ts, newest_ts[device_id])
                expected_ms += ms
                observed_ms += counted_ms(money.observed_ms.get(device_id, 0), ms)
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


def midnights(window: Window) -> range:
    """Return the starts of days, UTC, within a window."""
    return range(window.start // DAY * DAY + DAY, window.end, DAY)


@contextmanager
def bill(
    store: Store, start: int, end: int, *, dated: bool = False, proposed: Sequence[Discount] = ()
) -> Iterator[Bill]:
    """Open the bill of [start, end), in a transaction of its own. Raises StoreError.

    `dated`: `end`, a whole minute, is in the past, and everything is as of then. `proposed`: discounts that are not
    stored yet.
    """
    with store.read() as connection:
        yield Bill(store, connection, Window(connection, start, end, dated=dated), proposed)
