"""The bill by device and day, line by line, with the device time and tokens of each day."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pertoken.costs.bill import Bill
from pertoken.costs.lines import USES, AllocatedLine
from pertoken.reports.period import DAY
from pertoken.window.columns import NULL, Columns
from pertoken.window.reading import ServedBuckets


@dataclass(frozen=True, slots=True)
class DayTokens:
    """Tokens of one epoch on one day; None: not counted."""

    prompt: int | None
    cached: int | None
    generated: int | None


@dataclass(frozen=True, slots=True)
class Charges:
    """The bill of a window, day by day."""

    lines: tuple[AllocatedLine, ...]
    """By device and day. Their sum by use is that of the bill."""
    time_ms: Mapping[tuple[int, int], int]
    """(start of a line, device) -> device time."""
    tokens: Mapping[tuple[int, int], DayTokens]
    """(start of a line, epoch) -> tokens."""

    def by_day(self) -> dict[int, dict[str, int]]:
        """Return nano-USD by start of the day and use."""
        days: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(USES, 0))
        for line in self.lines:
            days[line.start_ts // DAY * DAY][line.use] += line.nano_usd
        return dict(days)


def charges(bill: Bill) -> Charges:
    """Return the cost of each device with a price on each day of a window."""
    billed, order, first_ts = bill.by_bucket(DAY), bill.inventory.order, bill.window.start
    lines = sorted(
        billed.lines(),
        key=lambda line: (line.start_ts, order[line.device_id], USES.index(line.use), line.epoch_id or 0),
    )
    return Charges(tuple(lines), _time_ms(billed.device_buckets, first_ts), _tokens(billed.parts, first_ts))


def _time_ms(parts: Iterable[Columns], first_ts: int) -> dict[tuple[int, int], int]:
    time_ms: dict[tuple[int, int], int] = defaultdict(int)
    for part in parts:
        columns = (part.ints(name).tolist() for name in ("device_id", "ts", "duration_ms"))
        for device_id, ts, duration_ms in zip(*columns, strict=True):
            time_ms[max(first_ts, ts // DAY * DAY), device_id] += duration_ms
    return dict(time_ms)


def _tokens(parts: Iterable[ServedBuckets], first_ts: int) -> dict[tuple[int, int], DayTokens]:
    tokens: dict[tuple[int, int], DayTokens] = {}
    names = ("epoch_id", "ts", "prompt_tokens", "cached_tokens", "generated_tokens")
    for part in parts:
        columns = (part.served.ints(name).tolist() for name in names)
        for epoch_id, ts, *counts in zip(*columns, strict=True):
            key = max(first_ts, ts // DAY * DAY), epoch_id
            total = tokens.get(key, DayTokens(None, None, None))
            prompt, cached, generated = (None if count == NULL else count for count in counts)
            tokens[key] = DayTokens(
                _plus(total.prompt, prompt), _plus(total.cached, cached), _plus(total.generated, generated)
            )
    return tokens


def _plus(total: int | None, count: int | None) -> int | None:
    return count if total is None else total + (count or 0)
