"""Replies of the MCP server, as JSON values."""

import time
from collections.abc import Callable
from typing import Any

from pertoken.config import Settings
from pertoken.costs.hours.spend import BY, spend
from pertoken.errors import BadInput
from pertoken.proof.recommendation import State
from pertoken.proof.stored import standing
from pertoken.proof.verdicts import standing_verdicts
from pertoken.reports.figures import TAKEN, best_of_each_target, unconfirmed
from pertoken.reports.values import advice_values, bill_values, verdict_values
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.units import NANO_USD

MAX_HOURS = 8760
MAX_ROWS = 200
"""Rows of one reply; the number of the others is in `left_out`."""
_SILENT = (State.REFUSED, State.BLOCKED, State.FAILED)


class Replies:
    """Replies from one database, which is opened read-only for each call."""

    def __init__(self, where: StoreLocation, settings: Settings, now: Callable[[], float] = time.time) -> None:
        self._where, self._settings, self._now = where, settings, now

    def costs(self, hours: int = 24, by: str = "model") -> dict[str, Any]:
        """Return the bill of the last hours of the clock, as `pertoken costs --by` prints it. Raises BadInput."""
        if not 1 <= hours <= MAX_HOURS:
            raise BadInput(f"hours: must be from 1 to {MAX_HOURS}")
        if by not in BY:
            raise BadInput(f"by: must be one of {', '.join(BY)}")
        teams = {tenant.name: tenant.team for tenant in self._settings.tenants}
        bill = spend(open_store(self._where), by, hours, int(self._now()), teams)
        paid = None if bill.nano_usd is None else bill.nano_usd / NANO_USD
        return {"hours": hours, "usd": paid, **_cut("lines", list(bill_values(bill))), "notes": list(bill.notes)}

    def savings(self) -> dict[str, Any]:
        """Return open advice that counts in the total, that which the last run did not confirm, and what was taken."""
        rows = standing(open_store(self._where))
        proposed = [advice_values(row) for row in best_of_each_target(rows)]
        return {
            **_cut("found", proposed),
            "unconfirmed": [advice_values(row) for row in unconfirmed(rows)][:MAX_ROWS],
            "taken": [advice_values(row) for row in rows if row.state in TAKEN][:MAX_ROWS],
        }

    def verdicts(self) -> dict[str, Any]:
        """Return verdicts on changes of configuration, newest first."""
        return _cut("verdicts", [verdict_values(verdict) for verdict in standing_verdicts(open_store(self._where))])

    def refusals(self) -> dict[str, Any]:
        """Return rules that refused, were blocked or failed, with the reason."""
        rows = standing(open_store(self._where))
        return _cut("refusals", [advice_values(row) for row in rows if row.state in _SILENT])


def _cut(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: rows[:MAX_ROWS], "left_out": max(0, len(rows) - MAX_ROWS)}
