"""`pertoken budget`: what a month cost so far, what its end is likely to be, and the budget."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import as_of, at_option, check_recorded, db_option, echo, echo_json, json_option, settings_of

if TYPE_CHECKING:
    from pertoken.costs.spend.month import Alert, MonthSpend
    from pertoken.store.connect.location import StoreLocation

ALERT = 3
"""Exit status where a threshold of the budget is reached."""


@click.command(short_help="Show the spend of the month, its likely end, and the budget.")
@at_option
@json_option
@db_option
def budget(config_file: str | None, db: str | None, as_json: bool, at: str | None) -> None:
    """Show what the devices cost in this calendar month (UTC), and what its end is likely to be.

    The end of the month is predicted from whole days: by their mean from 4 days on, by the day of the week from 14 and
    with a trend from 28, with an 80% interval; with fewer it is unknown. Dollars are those of recorded time of devices
    with a price.

    Exits with 3 where the spend reached a threshold (`budget.alert_at`) of `budget.usd_per_month`, or where the likely
    spend of the whole month is above it, and notes it in the database, each once a month. With --at nothing is noted.
    """

    from pertoken.cli.progress import Progress
    from pertoken.costs.spend.month import alerts, month_spend
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.tui.text.money.spend import spend_plain, spend_text
    from pertoken.units import NANO_USD

    settings = settings_of(config_file, db=db)
    moment, where = as_of(at), locate(settings.db, settings.advice)
    store = open_store(where)
    check_recorded(moment, store)
    with Progress("Reading the month"):
        spend = month_spend(store, moment.ts, dated=moment.dated)
    limit = None if settings.budget_usd_per_month is None else round(settings.budget_usd_per_month * NANO_USD)
    reached = () if limit is None else alerts(spend, limit, settings.budget_alert_at)
    if reached and limit is not None and not moment.dated:
        _note(where, spend, limit, reached)
    if as_json:
        echo_json(spend_plain(spend, limit, reached))
    else:
        echo(spend_text(spend, limit, reached), nl=False)
    if reached:
        sys.exit(ALERT)


def _note(where: StoreLocation, spend: MonthSpend, limit: int, reached: Sequence[Alert]) -> None:
    """Store the thresholds that are reached; one that is noted for this month stays as it is. Raises StoreError."""
    from pertoken.migrations import upgrade
    from pertoken.store import repository
    from pertoken.store.repository import AdviceRepository

    upgrade(where, "advice")
    with AdviceRepository(where).writing() as connection:
        for each in reached:
            repository.add_budget_alert(
                connection,
                month=spend.name,
                kind=each.kind,
                threshold_1e4=each.threshold_1e4,
                ts=spend.now_ts,
                spent_nano_usd=spend.nano_usd or 0,
                expected_nano_usd=None if spend.total is None else spend.total[1],
                budget_nano_usd=limit,
            )
