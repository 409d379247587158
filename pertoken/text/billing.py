"""Text of a month of spend, of figures by model, and of a reconciled bill, as text and as plain values for JSON."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TypeVar

from pertoken.costs.invoice.read import Invoice
from pertoken.costs.invoice.reconcile import Compared, Row
from pertoken.costs.ledger import KINDS, KindPrice
from pertoken.costs.month import EXPECTED, Alert, MonthSpend
from pertoken.costs.report.figures import NO_TERMS, POOLING, EnergyTerms, ModelFigures
from pertoken.costs.report.lines import Figure
from pertoken.text.amounts import amount, bounded, caption, rate
from pertoken.text.columns import Column, table
from pertoken.text.words import UNKNOWN, in_units, literal, wrapped
from pertoken.units import NANO_USD, format_count, format_duration, format_utc
from pertoken.window.reading import DAY

FigureT = TypeVar("FigureT", Figure, KindPrice)
WIDTH = 80
CENT = NANO_USD // 100
LABELS = {
    "other resources": "other resources",
    "credit": "credits",
    "tax": "tax",
    "commitment": "fees of commitments",
    "fee": "fees",
    "covered": "covered hours of other hosts",
    "negation": "taken off by commitments",
    "discount": "discounts of the account",
    "other": "other kinds",
}
"""Names for people of the kinds of lines that belong to no recorded host."""


def invoice_text(compared: Compared, invoice: Invoice) -> str:
    """Return the comparison of an invoice with the computed bill: its parts, a table of hosts, and notes."""
    reconciliation = compared.reconciliation
    first, last = invoice.interval
    head = f"{invoice.format.title}: {len(invoice.lines):,} lines, {format_utc(first)} to {format_utc(last)}"
    parts = [
        ("instance-hours of recorded hosts", reconciliation.instance_hours),
        ("other lines of these hosts", reconciliation.beside),
    ]
    parts += [
        (f"{LABELS.get(kind, kind)} ({n:,} {'line' if n == 1 else 'lines'})", nano)
        for kind, nano, n in reconciliation.unmatched
    ]
    shown = [(label, nano) for label, nano in parts if nano]
    nanos = [nano for _, nano in shown]
    amounts = in_units(_cents(sum(nanos)), nanos, CENT)
    blocks = (
        wrapped(head, WIDTH),
        [
            *(f"  {_dollars(amount):>14}  {label}" for amount, (label, _) in zip(amounts, shown, strict=True)),
            f"  {_dollars(sum(amounts)):>14}  the bill",
        ],
        table(
            "By host: billed = computed + unseen + discount + price",
            _by_host(reconciliation.rows),
            _bill_columns(compared),
            WIDTH,
        ),
        list(_bill_notes(compared)),
        list(_left_out(compared, invoice)),
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def invoice_plain(compared: Compared, invoice: Invoice) -> dict[str, object]:
    """Return the reconciliation as plain values: dollars are floats."""
    reconciliation = compared.reconciliation
    return {
        "format": invoice.format.name,
        "lines": len(invoice.lines),
        "unreadable_lines": invoice.unreadable,
        "first_unreadable": invoice.first_unreadable or None,
        "split_lines": invoice.split,
        "unpriced_hours": reconciliation.unpriced_hours,
        "total_usd": reconciliation.total / NANO_USD,
        "instance_hours_usd": reconciliation.instance_hours / NANO_USD,
        "beside_usd": reconciliation.beside / NANO_USD,
        "unmatched": [{"kind": kind, "usd": nano / NANO_USD, "lines": n} for kind, nano, n in reconciliation.unmatched],
        "computed_not_billed_usd": reconciliation.not_billed / NANO_USD,
        "rows": [
            {
                "host": compared.hosts[row.host_id].name,
                "day": format_utc(row.day * DAY)[:10],
                **{f"{name}_usd": getattr(row, name) / NANO_USD for name in _AMOUNTS},
                "billed_hours": row.billed_hours,
                "recorded_hours": row.recorded_hours,
            }
            for row in reconciliation.rows
        ],
    }


_AMOUNTS = ("billed", "computed", "unseen", "discount", "price")


def _by_host(rows: tuple[Row, ...]) -> list[Row]:
    """Return the sum of the rows of each host, most expensive first."""
    by_host: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_host[row.host_id].append(row)
    names = (*_AMOUNTS, "billed_hours", "recorded_hours")
    sums = [
        Row(host_id, host_rows[0].day, **{name: sum(getattr(row, name) for row in host_rows) for name in names})
        for host_id, host_rows in by_host.items()
    ]
    return sorted(sums, key=lambda row: (-row.billed, row.host_id))


def _bill_columns(compared: Compared) -> tuple[Column[Row], ...]:
    return (
        Column("host", lambda row: literal(compared.hosts[row.host_id].name), 0, min_cells=10),
        *(_amount(name, rank) for name, rank in zip(_AMOUNTS, (0, 0, 1, 1, 1), strict=True)),
        Column("hours", lambda row: f"{row.billed_hours:,.1f}", 3, lambda row: row.billed_hours),
        Column("recorded", lambda row: f"{row.recorded_hours:,.1f}", 4, lambda row: row.recorded_hours),
    )


def _amount(name: str, rank: int) -> Column[Row]:
    return Column(name, lambda row: _nano_usd(getattr(row, name)), rank, lambda row: getattr(row, name))


def _bill_notes(compared: Compared) -> Iterator[str]:
    reconciliation = compared.reconciliation
    if not reconciliation.rows and reconciliation.units:
        units = ", ".join(literal(unit) for unit in reconciliation.units[:5])
        yield from _note(
            f"Lines of recorded hosts have no hours: the unit of their amounts ({units}) is no time of a host or a GPU."
        )
        return
    if not reconciliation.rows:
        yield from _note(
            "No line belongs to a recorded host: a line must have the name of a host, or its resource_id in "
            "[hosts.NAME]. "
            f"Recorded: {', '.join(sorted(literal(host.name) for host in compared.hosts.values())) or 'none'}."
        )
        return
    yield from _note(
        "unseen: billed hours that were not recorded. discount: difference to the list price in the bill. price: "
        "computed with another price. Billed includes shares of commitments; the lines above are the invoiced amounts."
    )
    if reconciliation.not_billed:
        yield from _note(
            f"{_nano_usd(reconciliation.not_billed)} were computed for hosts and days that are not in the bill."
        )


def _note(text: str) -> list[str]:
    return wrapped(text, WIDTH)


def _left_out(compared: Compared, invoice: Invoice) -> Iterator[str]:
    """Yield the parts of a bill that no amount includes, and hours that give no price."""
    if invoice.unreadable:
        lines = "1 line" if invoice.unreadable == 1 else f"{invoice.unreadable:,} lines"
        yield from _note(
            f"{lines} could not be read and are in no amount here; the first: {literal(invoice.first_unreadable)}"
        )
    if invoice.split:
        lines = "1 line divides" if invoice.split == 1 else f"{invoice.split:,} lines divide"
        yield from _note(f"{lines} the cost of another line (split cost allocation of pods) and are not added.")
    if compared.reconciliation.unpriced_hours > 0.05:
        yield from _note(
            f"{compared.reconciliation.unpriced_hours:,.1f} billed hours give no price: they cost $0 here, or a fee on "
            "another line pays for them (capacity block, commitment, credits)."
        )


def _nano_usd(nano_usd: int) -> str:
    """Return nano-USD as dollars to the cent."""
    return _dollars(_cents(nano_usd))


def _cents(nano_usd: int) -> int:
    """Return nano-USD in cents."""
    return (nano_usd + CENT // 2) // CENT


def _dollars(cents: int) -> str:
    return f"{'-' if cents < 0 else ''}${abs(cents) // 100:,}.{abs(cents) % 100:02}"


LABEL = 13
SOME_UNPRICED = 0.005
"""Share of device time without a price from which a note reports it."""


def spend_text(spend: MonthSpend, budget_nano_usd: int | None, reached: Sequence[Alert], owner: str = "") -> str:
    """Return the spend until now, the forecast of the whole month, and the budget with reached thresholds."""
    facts = [
        *([("owner", literal(owner))] if owner else []),
        ("month", f"{spend.name}, until {format_utc(spend.now_ts)}"),
        ("spent", amount(spend.nano_usd, "not known")),
        ("whole month", _whole_dollars(spend)),
        ("budget", _budget(spend, budget_nano_usd, owner)),
        *(("alert", _alert(alert)) for alert in reached),
        *(("note", note) for note in _notes(spend)),
    ]
    return "\n".join(line for label, text in facts for line in wrapped(text, WIDTH, f"{label:<{LABEL}}")) + "\n"


def spend_plain(
    spend: MonthSpend, budget_nano_usd: int | None, reached: Sequence[Alert], owner: str = ""
) -> dict[str, object]:
    """Return the spend as plain values: dollars are floats, unknown values are None."""
    total = None if spend.total is None else [nano / NANO_USD for nano in spend.total]
    return {
        **({"owner": owner} if owner else {}),
        "month": spend.name,
        "until": format_utc(spend.now_ts),
        "spent_usd": None if spend.nano_usd is None else spend.nano_usd / NANO_USD,
        "month_usd": None if total is None else dict(zip(("low", "likely", "high"), total, strict=True)),
        "basis": spend.basis,
        "unknown": spend.reason,
        "budget_usd": None if budget_nano_usd is None else budget_nano_usd / NANO_USD,
        "alerts": [{"kind": alert.kind, "threshold": alert.threshold} for alert in reached],
        "unpriced_share": spend.unpriced_share,
        "unrecorded_s": spend.unrecorded_s,
        "days": [
            {"day": format_utc(day.start_ts)[:10], "usd": day.nano_usd / NANO_USD if day.priced_ms else None}
            for day in spend.days
        ],
    }


def _whole_dollars(spend: MonthSpend) -> str:
    if spend.total is None:
        return f"not known: {spend.reason}"
    low, likely, high = map(amount, spend.total)
    return f"about {likely} ({low} to {high}; by {spend.basis})"


def _budget(spend: MonthSpend, budget_nano_usd: int | None, owner: str) -> str:
    if budget_nano_usd is None:
        return f"none is set: `{'budget.owners' if owner else 'budget.usd_per_month'}`"
    used = "" if spend.nano_usd is None else f", {spend.nano_usd / budget_nano_usd:.0%} spent"
    return f"{amount(budget_nano_usd)} a month{used}"


def _alert(alert: Alert) -> str:
    if alert.kind == EXPECTED:
        return "the likely spend of the whole month is above the budget"
    return f"{alert.threshold:.0%} of the budget is spent"


def _notes(spend: MonthSpend) -> Iterator[str]:
    if spend.unrecorded_s:
        missing = format_duration(spend.unrecorded_s)
        yield f"nothing was recorded in the first {missing} of the month: the cost of that time is missing"
    if spend.unpriced_share >= SOME_UNPRICED:
        yield f"{spend.unpriced_share:.0%} of the recorded device time has no price (`pertoken prices show`)"


NAMES = {
    "usd_per_mtok": "$/Mtok",
    "usd_per_generated_mtok": "$/generated Mtok",
    "usd_per_goodput_mtok": "$/goodput Mtok",
    "tokens_per_usd": "tokens/$",
    "usd_per_1000_requests": "$/1k requests",
    "prefill_usd_per_mtok": "$/computed prompt Mtok",
    "cached_usd_per_mtok": "$/cached prompt Mtok",
    "decode_usd_per_mtok": "$/generated Mtok, by time",
    "usd_per_mtok_at_full_use": "$/Mtok at full use",
    "j_per_token": "J/token",
    "kwh": "kWh",
    "idle_usd": "idle $",
}
"""Captions of the figures that are shown."""
READABLE = 80
"""Cells of running text without a terminal."""
NOTE = (
    "Dollars are those of all devices that a model occupied; idle $ is their part while the engine was idle. Tokens "
    "are prompt (cached included) and generated; goodput counts requests within the SLO, at their mean length."
)
KINDS_NOTE = (
    "Busy dollars by kind of token, by the measured time of prefill and decode; idle $ are apart. Where requests ran "
    "together the bounds are in brackets. Lookup and transfer of cached tokens within prefill are in the price of "
    "computed ones. At full use: without idle $."
)
POOLED = "Models that embed or rank generate no tokens: their figures are for prompt tokens, and are in no total."


def figures_text(models: Sequence[ModelFigures], width: int | None, terms: EnergyTerms = NO_TERMS) -> str:
    """Return the tables of all models, then the reasons for unknown figures; `width` as in `summary`."""
    if not models:
        return "No model was served in this time.\n"
    lines = [
        *table("By model", models, _columns(), width),
        *table("By kind of token", models, _kinds(), width),
        *table("Energy of the servers", models, _server(terms), width),
    ]
    cells = READABLE if width is None else width
    reasons = [text for model in models for text in _unknown(model)]
    indented = textwrap.TextWrapper(cells, initial_indent="  ", subsequent_indent="    ")
    unknown = [line for text in reasons for line in indented.wrap(text)]
    notes = [
        NOTE,
        KINDS_NOTE,
        energy_note(terms),
        *([POOLED] if any(model.kind == POOLING for model in models) else []),
    ]
    wrapped_notes = [line for note in notes for line in textwrap.wrap(caption(note), cells)]
    return "\n".join((*lines, *(["Not known", *unknown] if unknown else []), *wrapped_notes)) + "\n"


def _columns() -> tuple[Column[ModelFigures], ...]:
    return (
        _MODEL,
        _column("usd_per_mtok", _usd, 1),
        Column("$/goodput", _goodput, 2),
        _column("tokens_per_usd", _per_money, 5),
        _column("usd_per_1000_requests", _usd, 3, "$/1k req"),
        _column("j_per_token", _three, 4),
        _column("kwh", _three, 6),
        _column("idle_usd", _usd, 2),
    )


def _kinds() -> tuple[Column[ModelFigures], ...]:
    kinds = zip(("computed prompt", "cached prompt", "generated"), KINDS, (1, 2, 1), strict=True)
    return (
        _MODEL,
        *(_column(name, bounded, rank, title) for title, name, rank in kinds),
        _column("usd_per_mtok", _usd, 3, "blended"),
        _column("usd_per_mtok_at_full_use", _usd, 4, "full use"),
    )


def _server(terms: EnergyTerms) -> tuple[Column[ModelFigures], ...]:
    carbon = () if terms.grid is None else (("co2e_kg", "kg CO2e", 2), ("co2e_g_per_mtok", "g CO2e/Mtok", 2))
    energy = (("kwh", "kWh", 1), ("above_idle_kwh", "above idle", 4), ("j_per_token", "J/token", 3))
    shares = (("at_plug", "measured", 4), ("modelled", "modelled", 5))
    return (
        _MODEL,
        *(_column(f"server.{name}", _three, rank, title) for name, title, rank in (*energy, *carbon)),
        *(_column(f"server.{name}", _percent, rank, title) for name, title, rank in shares),
    )


def energy_note(terms: EnergyTerms) -> str:
    """Return the scope of server energy, and its terms."""
    grid = terms.grid
    embodied = f" and {terms.embodied_g_per_hour:g} g an hour of each device" if terms.embodied_g_per_hour else ""
    carbon = (
        "Carbon needs energy.grid."
        if grid is None
        else f"Carbon is by {grid.g_per_kwh:g} g/kWh ({grid.source}, {grid.as_of}){embodied}."
    )
    return (
        f"Energy of the servers is that at their plugs, times PUE {terms.pue:g}: measured there, else modelled, else "
        f"that of devices and CPUs, which is a minimum. Above idle is beyond their idle level. {carbon}"
    )


_MODEL: Column[ModelFigures] = Column(
    "model",
    lambda model: literal(model.model) + (" (prompt tokens)" if model.kind == POOLING else ""),
    0,
    min_cells=14,
    keep_end=True,
)


def _column(name: str, text: Callable[[FigureT], str], rank: int, title: str | None = None) -> Column[ModelFigures]:
    """Return a column of the figure with a dotted name."""
    figure = attrgetter(name)
    return Column(title or NAMES[name], lambda model: text(figure(model)), rank, lambda model: figure(model).value)


def _goodput(model: ModelFigures) -> str:
    low, high = model.usd_per_goodput_mtok, model.usd_per_goodput_mtok_high
    if low.value is None:
        return UNKNOWN
    if high.value is None:
        return f"≥ {_usd(low)}"
    return _usd(low) if _usd(low) == _usd(high) else f"{_usd(low)}–{_usd(high)}"


def _usd(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else amount(figure.value * NANO_USD)


def _per_money(figure: Figure) -> str:
    """Return the tokens for one unit of the shown currency."""
    per_usd = rate()
    return UNKNOWN if figure.value is None or per_usd is None else format_count(figure.value / per_usd)


def _three(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else f"{figure.value:.3g}"


def _percent(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else f"{figure.value:.0%}"


def _unknown(model: ModelFigures) -> list[str]:
    """Return one line for each reason, with the figures that are unknown because of it."""
    by_reason: dict[str, list[str]] = {}
    for name in (field.name for field in fields(ModelFigures)):
        figure = getattr(model, name)
        if name in NAMES and figure.reason is not None:
            by_reason.setdefault(figure.reason, []).append(caption(NAMES[name]))
    if model.server.kwh.reason is not None:
        by_reason.setdefault(model.server.kwh.reason, []).append("energy of its servers")
    return [f"{literal(model.model)}: {', '.join(names)}: {literal(why)}" for why, names in by_reason.items()]
