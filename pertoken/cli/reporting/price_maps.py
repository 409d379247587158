"""`pertoken export litellm|langfuse`: measured prices for the price maps of these tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pertoken.cli.options import echo

if TYPE_CHECKING:
    from pertoken.config import Settings

HOURS = 24 * 7


def export_prices(settings: Settings, kind: str, out: Path | None) -> None:
    """Write the price map of a tool: the measured price of each model over the last seven days. Raises StoreError."""
    import json
    import time
    from datetime import UTC, datetime
    from functools import partial

    from pertoken.cli.progress import Progress
    from pertoken.costs.fleet import objectives
    from pertoken.costs.report.figures import figures_of
    from pertoken.errors import StoreError
    from pertoken.reports.exporters import price_map, unknown
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store

    now = int(time.time())
    store = open_store(locate(settings.db, settings.advice))
    with Progress("Reading seven days"):
        figures = figures_of(store, HOURS, now, partial(objectives, settings=settings))
    as_of = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps(price_map(kind, figures, as_of), indent=2) + "\n"
    for line in unknown(figures):
        echo(f"left out: {line}", err=True)
    if out is None:
        echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}") from None
