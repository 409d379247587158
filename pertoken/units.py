"""Units used across pertoken, their conversions and how they are written for people.

Money is integer nano-dollars (1e-9 USD), so that sums are exact. Shares and ratios are stored as scaled
integers. Everything else carries its unit in its name: `power_w`, `energy_j`, `memory_bytes`, `ts` (epoch
seconds, UTC).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

NANO_USD = 1_000_000_000
"""Nano-dollars in a dollar."""
MTOK = 1_000_000
HOUR_MS = 3_600_000
HOUR_S = 3600
RATIO = 10_000
"""A stored ratio of 1 (fields named `*_1e4`)."""
SHARE = 1_000_000
"""A stored share of 1 (fields named `*_1e6`)."""
HOURS_PER_MONTH = 730
"""Hours a month is taken to have when money per hour is shown per month."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|w)")
MAX_DURATION_S = 100 * 365 * 86_400
"""Longer is a slip of the keyboard, and beyond what a time can count back."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def parse_duration_s(text: str) -> float:
    """Return the seconds in `10s`, `1.5m`, `24h`, `30d` or `2w`; a number without a unit is refused, not guessed.

    Raises ValueError naming the text and the accepted forms.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write it with a unit, like 10s, 5m, 24h or 30d")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{text!r} is longer than 100 years")
    return seconds


def parse_time(text: str, now_ts: float) -> int:
    """Return the epoch second of `2026-11-21T10:00Z`, `2026-11-21`, or of `24h` or `-24h` before `now_ts`.

    A time without an offset is UTC. Raises ValueError naming the text and the accepted forms.
    """
    with suppress(ValueError):
        return int(now_ts - parse_duration_s(text.strip().removeprefix("-")))
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: write it like 2026-11-21T10:00Z, 2026-11-21, or 24h for ago"
        ) from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def first_hour(hours: int, end_ts: int) -> int:
    """Return the start of the first of `hours` hours of the clock up to `end_ts`, the one that it lies in included.

    At a full hour the last of them is the hour that ends there, so that the hours are never empty.
    """
    return (-(-end_ts // HOUR_S) - hours) * HOUR_S


MAX_DATED_S = 253_402_300_799
"""Last second of the year 9999, in epoch seconds."""


def format_duration(seconds: float) -> str:
    """Return the shortest usual form: `45s`, `12m`, `3h`, `2d`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def format_utc(ts: float) -> str:
    """Return a time (epoch seconds) as people write it: `2026-11-21 10:00Z`; one without a date as its seconds."""
    if not 0 <= ts <= MAX_DATED_S:
        return f"second {ts:.0f}"
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d %H:%MZ")


def format_usd(nano_usd: int | float | None, unknown: str = "–") -> str:
    """Return dollars with three significant digits below 100, else thousands separators: `$0.0123`, `$1,234`."""
    return unknown if nano_usd is None else format_money(nano_usd / NANO_USD, "$")


def format_money(value: float, symbol: str) -> str:
    """Return an amount behind its symbol, with three significant digits below 100: `€0.0123`, `CHF 1,234`."""
    sign, value = ("-" if value < 0 else ""), abs(value)
    if value == 0:
        return f"{symbol}0"
    if value >= 100:
        return f"{sign}{symbol}{value:,.0f}"
    if value >= 1:
        return f"{sign}{symbol}{value:.2f}"
    digits = 3
    while digits < 9 and value < 10 ** (2 - digits):
        digits += 1
    return f"{sign}{symbol}{value:.{digits}f}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 replica`, `2 replicas`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_count(value: int | float | None, unknown: str = "–") -> str:
    """Return a count with an SI suffix and at most three significant digits: `950`, `12.3k`, `4.56M`."""
    if value is None:
        return unknown
    for suffix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return _three(value / size) + suffix
    return _three(value)


def format_bytes(value: int | float | None, unknown: str = "–") -> str:
    """Return bytes in binary units: `79.6 GiB`."""
    if value is None:
        return unknown
    for suffix, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= size:
            return f"{_three(value / size)} {suffix}"
    return f"{value:.0f} B"


def _three(value: float) -> str:
    if value == int(value) and abs(value) < 1000:
        return f"{value:.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Return integers in proportion to `weights` that sum exactly to `total`; the largest remainders get the rest.

    If all weights are 0, the last one gets everything. Raises ValueError for a negative weight or no weight at all.
    """
    if not weights or min(weights) < 0:
        raise ValueError("weights must be there and not negative")
    whole = sum(weights)
    if whole == 0:
        return [*[0] * (len(weights) - 1), total]
    parts = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
