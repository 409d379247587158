"""Dollars of a host or deployment as sentences, and what its history lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pertoken.costs.ledger import KindDollars
from pertoken.costs.report.lines import DeploymentLine, FleetReport, HostUse
from pertoken.text.advice.columns import bankable, marked_title, open_advice
from pertoken.text.amounts import amount, headline, price
from pertoken.text.costs.bill import PARTS
from pertoken.text.course.plots import SERVED
from pertoken.text.fleet.columns import busy_share, headline_price
from pertoken.text.program.key_names import key_name
from pertoken.text.words import literal, percent, usd_parts
from pertoken.units import format_duration

if TYPE_CHECKING:
    from pertoken.proof.recommendation import Recommendation
    from pertoken.window.course import Course

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
        gpus = "1 accelerator" if line.accelerators == 1 else f"{line.accelerators} accelerators"
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
    known = {name: part for name, part in parts.items() if part[0]}
    _, texts = usd_parts(kinds.busy, tuple(nano for nano, _ in known.values()))
    split = " + ".join(
        f"{name} {text} ({percent(nano / kinds.busy)}{_bounds(bounds if kinds.overlapped else None, kinds.busy)})"
        for text, (name, (nano, bounds)) in zip(texts, known.items(), strict=True)
    )
    return f"Of busy, by device time: {split}"


def _bounds(bounds: tuple[int, int] | None, busy: int) -> str:
    return "" if bounds is None else f", {percent(bounds[0] / busy)} to {percent(bounds[1] / busy)}"


def gap_lines(line: DeploymentLine | HostUse | None, course: Course, missing: Sequence[str]) -> tuple[str, ...]:
    """Return what the history lacks as sentences, of the panels in `missing`; a host that serves nothing has no tokens.

    What such a host costs an hour is named.
    """
    idle = () if course.deployment_ids or not isinstance(line, HostUse) else (_nothing_served(line),)
    names = [name for name in missing if not idle or name not in SERVED]
    return (*idle, *((f"Not measured in this window: {', '.join(names)}.",) if names else ()))


def _nothing_served(use: HostUse) -> str:
    paid = "" if use.nano_usd_per_hour is None else f": it costs {amount(use.nano_usd_per_hour)} an hour"
    return f"No engine served a model on it in this window{paid}."


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
    whole, texts = usd_parts(paid, tuple(split.values()))
    sign = {"busy": "≤ ", "idle": "≥ "} if bound else {}
    named = (
        f"{_NAMES[name]} {sign.get(name, '')}{text} ({percent(nano / paid) if paid else '–'})"
        for (name, nano), text in zip(split.items(), texts, strict=True)
    )
    return f"Where a dollar goes: {whole} in {window} = {' + '.join(named)}"


def marks_title() -> str:
    """Return the title of the list of marks."""
    return "What changed (│ in the plots: epochs and verdicts)"
