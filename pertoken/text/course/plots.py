"""Plots of a host or deployment as plain values: panels that share one window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pertoken.metrics import DEVICE, label_of
from pertoken.state.service import Slo
from pertoken.text.amounts import amount
from pertoken.text.words import literal, percent
from pertoken.units import NANO_USD, format_count, format_utc

if TYPE_CHECKING:
    from pertoken.window.course import Course, Values

MARKERS = ("▪", "·", "x")
"""Markers of the first, second and third line of a plot, which differ without colour."""
MAX_MARKS = 12
SERVED = ("Tokens", "Requests", "KV cache", "TTFT", "TPOT")
"""Names of the panels that only an engine fills."""
ACTIVITY = {metric.series: metric.heading for metric in DEVICE if metric.series and metric.heading}
"""Short labels of the series of devices that are plotted as activity."""
_KINDS = {"epoch": "epoch", "verdict": "verdict", "event": "event"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot; None is a gap."""

    label: str
    values: Values


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot. `levels` are horizontal lines: a limit, a cap, an objective."""

    name: str
    unit: str
    lines: tuple[Line, ...]
    levels: tuple[tuple[str, float], ...] = ()
    top: float | None = None
    """Fixed upper end of the scale; None: the highest value or level."""

    @property
    def caption(self) -> str:
        """`Power, W: ▪ power 512 · limit 700 (-)`, with the newest values."""
        parts = [
            f"{marker} {line.label} {self._text(_newest(line.values))}"
            for marker, line in zip(MARKERS, self.lines, strict=False)
        ]
        parts += [f"─ {label} {self._text(value)}" for label, value in self.levels]
        return f"{self.name}, {self.unit}: {'  '.join(parts)}"

    def _text(self, value: float | None) -> str:
        return f"{value:,.0f}" if self.unit == "W" and value is not None else format_count(value)

    @property
    def highest(self) -> float:
        """Upper end of the scale, above 0."""
        if self.top is not None:
            return self.top
        known = [value for line in self.lines for value in line.values if value is not None]
        return max([*known, *(value for _, value in self.levels)], default=0.0) or 1.0


def panels(course: Course, slo: Slo | None = None) -> tuple[tuple[Panel, ...], tuple[str, ...]]:
    """Return the panels that have values, and the names of panels that have none in the window."""
    limits = (("limit", course.power_limit_w), ("cap", course.power_cap_w))
    power = tuple((label, value) for label, value in limits if value is not None)
    ttft = None if slo is None else slo.ttft_p95_ms
    tpot = None if slo is None else slo.tpot_p95_ms

    def lines(label_by_name: Mapping[str, str], scale: float = 1) -> tuple[Line, ...]:
        shown = ((label, course.series.get(name, ())) for name, label in label_by_name.items())
        return tuple(
            Line(label, tuple(None if value is None else value * scale for value in values))
            for label, values in shown
            if any(value is not None for value in values)
        )

    candidates = (
        Panel("Tokens", "tok/s", lines(_labels("tokens/s", "generated_tok_s", "prompt_tok_s"))),
        Panel("Power", "W", lines(_labels("", "power_w")), power),
        Panel("Activity", "%", lines(ACTIVITY, 100), top=100),
        Panel("Requests", "mean", lines(_labels("requests", "running", "waiting"))),
        Panel("KV cache", "%", lines(_labels("KV cache", "kv_use"), 100), top=100),
        Panel("TTFT", "ms", lines({"ttft_p50": "p50", "ttft_p95": "p95"}, 1000), _slo(ttft)),
        Panel("TPOT", "ms", lines({"tpot_p50": "p50", "tpot_p95": "p95"}, 1000), _slo(tpot)),
    )
    return tuple(panel for panel in candidates if panel.lines), tuple(
        panel.name for panel in candidates if not panel.lines
    )


def _labels(subject: str, *names: str) -> Mapping[str, str]:
    """Return the labels of series by name, without the subject that the panel names."""
    return {name: label_of(name).replace(subject, "").strip() for name in names}


def _slo(limit_ms: float | None) -> tuple[tuple[str, float], ...]:
    return () if limit_ms is None else (("SLO p95", limit_ms),)


def _newest(values: Values) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Return the stretches without a gap, each as a list of (position, value)."""
    stretches: list[list[tuple[int, float]]] = []
    last = -2
    for i, value in enumerate(values):
        if value is None:
            continue
        if i != last + 1:
            stretches.append([])
        stretches[-1].append((i, value))
        last = i
    return stretches


def ticks(course: Course, cells: int) -> list[tuple[int, str]]:
    """Return (position, time) of a few slices, as many as fit under a plot of `cells` cells."""
    n = (course.end_ts - course.start_ts) // course.slice_s
    form = "%H:%M" if course.end_ts - course.start_ts <= 86_400 else "%m-%d"
    count = max(2, min(6, cells // 16))
    positions = sorted({round(i * (n - 1) / (count - 1)) for i in range(count)}) if n > 1 else [0]
    return [(i, f"{datetime.fromtimestamp(course.start_ts + i * course.slice_s, UTC):{form}}") for i in positions]


def mark_lines(course: Course) -> tuple[str, ...]:
    """Return the changes, newest first, one line each."""
    shown = [
        f"{format_utc(mark.ts)[5:]}  {_KINDS[mark.kind]:<7}  {literal(mark.text)}" for mark in reversed(course.marks)
    ]
    more = len(shown) - MAX_MARKS
    return (*shown[:MAX_MARKS], *((f"and {more} earlier",) if more > 0 else ()))


def token_sentence(course: Course, usd_per_kwh: float | None = None, *, split: bool = True) -> str | None:
    """Return the tokens of the window by kind, and their energy; None without tokens.

    `usd_per_kwh` is the price of a kWh times PUE; None: the price of the devices includes energy. `split` False leaves
    out the shares of the kinds.
    """
    prompt, cached, generated = course.prompt_tokens, course.cached_tokens, course.generated_tokens
    whole = prompt + generated
    if not whole:
        return None
    computed = max(0, prompt - cached)
    parts = (("prompt computed", computed), ("prompt cached", cached), ("generated", generated))
    shares = ", ".join(f"{name} {percent(count / whole)}" for name, count in parts)
    energy = ""
    if course.energy_kwh is not None:
        per_token = course.energy_kwh * 3_600_000 / generated if generated else None
        per_generated = f", {per_token:.3g} J per generated token" if per_token is not None else ""
        usd = "" if usd_per_kwh is None else f" ({amount(round(course.energy_kwh * usd_per_kwh * NANO_USD))})"
        energy = f" Energy: {course.energy_kwh:.3g} kWh{usd}{per_generated}."
    return f"{f'Of {format_count(whole)} tokens: {shares}' if split else f'{format_count(whole)} tokens'}.{energy}"
