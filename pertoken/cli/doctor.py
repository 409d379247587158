"""`pertoken doctor`: available and missing measurements of this host, and how to switch them on."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, db_option, echo, json_option
from pertoken.errors import PertokenError

if TYPE_CHECKING:
    from pertoken.agent.doctor import Finding
    from pertoken.config import Settings


@click.command(short_help="Show what can be measured on this host, what not, and how to switch it on.")
@db_option
@json_option
def doctor(database: Database, as_json: bool) -> None:
    """Show what can be measured on this host, what not and why, and how to switch it on. Nothing is stored."""
    from pertoken.agent.doctor import examine, show_doctor

    settings = database.settings()
    echo(show_doctor((*examine(settings), *_row_faults(settings), *_prices(settings)), as_json))


def _row_faults(settings: Settings) -> list[Finding]:
    """Return a finding for each host with stored values that are not used as they came."""
    from pertoken.agent.doctor import Finding
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.window.reading import faults_of_hosts

    where, now_ts = locate(settings.db, settings.advice), int(time.time())
    try:
        faults = faults_of_hosts(open_store(where), now_ts - int(settings.advisor_since), now_ts, dated=False)
    except PertokenError:
        return []  # the finding on the database has the reason
    remedy = "`pertoken db check` names rows that changed since they were stored"
    return [Finding("database", "rows", False, fault, remedy) for fault in faults]


def _prices(settings: Settings) -> list[Finding]:
    """Return how old the list prices are that costs and advice use here."""
    from pertoken.agent.doctor import Finding
    from pertoken.catalog.offers import REFRESH_COMMAND, ages
    from pertoken.costs.prices.stored import offers_used_at
    from pertoken.store.connect.location import locate

    now_s = time.time()
    try:
        used = offers_used_at(locate(settings.db, settings.advice), settings.market_provider, int(now_s))
    except PertokenError as error:
        return [Finding("prices", "list prices", False, f"cannot be read: {error}")]
    price_ages = ages(used, datetime.fromtimestamp(now_s, UTC).date())
    if price_ages is None:
        provider = f"no list price of {settings.market_provider} is known"
        return [Finding("prices", "list prices", False, provider, "import some: `pertoken prices import FILE`")]
    remedy = f"`{REFRESH_COMMAND}` fetches newer ones" if price_ages.outdated else None
    return [Finding("prices", "list prices", not price_ages.outdated, price_ages.text, remedy)]
