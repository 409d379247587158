"""Figures beside dollars per Mtok as text: a table of models, and the reasons of what is not known."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields

from pertoken.costs.report.figures import POOLING, Figure, ModelFigures
from pertoken.tui.amounts import amount, caption, rate
from pertoken.tui.text.columns import Column, table
from pertoken.tui.text.words import UNKNOWN, literal
from pertoken.units import NANO_USD, format_count

NAMES = {
    "usd_per_mtok": "$/Mtok",
    "usd_per_generated_mtok": "$/generated Mtok",
    "usd_per_goodput_mtok": "$/goodput Mtok",
    "tokens_per_usd": "tokens/$",
    "usd_per_1000_requests": "$/1k requests",
    "j_per_token": "J/token",
    "kwh": "kWh",
    "idle_usd": "idle $",
}
"""Figures that are shown, as people call them."""
READABLE = 80
"""Cells of running text where no terminal sets a width."""
NOTE = (
    "Dollars are all those of the devices a model held; idle $ is the part of them while its engine was idle. Tokens "
    "are prompt (cached included) and generated; goodput counts requests inside the SLO, taken to be as long as others."
)
POOLED = "Models that embed or rank generate nothing: theirs are prompt tokens, and count in no figure with others."


def figures_text(models: Sequence[ModelFigures], width: int | None) -> str:
    """Return the table of all models, then why figures are not known; `width` as in `summary`."""
    if not models:
        return "No model was served in this time.\n"
    lines = table("By model", models, _columns(), width)
    cells = READABLE if width is None else width
    reasons = [text for each in models for text in _unknown(each)]
    indented = textwrap.TextWrapper(cells, initial_indent="  ", subsequent_indent="    ")
    unknown = [line for text in reasons for line in indented.wrap(text)]
    notes = [NOTE, POOLED] if any(each.kind == POOLING for each in models) else [NOTE]
    wrapped = [line for note in notes for line in textwrap.wrap(caption(note), cells)]
    return "\n".join((*lines, *(["Not known", *unknown] if unknown else []), *wrapped)) + "\n"


def _columns() -> tuple[Column[ModelFigures], ...]:
    return (
        Column("model", _name, 0, least=14, keep_end=True),
        _column("usd_per_mtok", _usd, 1),
        Column("$/goodput", _goodput, 2),
        _column("tokens_per_usd", _per_money, 5),
        Column(
            "$/1k req", lambda each: _usd(each.usd_per_1000_requests), 3, lambda each: each.usd_per_1000_requests.value
        ),
        _column("j_per_token", _three, 4),
        _column("kwh", _three, 6),
        _column("idle_usd", _usd, 2),
    )


def _column(name: str, text: Callable[[Figure], str], rank: int) -> Column[ModelFigures]:
    return Column(NAMES[name], lambda each: text(getattr(each, name)), rank, lambda each: getattr(each, name).value)


def _name(each: ModelFigures) -> str:
    return literal(each.model) + (" (prompt tokens)" if each.kind == POOLING else "")


def _goodput(each: ModelFigures) -> str:
    low, high = each.usd_per_goodput_mtok, each.usd_per_goodput_mtok_high
    if low.value is None:
        return UNKNOWN
    if high.value is None:
        return f"≥ {_usd(low)}"
    return _usd(low) if _usd(low) == _usd(high) else f"{_usd(low)}–{_usd(high)}"


def _usd(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else amount(figure.value * NANO_USD)


def _per_money(figure: Figure) -> str:
    """Tokens for one unit of the shown currency."""
    per_usd = rate()
    return UNKNOWN if figure.value is None or per_usd is None else format_count(figure.value / per_usd)


def _three(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else f"{figure.value:.3g}"


def _unknown(each: ModelFigures) -> list[str]:
    """Return one line for each reason, naming the figures that lack it."""
    by_reason: dict[str, list[str]] = {}
    for name in (field.name for field in fields(ModelFigures)):
        figure = getattr(each, name)
        if name in NAMES and figure.reason is not None:
            by_reason.setdefault(figure.reason, []).append(caption(NAMES[name]))
    return [f"{literal(each.model)}: {', '.join(names)}: {literal(why)}" for why, names in by_reason.items()]
