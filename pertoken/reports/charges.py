"""The ledger by device and day, split by allocation: lines that sum to the ledger exactly."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pertoken.apportion import apportion
from pertoken.costs.money import Money, allocations
from pertoken.costs.priced import PricedWindow
from pertoken.reports.period import DAY
from pertoken.window.totals import Stretch

BUSY, IDLE, OTHER, UNALLOCATED = "busy", "idle", "other", "unallocated"
USES = (BUSY, IDLE, OTHER, UNALLOCATED)


class Allocation(NamedTuple):
    """Allocation of a device: use, and the epoch to which it was allocated."""

    use: str
    """One of `USES`."""
    epoch_id: int | None = None
    """Only for `BUSY` and `IDLE`."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Cost of one device on one day in one allocation."""

    start: int
    """First instant of the day within the window."""
    end: int
    device_id: int
    allocation: Allocation
    nano_usd: int


@dataclass(frozen=True, slots=True)
class DayTokens:
    """Tokens of one epoch on one day; None: not counted."""

    prompt: int | None
    cached: int | None
    generated: int | None


@dataclass(frozen=True, slots=True)
class Charges:
    """The ledger of a window, day by day."""

    money: Money
    """The ledger, as `pertoken costs` has it."""
    lines: tuple[Charge, ...]
    """By device and day. Their sum by allocation is that of the ledger."""
    time_ms: Mapping[tuple[int, int], int]
    """(start of a line, device) -> device time."""
    tokens: Mapping[tuple[int, int], DayTokens]
    """(start of a line, epoch) -> tokens."""

    def by_day(self) -> dict[int, dict[str, int]]:
        """Return nano-USD by start of the day and use."""
        days: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(USES, 0))
        for line in self.lines:
            days[line.start // DAY * DAY][line.allocation.use] += line.nano_usd
        return dict(days)


def charges(priced: PricedWindow) -> Charges:
    """Return the cost of each device with a price on each day of a window."""
    window, prices, money, inventory = priced.window, priced.prices, priced.money, priced.inventory
    midnights = range(window.start // DAY * DAY + DAY, window.end, DAY)
    weights: dict[tuple[int, Allocation], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    time_ms: dict[tuple[int, int], int] = defaultdict(int)
    tokens: dict[tuple[int, int], DayTokens] = {}
    for stretch in window.totals(window.pieces({*prices.changes(), *midnights})).stretches:
        start = max(window.start, stretch.start // DAY * DAY)
        daily = allocations([stretch], inventory.devices, inventory.own_devices, prices)
        for device_id, allocation, nano_usd in _parts(daily):
            weights[device_id, allocation][start] += nano_usd
        for device_id, duration_ms, _ in stretch.times:
            time_ms[start, device_id] += duration_ms
        _count(tokens, start, stretch)
    # Daily costs are rounded separately; apportioning the ledger's exact sums makes the days sum to it.
    exact: dict[tuple[int, Allocation], int] = defaultdict(int)
    for device_id, allocation, nano_usd in _parts(money):
        exact[device_id, allocation] += nano_usd
    lines = []
    for (device_id, allocation), nano_usd in exact.items():
        last = max(window.start, (window.end - 1) // DAY * DAY)
        days = weights.get((device_id, allocation)) or {last: 1}
        for (start, _), part in zip(days.items(), apportion(nano_usd, list(days.values())), strict=True):
            if part:
                end = min(window.end, start // DAY * DAY + DAY)
                lines.append(Charge(start, end, device_id, allocation, part))
    order = inventory.order
    lines.sort(
        key=lambda line: (line.start, order[line.device_id], USES.index(line.allocation.use), line.allocation[1] or 0)
    )
    return Charges(money, tuple(lines), dict(time_ms), tokens)


def _parts(money: Money) -> Iterable[tuple[int, Allocation, int]]:
    """Yield (device, allocation, nano-USD) of a ledger, without zeros."""
    for part, device_ids in money.by_devices:
        amounts = [
            *((Allocation(BUSY, epoch_id), nano) for epoch_id, nano in part.busy.items()),
            *((Allocation(IDLE, epoch_id), nano) for epoch_id, nano in part.idle.items()),
            (Allocation(OTHER), part.other),
            (Allocation(UNALLOCATED), part.unallocated),
        ]
        for device_id in device_ids:
            for allocation, nano_usd in amounts:
                if nano_usd:
                    yield device_id, allocation, nano_usd


def _count(tokens: dict[tuple[int, int], DayTokens], start: int, stretch: Stretch) -> None:
    for row in stretch.totals:
        key = start, row.epoch_id
        had = tokens.get(key, DayTokens(None, None, None))
        tokens[key] = DayTokens(
            _plus(had.prompt, row.prompt_tokens),
            _plus(had.cached, row.cached_tokens),
            _plus(had.generated, row.generated_tokens),
        )


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)
