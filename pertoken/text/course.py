"""Text of the history of a host or deployment: plots, the split of its dollars, advice, and the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pertoken.costs.ledger import KindDollars
from pertoken.costs.report.lines import DeploymentLine, FleetReport, HostUse
from pertoken.metrics import DEVICE, label_of
from pertoken.state.service import Slo
from pertoken.text.advice_table import bankable, marked_title, open_advice
from pertoken.text.amounts import amount, headline, price
from pertoken.text.costs import PARTS
from pertoken.text.fleet import busy_share, headline_price
from pertoken.text.keys import key_name
from pertoken.text.words import literal, percent, usd_parts
from pertoken.units import NANO_USD, counted, format_count, format_duration, format_utc

if TYPE_CHECKING:
    from pertoken.proof.recommendation import Recommendation
    from pertoken.window.course import Course, Values


MARKERS = ("▪", "·", "x")
"""Markers of the first, second and third line of a plot, which differ without colour."""
MAX_MARKS = 12
SERVED = ("Tokens", "Requests", "KV cache", "TTFT", "TPOT")
"""Names of the panels that only an engine fills."""
ACTIVITY = {metric.series: metric.heading for metric in DEVICE if metric.series and metric.heading}
"""Short labels of the series of devices that are plotted as activity."""
MARKS_TITLE = "What changed (│ in the plots: epochs and verdicts)"


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
        plotted = [value for line in self.lines for value in line.values if value is not None]
        return max([*plotted, *(value for _, value in self.levels)], default=0.0) or 1.0


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
    """Return the runs without a gap, each as a list of (position, value)."""
    separate_runs: list[list[tuple[int, float]]] = []
    last = -2
    for i, value in enumerate(values):
        if value is None:
            continue
        if i != last + 1:
            separate_runs.append([])
        separate_runs[-1].append((i, value))
        last = i
    return separate_runs


def ticks(course: Course, cells: int) -> list[tuple[int, str]]:
    """Return (position, time) of a few slices, as many as fit under a plot of `cells` cells."""
    n = (course.end_ts - course.start_ts) // course.slice_s
    form = "%H:%M" if course.end_ts - course.start_ts <= 86_400 else "%m-%d"
    count = max(2, min(6, cells // 16))
    positions = sorted({round(i * (n - 1) / (count - 1)) for i in range(count)}) if n > 1 else [0]
    return [(i, f"{datetime.fromtimestamp(course.start_ts + i * course.slice_s, UTC):{form}}") for i in positions]


def mark_lines(course: Course) -> tuple[str, ...]:
    """Return the changes, newest first, one line each."""
    shown = [f"{format_utc(mark.ts)[5:]}  {mark.kind:<7}  {literal(mark.text)}" for mark in reversed(course.marks)]
    more = len(shown) - MAX_MARKS
    return (*shown[:MAX_MARKS], *((f"and {more} earlier",) if more > 0 else ()))


def token_sentence(course: Course, usd_per_kwh: float | None = None, *, split: bool = True) -> str | None:
    """Return the tokens of the window by kind, and their energy; None without tokens.

    `usd_per_kwh` is the price of a kWh times PUE; None: the price of the devices includes energy. `split` False leaves
    out the shares of the kinds.
    """
    prompt, cached, generated = course.prompt_tokens, course.cached_tokens, course.generated_tokens
    tokens = prompt + generated
    if not tokens:
        return None
    computed = max(0, prompt - cached)
    parts = (("prompt computed", computed), ("prompt cached", cached), ("generated", generated))
    shares = ", ".join(f"{name} {percent(count / tokens)}" for name, count in parts)
    energy = ""
    if course.energy_kwh is not None:
        per_token = course.energy_kwh * 3_600_000 / generated if generated else None
        per_generated = f", {per_token:.3g} J per generated token" if per_token is not None else ""
        usd = "" if usd_per_kwh is None else f" ({amount(round(course.energy_kwh * usd_per_kwh * NANO_USD))})"
        energy = f" Energy: {course.energy_kwh:.3g} kWh{usd}{per_generated}."
    return f"{f'Of {format_count(tokens)} tokens: {shares}' if split else f'{format_count(tokens)} tokens'}.{energy}"


_PROMPTS = ("prompt_tokens", "cached_tokens")
_NAMES = {
    "busy": "busy",
    "idle": "idle while reserved",
    "other": "other processes",
    "unallocated": "unallocated",
}


def title_line(line: DeploymentLine | HostUse) -> str:
    """Return name, host and price of tokens: `Qwen3-8B · vllm on gpu-a · $0.23 per Mtok · busy 87%`."""
    unit = headline().unit
    if isinstance(line, HostUse):
        gpus = counted(line.accelerators, "accelerator")
        return f"{literal(line.name)} · {gpus} · {amount(price(line))} per {unit} · util {percent(line.util)}"
    where = f"{literal(line.engine)} on {literal(line.host)}{', ended' if line.ended else ''}"
    return f"{literal(line.model)} · {where} · {headline_price(line)} per {unit} · busy {busy_share(line)}"


def dollar_lines(line: DeploymentLine | HostUse, report: FleetReport | None) -> tuple[str, ...]:
    """Return the split of the dollars of the window, or the reason why it is not known, as sentences."""
    window = "the window" if report is None else format_duration(report.window_s)
    if isinstance(line, HostUse):
        if line.bill is None:
            return (f"Where a dollar goes: not known, because none of its devices had a price in {window}.",)
        parts, bound = (line.bill.busy, line.bill.idle, line.bill.other, line.bill.unallocated), line.bill.busy_is_bound
        return (_goes(line.bill.paid, dict(zip(PARTS, parts, strict=True)), window, bound=bound),)
    if line.nano_usd is None or line.idle_nano_usd is None:
        return (f"Where a dollar goes: not known, because some of its devices had no price in {window}.",)
    split = {"busy": line.nano_usd - line.idle_nano_usd, "idle": line.idle_nano_usd}
    return (_goes(line.nano_usd, split, window, bound=line.busy_is_bound),)


def busy_line(line: DeploymentLine | HostUse, report: FleetReport | None) -> str | None:
    """Return the split of the busy dollars by kind of token; None if it is not known.

    It is by the measured time of prefill and decode; where requests ran together, with its bounds.
    """
    served = _served(line, report)
    kinds = sum((deployment.kinds for deployment in served if deployment.kinds is not None), KindDollars())
    if not kinds.busy:
        return None
    prompt, cached = (sum(getattr(deployment, name) or 0 for deployment in served) for name in _PROMPTS)
    spared = f" ({percent(min(1.0, cached / prompt))} of it cached)" if cached and prompt else ""
    parts = {
        f"computing prompts{spared}": (kinds.prefill, kinds.prefill_range),
        "lookup of cached tokens": (kinds.cached, None),
        "generating": (kinds.decode, kinds.decode_range),
        "not split (no time of prefill and decode)": (kinds.unsplit, None),
    }
    nonzero_parts = {name: part for name, part in parts.items() if part[0]}
    _, texts = usd_parts(kinds.busy, tuple(nano for nano, _ in nonzero_parts.values()))
    split = " + ".join(
        f"{name} {text} ({percent(nano / kinds.busy)}{_bounds(bounds if kinds.overlapped else None, kinds.busy)})"
        for text, (name, (nano, bounds)) in zip(texts, nonzero_parts.items(), strict=True)
    )
    return f"Of busy, by device time: {split}"


def _bounds(bounds: tuple[int, int] | None, busy: int) -> str:
    return "" if bounds is None else f", {percent(bounds[0] / busy)} to {percent(bounds[1] / busy)}"


def gap_lines(line: DeploymentLine | HostUse | None, course: Course, missing: Sequence[str]) -> tuple[str, ...]:
    """Return gaps of the history as sentences: panels in `missing`, and the cost of a host that serves nothing."""
    lines: list[str] = []
    names = missing
    if isinstance(line, HostUse) and not course.deployment_ids:
        paid = "" if line.nano_usd_per_hour is None else f": it costs {amount(line.nano_usd_per_hour)} an hour"
        lines.append(f"No engine served a model on it in this window{paid}.")
        names = [name for name in missing if name not in SERVED]
    if names:
        lines.append(f"Not measured in this window: {', '.join(names)}.")
    return tuple(lines)


def proposals_for(
    line: DeploymentLine | HostUse, report: FleetReport | None, advice: Sequence[Recommendation]
) -> list[Recommendation]:
    """Return the open proposals for a host or deployment, best first."""
    served = _served(line, report)
    ids, models = {deployment.deployment_id for deployment in served}, {deployment.model for deployment in served}

    def touches(row: Recommendation) -> bool:
        if row.target_kind == "host":
            return isinstance(line, HostUse) and row.target_key == str(line.host.host_id)
        return row.deployment_id in ids or (row.target_kind == "service" and row.target_key in models)

    return open_advice(filter(touches, advice))


def advice_line(proposals: Sequence[Recommendation]) -> str | None:
    """Return the number of proposals, the first with its worth, and its key; None without any."""
    if not proposals:
        return None
    money = bankable(proposals[0])
    worth = f" ({amount(money[1])} a month)" if money is not None and money[1] > 0 else ""
    count = "1 proposal" if len(proposals) == 1 else f"{len(proposals)} proposals, the first"
    return f"{count}: {marked_title(proposals[0])}{worth}; {key_name('open')} opens it."


def _served(line: DeploymentLine | HostUse, report: FleetReport | None) -> list[DeploymentLine]:
    """Return the deployment itself, or those on a host."""
    if isinstance(line, DeploymentLine):
        return [line]
    return [deployment for deployment in (() if report is None else report.deployments) if deployment.host == line.name]


def _goes(paid: int, split: dict[str, int], window: str, *, bound: bool) -> str:
    total_words, texts = usd_parts(paid, tuple(split.values()))
    sign = {"busy": "≤ ", "idle": "≥ "} if bound else {}
    named = (
        f"{_NAMES[name]} {sign.get(name, '')}{text} ({percent(nano / paid) if paid else '–'})"
        for (name, nano), text in zip(split.items(), texts, strict=True)
    )
    return f"Where a dollar goes: {total_words} in {window} = {' + '.join(named)}"
