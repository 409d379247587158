"""Values as text for screens: unknown is a dash, and names lose all characters that control a terminal."""

import textwrap
from collections.abc import Iterable, Sequence

from pertoken.printable import literal as literal
from pertoken.printable import literal_lines as literal_lines
from pertoken.text.amounts import NO_AMOUNT, amount, rate, symbol
from pertoken.units import NANO_USD, format_bytes, format_count, format_duration

UNKNOWN = "–"
_BARS = "▁▂▃▄▅▆▇█"
NONE_FOUND = "none found"
PROGRESS_CELLS = 10
_SLO = {"pass": "kept", "near_miss": "near miss", "fail": "broken", "unknown": "not judged"}
_MARKS = {"pass": "✓", "near_miss": "≈", "fail": "✗", "unknown": "?"}


def percent(share: float | None) -> str:
    """Return a share, 0 to 1, as `43%` or `<1%`."""
    if share is None:
        return UNKNOWN
    return "<1%" if 0 < share < 0.005 else f"{share * 100:.0f}%"


def at_most(share: float | None) -> str:
    """Return an upper bound of a share, 0 to 1, as `≤43%` or `≤1%`."""
    return UNKNOWN if share is None else f"≤{percent(share).removeprefix('<')}"


def at_least(share: float | None) -> str:
    """Return a lower bound of a share, 0 to 1, as `≥43%`, or as `>0%` where `percent` returns `<1%`."""
    return UNKNOWN if share is None else f"≥{percent(share)}".replace("≥<1%", ">0%")


def observed(share: float | None) -> str:
    """Return the observed share of a time, rounded down: `62%`; only a complete observation is `100%`."""
    return percent(share if share is None or share < 0.005 else int(share * 100) / 100)


