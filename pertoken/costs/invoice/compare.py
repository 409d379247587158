"""A bill compared with a database: its hosts by name, what was computed of them, and the prices it gives."""

from collections.abc import Mapping
from dataclasses import dataclass

from pertoken.costs.bill import bill
from pertoken.costs.invoice.billed import HostDevices, billed_prices
from pertoken.costs.invoice.computed import computed_days, paid_devices
from pertoken.costs.invoice.read import Invoice
from pertoken.costs.invoice.reconcile import Reconciliation, names_of, reconcile
from pertoken.costs.prices.book import Price
from pertoken.store.connect.open import Store
from pertoken.window.reading import DAY


@dataclass(frozen=True, slots=True)
class Compared:
    """A reconciliation with its hosts."""

    reconciliation: Reconciliation
    hosts: Mapping[int, HostDevices]

    def prices(self, source: str, set_ts: int) -> tuple[Price, ...]:
        """Return the billed price of each device, from when on."""
        return billed_prices(self.reconciliation, self.hosts, source, set_ts)


def compared(store: Store, invoice: Invoice, stated: Mapping[str, str], now_ts: int) -> Compared:
    """Compare a bill with what a database has of its days. `stated`: resource ids by host name. Raises StoreError."""
    first, last = invoice.span
    with bill(store, first // DAY * DAY, min(now_ts, -(-last // DAY) * DAY)) as priced:
        window, devices = priced.window, priced.inventory.devices
        computed = computed_days(priced) if window.start < window.end else {}
    hosts = {
        host_id: HostDevices(devices[ids[0]].host_name, tuple(devices[device_id].uuid for device_id in ids))
        for host_id, ids in paid_devices(window).items()
    }
    names = names_of(((host_id, host.name) for host_id, host in hosts.items()), stated)
    devices = {host_id: len(host.uuids) for host_id, host in hosts.items()}
    return Compared(reconcile(invoice, names, computed, devices), hosts)
