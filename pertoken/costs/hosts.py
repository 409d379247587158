"""Cost of each host over hours of the clock, and per million tokens served on it."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from pertoken.costs.ledger import divide
from pertoken.costs.prices.stored import price_book
from pertoken.printable import natural_key
from pertoken.store.connect.open import Store
from pertoken.units import HOUR_MS, first_hour
from pertoken.window.figures import per_mtok
from pertoken.window.reading import Window


@dataclass(frozen=True, slots=True)
class HostCost:
    """One host over whole hours of the clock, the last of which is under way."""

    name: str
    devices: int
    """Accelerators."""
    unpriced_devices: int
    """Accelerators without a price in some of the time."""
    nano_usd: int | None
    """Dollars of all its devices with a price, allocated or not; None if none has a price."""
    tokens: int | None
    """Prompt (cached included) and generated tokens of the engines on it; None if none are known."""

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None where an accelerator has no price, or no token was served."""
        return None if self.unpriced_devices else per_mtok(self.nano_usd, self.tokens)


def host_costs(store: Store, hours: int, now_ts: int, *, dated: bool = False) -> tuple[HostCost, ...]:
    """Return every host of the last `hours` hours of the clock, the one under way included, dearest first.

    Dollars are rounded once for a host. `dated`: `now_ts`, a whole minute, is in the past, and everything is as of
    then. Raises StoreError.
    """
    start = first_hour(hours, now_ts)
    products: Counter[int] = Counter()
    """By host: milliseconds x nano-USD per hour."""
    unpriced: defaultdict[int, set[int]] = defaultdict(set)
    with store.read() as connection:
        window = Window(connection, start, now_ts, dated=dated)
        inventory = window.inventory
        prices = price_book(store, connection, inventory)
        payers = {device_id: row for device_id, row in inventory.devices.items() if row.parent_id is None}
        for first, _, times in window.device_time(prices.changes()):
            rates = dict(zip(payers, prices.rates(payers.values(), first), strict=True))
            for device_id, duration_ms, _ in times:
                if device_id not in payers:
                    continue  # a MIG device is paid for with its GPU
                row, rate = payers[device_id], rates[device_id]
                if rate is not None:
                    products[row.host_id] += duration_ms * rate
                elif row.kind != "cpu":
                    unpriced[row.host_id].add(device_id)
        served = {epoch_id: tokens for epoch_id, tokens in window.tokens() if tokens is not None}
    tokens: Counter[int] = Counter()
    for row in inventory.served:
        if row.epoch_id in served:
            tokens[row.host_id] += served[row.epoch_id]
    accelerators = Counter(row.host_id for row in payers.values() if row.kind != "cpu")
    lines = (
        HostCost(
            row.name,
            accelerators[row.host_id],
            len(unpriced[row.host_id]),
            divide(products[row.host_id], HOUR_MS) if row.host_id in products else None,
            tokens.get(row.host_id),
        )
        for row in inventory.hosts
    )
    return tuple(sorted(lines, key=lambda line: (-(line.nano_usd or 0), natural_key(line.name))))
