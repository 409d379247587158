"""`pertoken costs --figures`: other figures per token and dollar, by model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pertoken.cli.options import AsOf, echo, echo_json, terminal_width
from pertoken.cli.progress import Progress

if TYPE_CHECKING:
    from pertoken.config import Settings
    from pertoken.store.connect.open import Store


def print_figures(store: Store, settings: Settings, hours: int, moment: AsOf, as_json: bool) -> None:
    """Print the figures of every model over some hours of the clock. Raises StoreError."""
    from pertoken.costs.fleet import objectives
    from pertoken.costs.report.figures import EnergyTerms, figures_of, plain
    from pertoken.text.costs import figures_text

    with Progress(f"Reading {hours} hours"):
        slo_of, terms = partial(objectives, settings=settings), EnergyTerms.of(settings)
        rows = figures_of(store, hours, moment.ts, slo_of, dated=moment.dated, terms=terms)
    if as_json:
        echo_json([plain(row, terms) for row in rows])
    else:
        echo(figures_text(rows, terminal_width(), terms), nl=False)
