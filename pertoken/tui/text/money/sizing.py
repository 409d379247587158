"""A sizing as text: a table of what would serve the workload, and the cheapest in detail."""

import textwrap
from collections.abc import Sequence
from datetime import date

from pertoken.catalog.knob_commands import commands
from pertoken.catalog.offers import marks
from pertoken.forecast.queue.replicas import MAX_REPLICAS
from pertoken.savings.size.choices import Rented, Serverless
from pertoken.savings.size.ends import Bounds
from pertoken.savings.size.ranking import Miss, Sizing
from pertoken.savings.size.workload import SHAPE
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo
from pertoken.tui.amounts import amount, symbol
from pertoken.tui.text.columns import Column, table
from pertoken.tui.text.words import UNKNOWN, literal
from pertoken.units import HOURS_PER_MONTH, format_bytes, format_count

READABLE = 80
"""Cells of running text where no terminal sets a width."""
INDENT = 11
FLAGGED = (
    "tp",
    "weight_dtype",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "gpu_memory_utilization",
    "enable_prefix_caching",
)
"""Knobs that a sized deployment states."""
SIXTEEN_BITS = ("bf16", "fp16")


def sizing_text(sizing: Sizing, today: date, stale_after_days: int, width: int | None, rows: int) -> str:
    """Return the first `rows` choices as a table, the cheapest on devices in detail, and what must be known of them.

    `width`: cells of the terminal; None cuts no column.
    """
    cells = min(READABLE if width is None else width, 2 * READABLE)
    # The cheapest API stands beside devices however many of these are cheaper.
    shown = [*sizing.choices[:rows], *(each for each in sizing.serverless[:1] if each in sizing.choices[rows:])]
    blocks = [
        _wrapped(_asked(sizing), cells),
        table("$ per Mtok, cheapest first", shown, _columns(sizing), width),
        _beyond(len(sizing.choices) - len(shown)),
        _detail(sizing.rented[0], sizing, today, stale_after_days, cells) if sizing.rented else _none(sizing, cells),
        [line for note in _notes(sizing, shown) for line in _wrapped(note, cells)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _asked(sizing: Sizing) -> str:
    workload = sizing.workload
    cached = f" ({workload.cached_share:.0%} cached)" if workload.cached_share else ""
    return (
        f"{literal(sizing.model.name)} at {workload.requests_per_s:g} requests/s, {workload.prompt_len:g} prompt"
        f"{cached} and {workload.output_len:g} output tokens each, {_objectives(workload.slo)}"
    )


def _objectives(slo: Slo) -> str:
    limits = (("TTFT p95", slo.ttft_p95_ms), ("TPOT p95", slo.tpot_p95_ms))
    return ", ".join(f"{name} ≤ {limit:g} ms" for name, limit in limits if limit is not None)


def _columns(sizing: Sizing) -> tuple[Column[Rented | Serverless], ...]:
    workload = sizing.workload

    def likely(each: Rented | Serverless) -> float:
        return each.nano_usd_per_mtok(workload)[1]

    return (
        Column("$/Mtok", lambda each: amount(likely(each)), 0, likely),
        Column("interval", lambda each: _interval(each.nano_usd_per_mtok(workload)), 2),
        Column("runs on", _runs_on, 1, least=18),
        Column("format", lambda each: each.deployment.weight_dtype or "" if isinstance(each, Rented) else "", 1),
        Column("mem", _memory, 4, lambda each: 0.0),
        Column("SLO", lambda each: ("sure" if each.sure else "likely") if isinstance(each, Rented) else UNKNOWN, 1),
        Column("price of", _price_of, 3, least=10),
    )


def _interval(bounds: Bounds) -> str:
    low, _, high = (None if each is None else amount(each) for each in bounds)
    return low if low is not None and low == high else f"{low or '?'}–{(high or '?').removeprefix(symbol())}"


def _runs_on(each: Rented | Serverless) -> str:
    return "API, by the token" if isinstance(each, Serverless) else f"{each.replicas[1]} × {_devices(each.deployment)}"


def _devices(deployment: Deployment) -> str:
    ranks = deployment.tp or 1
    return f"{deployment.accelerator}" if ranks == 1 else f"{ranks} {deployment.accelerator}"


def _memory(each: Rented | Serverless) -> str:
    return f"{each.fit.weights_bytes / each.fit.usable_bytes:.0%}" if isinstance(each, Rented) else ""


def _price_of(each: Rented | Serverless) -> str:
    if isinstance(each, Serverless):
        return literal(each.offer.provider)
    return literal(f"{each.offer.provider} {each.offer.instance_type}")


def _beyond(left: int) -> list[str]:
    return [f"  and {left} dearer ones (--rows, or --json for all)"] if left > 0 else []


def _detail(best: Rented, sizing: Sizing, today: date, stale_after_days: int, cells: int) -> list[str]:
    offer, (low, count, high) = best.offer, best.replicas
    hour = best.nano_usd_per_hour[1]
    price = (
        f"{amount(hour)}/h ({amount(hour * HOURS_PER_MONTH)} a month) for {best.instances[1]} × "
        f"{offer.provider} {offer.instance_type} at {amount(offer.nano_usd_per_hour)}/h, "
        f"{offer.purchase.replace('_', '-')} in {offer.region}: {offer.source}, {offer.as_of}, "
        f"{offer.confidence} confidence"
    )
    if best.devices < best.instances[1] * offer.n_devices:
        price += f"; {best.devices} of its {best.instances[1] * offer.n_devices} devices are used"
    price += "".join(f"; {each}" for each in marks([offer], today, stale_after_days))
    ends = "" if low == high else f" ({low or '?'} to {high or '?'} over the 80% interval)"
    flags = commands(best.deployment.engine, {name: (None, getattr(best.deployment, name)) for name in FLAGGED})
    facts = (
        ("replicas", f"{count} of {best.deployment.engine}, each on {_devices(best.deployment)}{ends}"),
        ("price", literal(price)),
        ("latency", _latency(best.figures.ttft_p95_ms, best.figures.tpot_p95_ms)),
        ("memory", _fit(best)),
        ("flags", " ".join(each.removeprefix("set ") for each in flags.apply)),
        *(("", each) for each in flags.manual),
    )
    return [f"Cheapest on devices, weights in {best.deployment.weight_dtype}", *_listed(facts, cells)]


def _latency(ttft: Bounds, tpot: Bounds) -> str:
    return f"TTFT p95 {_ms(ttft)}, TPOT p95 {_ms(tpot)}"


def _ms(bounds: Bounds) -> str:
    low, likely, high = bounds
    end = "overloaded" if high is None else f"{high:.0f}"
    return f"about {likely:.0f} ms ({'?' if low is None else f'{low:.0f}'} to {end})"


def _fit(best: Rented) -> str:
    fit = best.fit
    return (
        f"weights {format_bytes(fit.weights_bytes)} of {format_bytes(fit.usable_bytes)} usable on each device; the KV "
        f"cache holds {format_count(fit.kv_cache_tokens)} tokens, {fit.sequences:.0f} requests at once"
    )


def _none(sizing: Sizing, cells: int) -> list[str]:
    return [line for text in _why_none(sizing) for line in _wrapped(text, cells)]


def _why_none(sizing: Sizing) -> list[str]:
    if sizing.nearest_miss is not None:
        return [f"Nothing holds the SLO. {_missed(sizing.nearest_miss, sizing.workload.slo)}"]
    return [
        "Nothing on devices can be sized: " + _reasons(sizing) if sizing.left_out else "No device has a price here."
    ]


def _missed(miss: Miss, slo: Slo) -> str:
    if miss.figures is None:
        return (
            f"The nearest miss: {MAX_REPLICAS} replicas of {_devices(miss.deployment)} with weights in "
            f"{miss.deployment.weight_dtype} are asked for {miss.over:.2g} times what they serve."
        )
    return (
        f"The nearest miss: {_devices(miss.deployment)} with weights in {miss.deployment.weight_dtype} has "
        f"{_latency(miss.figures.ttft_p95_ms, miss.figures.tpot_p95_ms)} even where {MAX_REPLICAS} replicas share the "
        f"requests, {miss.over:.2g} times the objective ({_objectives(slo)})."
    )


def _notes(sizing: Sizing, shown: Sequence[Rented | Serverless]) -> list[str]:
    notes = []
    share = sizing.break_even
    if share is not None:
        provider = literal(sizing.serverless[0].offer.provider)
        notes.append(
            f"Devices are paid for whatever they serve: below {share:.0%} of this load on average {provider} is "
            "cheaper."
            if share < 1
            else f"{provider} is cheaper than devices even at this load all day."
        )
    if sizing.rented:
        notes.append(
            "mem: share of the memory the engine may use that weights take. SLO: sure where as many replicas hold it "
            "at the slow end of the 80% interval, likely where only the likely forecast does; of APIs it is unknown. "
            "?: at that end no number of replicas holds it. $/Mtok is for this load all day, whole instances, no spare "
            "replica. Lengths are spread as in a published "
            f"{SHAPE} trace."
        )
        if any(isinstance(each, Rented) and each.deployment.weight_dtype not in SIXTEEN_BITS for each in shown):
            notes.append("Weights of fewer than 16 bits can alter outputs: evaluate them before you deploy.")
        if sizing.left_out:
            notes.append(f"Not shown: {_reasons(sizing)}.")
    return notes


def _reasons(sizing: Sizing) -> str:
    return "; ".join(f"{n} {'layout' if n == 1 else 'layouts'} ({literal(why)})" for why, n in sizing.left_out.items())


def _listed(facts: Sequence[tuple[str, str]], cells: int) -> list[str]:
    return [line for label, text in facts for line in _wrapped(text, cells, f"  {label:<{INDENT - 2}}")]


def _wrapped(text: str, cells: int, label: str = "") -> list[str]:
    return textwrap.wrap(text, cells, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False)
