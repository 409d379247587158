"""`pertoken budget`: the spend of a month so far, its likely total, and the budget."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import (
    AsOf,
    Database,
    Progress,
    at_option,
    db_option,
    echo,
    echo_json,
    json_option,
    report_faults,
)
from pertoken.settings.owners import read_owner
from pertoken.units import NANO_USD

if TYPE_CHECKING:
    from pertoken.costs.month import Alert, MonthSpend
    from pertoken.store.connect.location import StoreLocation

ALERT = 3
"""Exit status where a threshold of the budget is reached."""


class OwnerType(click.ParamType[tuple[str, str]]):
    """An owner, `BASIS=NAME`."""

    name = "basis=name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the basis and name. Raises UsageError."""
        try:
            return read_owner(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(short_help="Show the spend of the month, its likely total, and the budget.")
@click.option("--owner", type=OwnerType(), help="Only what this owner's deployments hold: namespace=prod.")
@at_option
@json_option
@db_option
def budget(database: Database, owner: tuple[str, str] | None, as_json: bool, moment: AsOf) -> None:
    """Show the spend on devices in this calendar month (UTC), and the likely total at its end.

    The total is predicted from whole days with an 80% interval: by their mean from 4 days on, by the day of the week
    from 14 and with a trend from 28; with fewer days it is unknown. Dollars are of recorded time of devices with a
    price. Owners with a budget (`budget.owners`) follow the fleet; theirs is the time for which their deployments held
    devices.

    Exit 3 if the spend reached a threshold (`budget.alert_at`) of `budget.usd_per_month` or of an owner's budget, or if
    the likely total is above it. Each of these is stored once a month in the database; nothing is stored with --at.
    """
    from pertoken.costs.month import alerts, month_spend, no_spend, spend_by_owner
    from pertoken.text.billing import spend_plain, spend_text

    settings, store = database.opened(moment)
    report_faults(moment, store, 31 * 86_400)
    budgets = {read_owner(key): usd for key, usd in settings.budget_owners}
    owners = [owner] if owner else list(budgets)
    with Progress("Reading the month"):
        months: dict[str, MonthSpend] = {} if owner else {"": month_spend(store, moment.ts, dated=moment.dated)}
        for basis in dict.fromkeys(basis for basis, _ in owners):
            by_name = spend_by_owner(store, basis, moment.ts, dated=moment.dated)
            months |= {
                "=".join(budget_owner): by_name.get(budget_owner[1]) or no_spend(moment.ts)
                for budget_owner in owners
                if budget_owner[0] == basis
            }
    usd_of = {"": settings.budget_usd_per_month, **dict(settings.budget_owners)}
    shown = []
    for name, spend in months.items():
        usd = usd_of.get(name)
        limit = None if usd is None else round(usd * NANO_USD)
        reached = () if limit is None else alerts(spend, limit, settings.budget_alert_at)
        if reached and limit is not None and not moment.dated:
            _note(store.location, spend, limit, reached, name)
        shown.append((spend, limit, reached, name))
    if as_json:
        first, *others = (spend_plain(*row) for row in shown)
        echo_json({**first, **({"owners": others} if others else {})})
    else:
        echo("\n".join(spend_text(*row) for row in shown), nl=False)
    if any(reached for _, _, reached, _ in shown):
        sys.exit(ALERT)


def _note(where: StoreLocation, spend: MonthSpend, limit: int, reached: Sequence[Alert], owner: str) -> None:
    """Store the thresholds that are reached, each once a month and owner. Raises StoreError."""
    from pertoken.migrations import upgrade
    from pertoken.store import repository

    upgrade(where, "advice")
    with repository.AdviceRepository(where).writing() as connection:
        for alert in reached:
            repository.add_budget_alert(
                connection,
                month=spend.name,
                kind=f"{alert.kind} {owner}".strip(),
                threshold_1e4=alert.threshold_1e4,
                ts=spend.now_ts,
                spent_nano_usd=spend.nano_usd or 0,
                expected_nano_usd=None if spend.total is None else spend.total[1],
                budget_nano_usd=limit,
            )
