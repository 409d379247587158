"""Busy time of a row of a deployment: expressions over its columns, the same in samples and roll-ups."""

from typing import Any

from sqlalchemy import case, func, literal_column

from pertoken.provenance import Provenance


def busy_ms(columns: Any) -> Any:
    """Return the most that a row can have been busy: all of its observed time where the engine worked but exposes no
    time."""
    return func.coalesce(columns.busy_ms, case((columns.busy_provenance.is_not(None), columns.observed_ms)))


def busy_sum(columns: Any) -> Any:
    """Return the sum of `busy_ms` over rows; NULL where it is known of none of them."""
    return case((func.count(columns.busy_ms) > literal_column("0"), func.sum(busy_ms(columns))))


def busy_provenance(columns: Any) -> Any:
    """Return how the `busy_ms` of a row is known. Rows from before that column was there hold upper bounds."""
    bound: Any = literal_column(str(int(Provenance.BOUND)))
    return func.coalesce(columns.busy_provenance, case((columns.busy_ms > literal_column("0"), bound)))
