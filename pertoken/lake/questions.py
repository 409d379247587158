"""Questions about many cells, one Ibis expression each. Every engine answers the same expression.

Dollars are whole nano-USD in decimal(38, 0): 64 bits end at $9.2 billion. Nothing is divided here: a quotient is made
of the sums, in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis

from pertoken.costs.lines import BUSY, IDLE, OTHER_WORK, UNALLOCATED, USES
from pertoken.lake.manifest import day_of
from pertoken.lake.reading import Range, Tables
from pertoken.lake.tables import ADVICE, COSTS, KINDS, MAX_NANO_USD, OWNERS, SAVINGS, TOKENS, UNPRICED, WORK
from pertoken.settings.owners import is_basis
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.reading import DAY

GROUPS = ("cell", "model", "service", "provider", "region", "accelerator", "namespace", "workload")
"""Columns by which dollars can be grouped."""
EXACT = "decimal(38, 0)"


def dollars(tables: Tables, by: Sequence[str]) -> Any:
    """Return the bill by columns of `GROUPS`, bases of owners, `day` and `hour`: all that was paid, its use, and how
    many hours of devices that a deployment held have no price. Dollars are NULL where no device has one."""
    costs, by = _with_owner(tables, COSTS, by)
    uses = {f"{use}_nano_usd": exact_sum(costs.nano_usd, where=costs.use == use) for use in USES}
    unpriced = (costs.use == UNPRICED).sum()
    bill = costs.group_by([*by]).agg(nano_usd=exact_sum(costs.nano_usd), **uses, unpriced_device_hours=unpriced)
    # A use without a line is 0 where something was paid.
    bill = bill.mutate(**{name: ibis.coalesce(bill[name], (bill.nano_usd * 0).cast(EXACT)) for name in uses})
    return bill.order_by([ibis.desc("nano_usd"), *by])


def per_mtok(tables: Tables, by: str, *, hourly: bool = False) -> Any:
    """Return dollars and tokens by `by`, and by hour: those from which dollars per million tokens follow.

    An hour of a cell counts where all devices that `by` held have a price and its tokens are known; an epoch whose
    tokens are not known is left out with its dollars. Those of worker ranks count as their head rank's do.
    """
    rows, (by,) = _with_owner(tables, TOKENS, [by])
    rows = rows.mutate(group=rows[by])
    has_tokens = rows.prompt_tokens.notnull() & rows.generated_tokens.notnull()
    counted = has_tokens | rows.epoch_id.isnull()
    yes, no = ibis.literal(1, "int64"), ibis.literal(0, "int64")
    groups = rows.group_by(["cell", "day", "hour", "group"]).agg(
        nano_usd=exact_sum(rows.nano_usd, where=counted),
        unpriced=ibis.ifelse(rows.unpriced, yes, no).max(),
        held=ibis.ifelse(rows.unpriced | rows.nano_usd.notnull(), yes, no).max(),
        n_counted=ibis.ifelse(has_tokens, yes, no).max(),
        prompt=exact_sum(rows.prompt_tokens, where=has_tokens),
        cached=exact_sum(rows.cached_tokens, where=has_tokens),
        generated=exact_sum(rows.generated_tokens, where=has_tokens),
    )
    known = groups.filter((groups.unpriced == 0) & (groups.held == 1) & (groups.n_counted == 1))
    time = ["day", "hour"] if hourly else []
    return (
        known.group_by(["group", *time])
        .agg(
            nano_usd=exact_sum(known.nano_usd),
            prompt_tokens=exact_sum(known.prompt),
            cached_tokens=exact_sum(known.cached),
            generated_tokens=exact_sum(known.generated),
        )
        .order_by([ibis.desc("nano_usd"), "group", *time])
        .rename({by: "group"})
    )


def by_kind(tables: Tables, by: str) -> Any:
    """Return dollars by kind of work and tokens by kind, grouped by a column, of the days that lie in the range.

    Tokens are NULL where one of the deployments counts none.
    """
    kinds = tables[KINDS]
    sums = {f"{kind}_nano_usd": exact_sum(kinds[f"{kind}_nano_usd"]) for kind in WORK}
    for name in ("prompt_tokens", "cached_tokens", "generated_tokens"):
        sums[name] = ibis.ifelse(kinds[name].count() == kinds.count(), exact_sum(kinds[name]), ibis.null(EXACT))
    return kinds.group_by(by).agg(**sums).order_by([ibis.desc("decode_nano_usd"), by])


def months(tables: Tables) -> Any:
    """Return what each cell paid in each month."""
    costs = tables[COSTS]
    costs = costs.mutate(month=costs.day.substr(0, 7))
    return costs.group_by(["cell", "month"]).agg(nano_usd=exact_sum(costs.nano_usd)).order_by(["cell", "month"])


def unused(tables: Tables, by: Sequence[str]) -> Any:
    """Return what was paid for and not used, largest first: held while idle, and held by nobody."""
    bill, by = dollars(tables, by), _keys(by)
    idle = (bill[f"{IDLE}_nano_usd"] + bill[f"{UNALLOCATED}_nano_usd"]).cast(EXACT)
    bill = bill.mutate(unused_nano_usd=idle)
    return bill.order_by([ibis.desc("unused_nano_usd"), *by])


def realised(tables: Tables) -> Any:
    """Return what the newest receipt of each change measured in the hours compared, and what left the bill, by cell
    and verdict."""
    receipts = tables[SAVINGS]
    change = ibis.window(
        group_by=["cell", "recommendation_id", "deployment_id", "epoch_id"],
        order_by=[ibis.desc("created_ts"), ibis.desc("receipt_id")],
    )
    receipts = receipts.mutate(position=ibis.row_number().over(change)).filter(ibis._.position == 0)
    names = [f"{end}_nano_usd{time}" for time in ("", "_month") for end in ("low", "likely", "high")]
    sums = {name: exact_sum(receipts[name]) for name in names}
    return receipts.group_by(["cell", "result"]).agg(changes=receipts.count(), **sums).order_by(["cell", "result"])


def advice(tables: Tables) -> Any:
    """Return the open recommendations of the newest published day of each cell, largest first. They do not add up:
    several may be about the same devices, and commitments of several cells about the same discount."""
    rows = tables[ADVICE]
    newest = rows.group_by("cell").agg(newest=rows.day.max())
    joined = rows.join(newest, "cell")
    return (
        joined.filter(joined.day == joined.newest)
        .drop("newest")
        .order_by([ibis.desc("likely_nano_usd_month"), "cell", "recommendation_id"])
    )


def faulty_days(tables: Tables, name: str) -> Any:
    """Return the days of `costs` or `tokens` with rows that no bill holds: a negative amount, an hour outside the day,
    an unknown use."""
    rows = tables[name]
    wrong = (rows.nano_usd < 0) | (rows.nano_usd > MAX_NANO_USD) | ~rows.hour.between(0, 23) | rows.hour.isnull()
    if name == COSTS:
        wrong |= (
            rows.use.isnull()
            | rows.use.notin([BUSY, IDLE, OTHER_WORK, UNALLOCATED, UNPRICED])
            | (rows.nano_usd.isnull() != (rows.use == UNPRICED))
        )
    else:
        wrong |= rows.unpriced.isnull() | (rows.prompt_tokens < 0) | (rows.generated_tokens < 0)
    return rows.filter(wrong).select("cell", "day").distinct()


def _with_owner(tables: Tables, name: str, by: Sequence[str]) -> tuple[Any, list[str]]:
    """Return a table and its columns to group by; of a label, job or slice it has `owner`, NULL where none is known.

    An epoch has one owner by each basis, whatever a file of `owners` holds: no line is counted twice.
    """
    rows, key = tables[name], ("cell", "day", "owner_epoch_id")
    for basis in by:
        if basis not in _keys([basis]):
            owners = tables[OWNERS].filter(ibis._.basis == basis).group_by(key).agg(owner=ibis._.owner.max())
            owners = owners.rename({f"{column}_of_owner": column for column in key})
            joined = rows.left_join(owners, [rows[column] == owners[f"{column}_of_owner"] for column in key])
            rows = joined.drop(*(f"{column}_of_owner" for column in key))
    return rows, _keys(by)


def _keys(by: Sequence[str]) -> list[str]:
    return ["owner" if is_basis(name) and name not in GROUPS else name for name in by]


def with_owners(table: Any) -> Any:
    """Return a table whose workloads are named `NAMESPACE/NAME`: two namespaces may use one name."""
    return table.mutate(workload=ibis.coalesce(table.namespace + "/" + table.workload, table.workload))


def within(table: Any, asked: Range) -> Any:
    """Return the rows of a table with `day` and `hour` that lie in a range of whole hours."""
    (first_day, first_hour), (last_day, last_hour) = (
        (day_of(ts).isoformat(), ts % DAY // HOUR) for ts in (asked.start_ts, asked.end_ts - 1)
    )
    begun = (table.day > first_day) | ((table.day == first_day) & (table.hour >= first_hour))
    return table.filter(begun & ((table.day < last_day) | ((table.day == last_day) & (table.hour <= last_hour))))


def exact_sum(column: Any, where: Any = None) -> Any:
    """Return the sum of a column as a whole decimal; NULL where no value is known."""
    return column.cast(EXACT).sum(where=where).cast(EXACT)
