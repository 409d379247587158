"""Figures of models as text: a table, and the reasons for unknown figures."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields

from pertoken.costs.ledger import KINDS
from pertoken.costs.report.figures import NO_TERMS, POOLING, EnergyTerms, ModelFigures
from pertoken.costs.report.lines import Figure
from pertoken.text.amounts import amount, bounded, caption, rate
from pertoken.text.columns import Column, table
from pertoken.text.words import UNKNOWN, literal
from pertoken.units import NANO_USD, format_count

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
    wrapped = [line for note in notes for line in textwrap.wrap(caption(note), cells)]
    return "\n".join((*lines, *(["Not known", *unknown] if unknown else []), *wrapped)) + "\n"


def _columns() -> tuple[Column[ModelFigures], ...]:
    return (
        Column("model", _name, 0, min_cells=14, keep_end=True),
        _column("usd_per_mtok", _usd, 1),
        Column("$/goodput", _goodput, 2),
        _column("tokens_per_usd", _per_money, 5),
        Column(
            "$/1k req",
            lambda model: _usd(model.usd_per_1000_requests),
            3,
            lambda model: model.usd_per_1000_requests.value,
        ),
        _column("j_per_token", _three, 4),
        _column("kwh", _three, 6),
        _column("idle_usd", _usd, 2),
    )


def _kinds() -> tuple[Column[ModelFigures], ...]:
    """Return the columns of dollars per million tokens of each kind."""
    kinds = zip(("computed prompt", "cached prompt", "generated"), KINDS, (1, 2, 1), strict=True)
    return (
        Column("model", _name, 0, min_cells=14, keep_end=True),
        *(
            Column(
                title,
                lambda model, name=name: bounded(getattr(model, name)),  # type: ignore[misc]
                rank,
                lambda model, name=name: getattr(model, name).value,  # type: ignore[misc]
            )
            for title, name, rank in kinds
        ),
        Column("blended", lambda model: _usd(model.usd_per_mtok), 3, lambda model: model.usd_per_mtok.value),
        Column(
            "full use",
            lambda model: _usd(model.usd_per_mtok_at_full_use),
            4,
            lambda model: model.usd_per_mtok_at_full_use.value,
        ),
    )


def _server(terms: EnergyTerms) -> tuple[Column[ModelFigures], ...]:
    """Return the columns of energy at the plug, and of carbon where the grid is known."""
    carbon = () if terms.grid is None else (("co2e_kg", "kg CO2e", 2), ("co2e_g_per_mtok", "g CO2e/Mtok", 2))
    energy = (("kwh", "kWh", 1), ("above_idle_kwh", "above idle", 4), ("j_per_token", "J/token", 3))
    shares = (("at_plug", "measured", 4), ("modelled", "modelled", 5))
    return (
        Column("model", _name, 0, min_cells=14, keep_end=True),
        *(_server_column(name, title, rank, _three) for name, title, rank in (*energy, *carbon)),
        *(_server_column(name, title, rank, _percent) for name, title, rank in shares),
    )


def _server_column(name: str, title: str, rank: int, text: Callable[[Figure], str]) -> Column[ModelFigures]:
    return Column(
        title,
        lambda model: text(getattr(model.server, name)),
        rank,
        lambda model: getattr(model.server, name).value,
    )


def energy_note(terms: EnergyTerms) -> str:
    """Return what the energy of servers is, and by which terms."""
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


def _column(name: str, text: Callable[[Figure], str], rank: int) -> Column[ModelFigures]:
    return Column(NAMES[name], lambda model: text(getattr(model, name)), rank, lambda model: getattr(model, name).value)


def _name(model: ModelFigures) -> str:
    return literal(model.model) + (" (prompt tokens)" if model.kind == POOLING else "")


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
