"""`pertoken budget`: the spend of a month so far, its likely total, and the budget."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import (
    as_of,
    at_option,
    check_recorded,
    db_option,
    echo,
    echo_json,
    json_option,
    report_faults,
    settings_of,
)

if TYPE_CHECKING:
    from pertoken.costs.spend.month import Alert, MonthSpend
    from pertoken.store.connect.location import StoreLocation

ALERT = 3
"""Exit status where a threshold of the budget is reached."""


@click.command(short_help="Show the spend of the month, its likely total, and the budget.")
@at_option
@json_option
@db_option
def budget(config_file: str | None, db: str | None, as_json: bool, at: str | None) -> None:
    """Show the spend on devices in this calendar month (UTC), and the likely total at its end.

    The total is predicted from whole days with an 80% interval: by their mean from 4 days on, by the day of the week
    from 14 and with a trend from 28; with fewer days it is unknown. Dollars are of recorded time of devices with a
    price.

    Exit 3 if the spend reached a threshold (`budget.alert_at`) of `budget.usd_per_month`, or if the likely total is
    above the budget. Each of these is stored once a month in the database; nothing is stored with --at.
    """

    from pertoken.cli.progress import Progress
    from pertoken.costs.spend.month import alerts, month_spend
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.text.costs.month import spend_plain, spend_text
    from pertoken.units import NANO_USD

    settings = settings_of(config_file, db=db)
    moment, where = as_of(at), locate(settings.db, settings.advice)
    store = open_store(where)
    check_recorded(moment, store)
    report_faults(moment, store, 31 * 86_400)
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
    """Store the thresholds that are reached, each once a month. Raises StoreError."""
    from pertoken.migrations import upgrade
    from pertoken.store import repository
    from pertoken.store.repository import AdviceRepository

    upgrade(where, "advice")
    with AdviceRepository(where).writing() as connection:
        for alert in reached:
            repository.add_budget_alert(
                connection,
                month=spend.name,
                kind=alert.kind,
                threshold_1e4=alert.threshold_1e4,
                ts=spend.now_ts,
                spent_nano_usd=spend.nano_usd or 0,
                expected_nano_usd=None if spend.total is None else spend.total[1],
                budget_nano_usd=limit,
            )
