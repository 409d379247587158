"""Sizing as text: a table of deployments that serve the workload, and details of the cheapest."""

from collections.abc import Sequence
from datetime import date

from pertoken.catalog.knobs import flag_commands
from pertoken.catalog.offers import marks
from pertoken.forecast.latency import MAX_REPLICAS
from pertoken.savings.size import SHAPE, Bounds, Miss, Rented, Serverless, SizedWorkload, Sizing
from pertoken.state.deployment import Deployment
from pertoken.state.service import Slo
from pertoken.text.amounts import amount, symbol
from pertoken.text.columns import Column, table
from pertoken.text.words import UNKNOWN, literal, wrapped
from pertoken.units import HOURS_PER_MONTH, format_bytes, format_count

READABLE = 80
"""Cells of running text without a terminal."""
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
"""Knobs that the flags of a sized deployment set."""
SIXTEEN_BITS = ("bf16", "fp16")


def sizing_text(sizing: Sizing, today: date, stale_after_days: int, width: int | None, rows: int) -> str:
    """Return the first `rows` choices as a table, the details of the cheapest on devices, and notes.

    `width`: cells of the terminal; None: no column is cut.
    """
    cells = min(READABLE if width is None else width, 2 * READABLE)
    # The cheapest API is always shown, even if many devices are cheaper.
    shown = [*sizing.choices[:rows], *(choice for choice in sizing.serverless[:1] if choice in sizing.choices[rows:])]
    blocks = [
        wrapped(_workload_line(sizing), cells),
        table("$ per Mtok, cheapest first", shown, _columns(sizing), width),
        _beyond(len(sizing.choices) - len(shown)),
        _detail(sizing.rented[0], sizing, today, stale_after_days, cells)
        if sizing.rented
        else wrapped(_why_none(sizing), cells),
        [line for note in _notes(sizing, shown) for line in wrapped(note, cells)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _workload_line(sizing: Sizing) -> str:
    workload = sizing.workload
    cached = f" ({workload.cached_share:.0%} cached)" if workload.cached_share else ""
    return (
        f"{literal(sizing.model.name)} at {workload.requests_per_s:g} requests/s, {workload.prompt_len:g} prompt"
        f"{cached} and {workload.output_len:g} output tokens each{_images(workload)}, {_objectives(workload.slo)}"
    )


def _images(workload: SizedWorkload) -> str:
    if workload.image_size is None:
        return ""
    width, height = workload.image_size
    noun = "image" if workload.images == 1 else "images"
    return f", tokens of {workload.images:g} {noun} of {width}x{height} pixels among them"


def _objectives(slo: Slo) -> str:
    limits = (("TTFT p95", slo.ttft_p95_ms), ("TPOT p95", slo.tpot_p95_ms))
    return ", ".join(f"{name} ≤ {limit:g} ms" for name, limit in limits if limit is not None)


def _columns(sizing: Sizing) -> tuple[Column[Rented | Serverless], ...]:
    workload = sizing.workload

    def memory(choice: Rented | Serverless) -> str:
        return f"{choice.fit.weights_bytes / choice.fit.usable_bytes:.0%}" if isinstance(choice, Rented) else ""

    def likely(choice: Rented | Serverless) -> float:
        return choice.nano_usd_per_mtok(workload)[1]

    return (
        Column("$/Mtok", lambda choice: amount(likely(choice)), 0, likely),
        Column("interval", lambda choice: _interval(choice.nano_usd_per_mtok(workload)), 2),
        Column("runs on", _runs_on, 1, min_cells=18),
        Column("format", lambda choice: choice.deployment.weight_dtype or "" if isinstance(choice, Rented) else "", 1),
        Column("mem", memory, 4, lambda choice: 0.0),
        Column(
            "SLO", lambda choice: ("sure" if choice.sure else "likely") if isinstance(choice, Rented) else UNKNOWN, 1
        ),
        Column("forecast", lambda choice: choice.tier.name if isinstance(choice, Rented) else "", 5),
        Column("price of", _price_of, 3, min_cells=10),
    )


def _interval(bounds: Bounds) -> str:
    low, _, high = (None if bound is None else amount(bound) for bound in bounds)
    return low if low is not None and low == high else f"{low or '?'}–{(high or '?').removeprefix(symbol())}"


def _runs_on(choice: Rented | Serverless) -> str:
    if isinstance(choice, Serverless):
        return "API, by the token"
    return f"{choice.replicas[1]} × {_devices(choice.deployment)}"


def _devices(deployment: Deployment) -> str:
    ranks = deployment.tp or 1
    return f"{deployment.accelerator}" if ranks == 1 else f"{ranks} {deployment.accelerator}"


def _price_of(choice: Rented | Serverless) -> str:
    if isinstance(choice, Serverless):
        return literal(choice.offer.provider)
    return literal(f"{choice.offer.provider} {choice.offer.instance_type}")


def _beyond(n_unlisted: int) -> list[str]:
    return [f"  and {n_unlisted} more expensive ones (--rows, or --json for all)"] if n_unlisted > 0 else []


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
    price += "".join(f"; {mark}" for mark in marks([offer], today, stale_after_days))
    ends = "" if low == high else f" ({low or '?'} to {high or '?'} over the 80% interval)"
    flags = flag_commands(best.deployment.engine, {name: (None, getattr(best.deployment, name)) for name in FLAGGED})
    facts = (
        ("replicas", f"{count} of {best.deployment.engine}, each on {_devices(best.deployment)}{ends}"),
        ("price", literal(price)),
        ("latency", _latency(best.figures.ttft_p95_ms, best.figures.tpot_p95_ms)),
        ("forecast", best.tier.words),
        ("memory", _fit(best)),
        ("flags", " ".join(flag.removeprefix("set ") for flag in flags.apply)),
        *(("", step) for step in flags.manual),
    )
    lines = [line for label, text in facts for line in wrapped(text, cells, f"  {label:<{INDENT - 2}}")]
    return [f"Cheapest on devices, weights in {best.deployment.weight_dtype}", *lines]


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


def _why_none(sizing: Sizing) -> str:
    if sizing.nearest_miss is not None:
        return f"Nothing holds the SLO. {_missed(sizing.nearest_miss, sizing.workload.slo)}"
    if sizing.left_out:
        return f"No deployment on devices can be sized: {_reasons(sizing)}"
    return "No device has a price for these options."


def _missed(miss: Miss, slo: Slo) -> str:
    if miss.figures is None:
        return (
            f"The nearest miss: {MAX_REPLICAS} replicas of {_devices(miss.deployment)} with weights in "
            f"{miss.deployment.weight_dtype} would need {miss.over:.2g} times their throughput."
        )
    return (
        f"The nearest miss: {_devices(miss.deployment)} with weights in {miss.deployment.weight_dtype} has "
        f"{_latency(miss.figures.ttft_p95_ms, miss.figures.tpot_p95_ms)} even if {MAX_REPLICAS} replicas share the "
        f"requests, {miss.over:.2g} times the objective ({_objectives(slo)})."
    )


def _notes(sizing: Sizing, shown: Sequence[Rented | Serverless]) -> list[str]:
    notes = []
    share = sizing.break_even
    if share is not None:
        provider = literal(sizing.serverless[0].offer.provider)
        notes.append(
            f"Devices cost the same at any load: below {share:.0%} of this load on average, {provider} is cheaper."
            if share < 1
            else f"{provider} is cheaper than devices even with this load all day."
        )
    if sizing.rented:
        notes.append(
            "mem: weights as a share of the memory that the engine may use. SLO: sure if it is kept at the slow end of "
            "the 80% interval too, likely if only at the likely forecast; unknown for APIs. ?: no number of replicas "
            "keeps it at that end. $/Mtok is for this load all day, whole instances, no spare replica. Lengths vary as "
            "in a published "
            f"{SHAPE} trace."
        )
        if any(isinstance(choice, Rented) and choice.deployment.weight_dtype not in SIXTEEN_BITS for choice in shown):
            notes.append("Weights of fewer than 16 bits can alter outputs: evaluate them before you deploy.")
        if sizing.left_out:
            notes.append(f"Not shown: {_reasons(sizing)}.")
    return notes


def _reasons(sizing: Sizing) -> str:
    return "; ".join(f"{n} {'layout' if n == 1 else 'layouts'} ({literal(why)})" for why, n in sizing.left_out.items())