def number(value: float | None) -> str:
    """Return a small mean: `0`, `0.4`, `12`."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def watts(power_w: float | None) -> str:
    """Return power: `412 W`."""
    return UNKNOWN if power_w is None else f"{power_w:,.0f} W"


def bytes_per_s(value: float) -> str:
    """Return a rate: `1.2 GiB/s`."""
    return f"{format_bytes(round(value))}/s"


def megahertz(clock_mhz: float) -> str:
    """Return a clock rate: `1,980 MHz`."""
    return f"{clock_mhz:,.0f} MHz"


def celsius(temperature_c: float) -> str:
    """Return a temperature: `61 °C`."""
    return f"{temperature_c:.0f} °C"


def quantity(value: float, unit: str) -> str:
    """Return a measured value in the unit that people read: `12%`, `41.0 GiB`, `412 ms`, `14.2 requests`."""
    if unit == "ratio" and abs(value) <= 1:
        return percent(value)
    if unit == "bytes":
        return format_bytes(round(value))
    if unit == "s":
        return seconds(value)
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{number} {unit_words(unit)}".rstrip()


def unit_words(unit: str) -> str:
    """Return a stored unit as people read it after a number: `98.8 an hour`, `1.25 times`."""
    return {"1/h": "an hour", "ratio": "times"}.get(unit, unit)


def seconds(value_s: float | None) -> str:
    """Return a latency in seconds as `412 ms` or `1.24 s`."""
    if value_s is None:
        return UNKNOWN
    return f"{value_s * 1000:.3g} ms" if value_s < 1 else f"{value_s:.3g} s"


def ago(age_s: float | None) -> str:
    """Return an age in seconds as `40s ago`."""
    return "never" if age_s is None else f"{format_duration(max(0.0, age_s))} ago"


def usd_range(money: tuple[int, int, int] | None) -> str:
    """Return low to high of (low, likely, high) nano-USD: `$1,200 to $2,400`."""
    if money is None:
        return UNKNOWN
    low, high = amount(money[0]), amount(money[2])
    return low if low == high else f"{low} to {high}"


def usd_triple(money: tuple[int, int, int] | None) -> str:
    """Return (low, likely, high) nano-USD in few cells: `$1,200–1,640–1,818`; `none found` if there are none."""
    if money is None or not any(money):
        return NONE_FOUND
    low, likely, high = map(amount, money)
    if low == high:
        return likely
    return f"{low}–{likely.replace('$', '', 1)}–{high.replace('$', '', 1)}"


def usd_parts(total: int, parts: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
    """Return a sum of nano-USD and its parts with the same decimals, rounded so that the texts add up.

    The parts must add up to `total`.
    """
    per_usd = rate()
    if per_usd is None:
        return NO_AMOUNT, (NO_AMOUNT,) * len(parts)
    if per_usd != 1:
        total, parts = round(total * per_usd), tuple(int(part * per_usd) for part in parts)
    decimals = 0 if total >= 100 * NANO_USD else 2 if total >= NANO_USD else 4 if total >= NANO_USD // 1000 else 9
    unit = NANO_USD // 10**decimals
    total_units = (total + unit // 2) // unit

    def written(count: int) -> str:
        return f"{symbol()}{count * unit / NANO_USD:,.{decimals}f}" if count else f"{symbol()}0"

    return written(total_units), tuple(map(written, in_units(total_units, parts, unit)))


def in_units(total: int, parts: Sequence[int], unit: int) -> list[int]:
    """Return parts in whole units that add up to `total` units; those with the largest remainders are rounded up."""
    units = [part // unit for part in parts]
    order = sorted(range(len(parts)), key=lambda i: parts[i] % unit, reverse=True)
    for i in order[: total - sum(units)]:
        units[i] += 1
    return units


def ratio_range(ratio: tuple[float, float, float] | None) -> str:
    """Return low to high of a (low, likely, high) ratio: `1.4–1.9×`."""
    if ratio is None:
        return UNKNOWN
    low, high = f"{ratio[0]:.2g}", f"{ratio[2]:.2g}"
    return f"{low}×" if low == high else f"{low}–{high}×"


def slo_verdict(slo: str) -> str:
    """Return the verdict on the latency objective in words: `kept`."""
    return _SLO[slo]


def slo_verdict_reason(slo: str) -> str:
    """Return the verdict on the latency objective in words, with the reason why there is none."""
    reason = ": no objective is set, or no latency was forecast" if slo == "unknown" else ""
    return f"{_SLO[slo]}{reason}"


def marked_verdict(slo: str) -> str:
    """Return the verdict on the latency objective with a mark that is readable without colour: `✓ kept`."""
    return f"{_MARKS[slo]} {_SLO[slo]}"


def wrapped(text: str, cells: int, label: str = "") -> list[str]:
    """Return a text after a label as lines of at most `cells` cells, those after the first below the text."""
    return textwrap.wrap(text, cells, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False)


def progress_line(phase: str, share: float) -> str:
    """Return a phase with a progress bar: `reading telemetry ████░░░░░░ 40%`."""
    if not share:
        return phase
    full = min(PROGRESS_CELLS, round(share * PROGRESS_CELLS))
    return f"{phase} {'█' * full}{'░' * (PROGRESS_CELLS - full)} {share:.0%}"


def peak(values: Iterable[float | None]) -> str:
    """Return the highest value, the upper end of the scale of a sparkline; empty without values."""
    observed = [value for value in values if value is not None]
    return format_count(max(observed)) if observed else ""


def stretched(values: Sequence[float | None], width: int) -> str:
    """Return a sparkline and its highest value in exactly `width` cells."""
    top = peak(values)
    cells = max(1, width - len(top) - 1)
    n = len(values)
    if not n:
        return ""
    cell_values = values if n >= cells else tuple(values[i * n // cells] for i in range(cells))
    return f"{sparkline(cell_values, cells)} {top}"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return at most `width` bars from 0 to the highest value, oldest first; a value of None is a gap.

    If there are more values than `width`, a bar is the mean of the known values of its group.
    """
    n = min(width, len(values))
    groups = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    seen = [[value for value in group if value is not None] for group in groups]
    means = [sum(group) / len(group) if group else None for group in seen]
    top = max((mean for mean in means if mean is not None), default=0.0)
    # Damaged rows may give a negative value, which is drawn as the lowest.
    return "".join(
        " " if m is None else _BARS[round(max(m, 0) / top * (len(_BARS) - 1))] if top > 0 else _BARS[0] for m in means
    )
