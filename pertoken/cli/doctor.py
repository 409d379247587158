"""`pertoken doctor`: what can be measured on this host, what not, and how to switch it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, echo, json_option, settings_of

if TYPE_CHECKING:
    from pertoken.agent.doctor import Finding
    from pertoken.config import Settings


@click.command(short_help="Show what can be measured on this host, what not, and how to switch it on.")
@db_option
@json_option
def doctor(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show what can be measured on this host, what not and why, and how to switch it on. Nothing is stored."""
    from pertoken.agent.doctor import examine, show

    settings = settings_of(config_file, db=db)
    echo(show((*examine(settings), *_prices(settings)), as_json))


def _prices(settings: Settings) -> list[Finding]:
    """Return how old the list prices are that costs and advice use here."""
    import time
    from datetime import UTC, datetime

    from pertoken.agent.doctor import Finding
    from pertoken.catalog.offers import REFRESH_COMMAND, ages
    from pertoken.costs.prices.used import offers_used_at
    from pertoken.errors import PertokenError
    from pertoken.store.connect.location import locate

    now = time.time()
    try:
        used = offers_used_at(locate(settings.db, settings.advice), settings.market_provider, int(now))
    except PertokenError as error:
        return [Finding("prices", "list prices", False, f"cannot be read: {error}")]
    known = ages(used, datetime.fromtimestamp(now, UTC).date())
    if known is None:
        provider = f"no list price of {settings.market_provider} is known"
        return [Finding("prices", "list prices", False, provider, "import some: `pertoken prices import FILE`")]
    remedy = f"`{REFRESH_COMMAND}` fetches newer ones" if known.outdated else None
    return [Finding("prices", "list prices", not known.outdated, known.text, remedy)]
