"""Cost of each host over hours of the clock, and per million tokens served on it."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from pertoken.costs.bill import bill
from pertoken.costs.served import Served
from pertoken.printable import natural_key
from pertoken.store.connect.open import Store
from pertoken.units import first_hour
from pertoken.window.columns import per_mtok


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
    generated_tokens: int | None = None
    requests: int | None = None

    @property
    def served(self) -> Served:
        """Its dollars and tokens; without dollars where an accelerator has no price."""
        nano_usd = None if self.unpriced_devices else self.nano_usd
        prompt = None if self.tokens is None else self.tokens - (self.generated_tokens or 0)
        return Served(nano_usd, prompt, self.generated_tokens, self.requests)

    @property
    def nano_usd_per_mtok(self) -> int | None:
        """Nano-USD for a million tokens; None where an accelerator has no price, or no token was served."""
        return None if self.unpriced_devices else per_mtok(self.nano_usd, self.tokens)


def host_costs(store: Store, hours: int, now_ts: int, *, dated: bool = False) -> tuple[HostCost, ...]:
    """Return every host of the last `hours` hours of the clock, the one under way included, dearest first.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then. Raises StoreError.
    """
    nano_usd: Counter[int] = Counter()
    unpriced: defaultdict[int, set[int]] = defaultdict(set)
    with bill(store, first_hour(hours, now_ts), now_ts, dated=dated) as priced:
        inventory = priced.inventory
        for line in priced.device_costs():
            device = inventory.devices[line.device_id]
            if line.nano_usd is not None:
                nano_usd[device.host_id] += line.nano_usd
            elif device.kind != "cpu":
                unpriced[device.host_id].add(line.device_id)
        served = {row[0]: row[1:] for row in priced.window.tokens() if row[1] is not None}
    tokens, generated, requests = Counter[int](), Counter[int](), Counter[int]()
    for row in inventory.served:
        if row.epoch_id in served:
            for counts, count in zip((tokens, generated, requests), served[row.epoch_id], strict=True):
                counts[row.host_id] += count or 0
    accelerators = Counter(row.host_id for row in priced.payers.values() if row.kind != "cpu")
    lines = (
        HostCost(
            row.name,
            accelerators[row.host_id],
            len(unpriced[row.host_id]),
            nano_usd.get(row.host_id),
            *(counts.get(row.host_id) for counts in (tokens, generated, requests)),
        )
        for row in inventory.hosts
    )
    return tuple(sorted(lines, key=lambda line: (-(line.nano_usd or 0), natural_key(line.name))))
