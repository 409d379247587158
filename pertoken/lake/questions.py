"""Questions about many cells, one Ibis expression each. Every engine answers the same expression.

Dollars are whole nano-USD in decimal(38, 0): 64 bits end at $9.2 billion. Nothing is divided here: a quotient is made
of the sums, in one place.
"""

from __future__ import annotations

import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Self, cast

import ibis
import psutil

from pertoken.costs.lines import BUSY, IDLE, OTHER_WORK, UNALLOCATED, USES
from pertoken.errors import BadInput, StoreError
from pertoken.lake.manifest import BUCKET, LakeFiles, day_of
from pertoken.lake.reading import (
    ADVICE,
    COSTS,
    KINDS,
    MAX_NANO_USD,
    OWNERS,
    SAVINGS,
    TOKENS,
    UNPRICED,
    WORK,
    DayFault,
    Days,
    Range,
    Tables,
    checked,
    days_of,
    schema,
    verified,
)
from pertoken.printable import short
from pertoken.settings.owners import is_basis
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.reading import DAY

GROUPS = ("cell", "model", "service", "provider", "region", "accelerator", "namespace", "workload")
"""Columns by which dollars can be grouped."""
EXACT = "decimal(38, 0)"


def dollars(tables: Tables, by: Sequence[str]) -> ibis.Table:
    """Return the bill by columns of `GROUPS`, bases of owners, `day` and `hour`: all that was paid, its use, and how
    many hours of devices that a deployment held have no price. Dollars are NULL where no device has one."""
    costs, by = _with_owner(tables, COSTS, by)
    uses = {f"{use}_nano_usd": exact_sum(costs.nano_usd, where=costs.use == use) for use in USES}
    unpriced = (costs.use == UNPRICED).sum()
    bill = costs.group_by([*by]).agg(nano_usd=exact_sum(costs.nano_usd), **uses, unpriced_device_hours=unpriced)
    # A use without a line is 0 where something was paid.
    bill = bill.mutate(**{name: ibis.coalesce(bill[name], (bill.nano_usd * 0).cast(EXACT)) for name in uses})
    return bill.order_by([ibis.desc("nano_usd"), *by])


def per_mtok(tables: Tables, by: str, *, hourly: bool = False) -> ibis.Table:
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
    priced = groups.filter((groups.unpriced == 0) & (groups.held == 1) & (groups.n_counted == 1))
    time = ["day", "hour"] if hourly else []
    return (
        priced.group_by(["group", *time])
        .agg(
            nano_usd=exact_sum(priced.nano_usd),
            prompt_tokens=exact_sum(priced.prompt),
            cached_tokens=exact_sum(priced.cached),
            generated_tokens=exact_sum(priced.generated),
        )
        .order_by([ibis.desc("nano_usd"), "group", *time])
        .rename({by: "group"})
    )


def by_kind(tables: Tables, by: str) -> ibis.Table:
    """Return dollars by kind of work and tokens by kind, grouped by a column, of the days that lie in the range.

    Tokens are NULL where one of the deployments counts none.
    """
    kinds = tables[KINDS]
    sums = {f"{kind}_nano_usd": exact_sum(kinds[f"{kind}_nano_usd"]) for kind in WORK}
    for name in ("prompt_tokens", "cached_tokens", "generated_tokens"):
        sums[name] = ibis.ifelse(kinds[name].count() == kinds.count(), exact_sum(kinds[name]), ibis.null(EXACT))
    return kinds.group_by(by).agg(**sums).order_by([ibis.desc("decode_nano_usd"), by])


def months(tables: Tables) -> ibis.Table:
    """Return what each cell paid in each month."""
    costs = tables[COSTS]
    costs = costs.mutate(month=costs.day.substr(0, 7))
    return costs.group_by(["cell", "month"]).agg(nano_usd=exact_sum(costs.nano_usd)).order_by(["cell", "month"])


def unused(tables: Tables, by: Sequence[str]) -> ibis.Table:
    """Return what was paid for and not used, largest first: held while idle, and held by nobody."""
    bill, by = dollars(tables, by), _keys(by)
    idle = (bill[f"{IDLE}_nano_usd"] + bill[f"{UNALLOCATED}_nano_usd"]).cast(EXACT)
    bill = bill.mutate(unused_nano_usd=idle)
    return bill.order_by([ibis.desc("unused_nano_usd"), *by])


def realised(tables: Tables) -> ibis.Table:
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


def advice(tables: Tables) -> ibis.Table:
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


def faulty_days(tables: Tables, name: str) -> ibis.Table:
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


def _with_owner(tables: Tables, name: str, by: Sequence[str]) -> tuple[ibis.Table, list[str]]:
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


def with_owners(table: ibis.Table) -> ibis.Table:
    """Return a table whose workloads are named `NAMESPACE/NAME`: two namespaces may use one name."""
    return table.mutate(workload=ibis.coalesce(table.namespace + "/" + table.workload, table.workload))


def within(table: ibis.Table, date_range: Range) -> ibis.Table:
    """Return the rows of a table with `day` and `hour` that lie in a range of whole hours."""
    (first_day, first_hour), (last_day, last_hour) = (
        (day_of(ts).isoformat(), ts % DAY // HOUR) for ts in (date_range.start_ts, date_range.end_ts - 1)
    )
    begun = (table.day > first_day) | ((table.day == first_day) & (table.hour >= first_hour))
    return table.filter(begun & ((table.day < last_day) | ((table.day == last_day) & (table.hour <= last_hour))))


def exact_sum(column: ibis.Column, where: ibis.Value | None = None) -> ibis.Value:
    """Return the sum of a column as a whole decimal; NULL where no value is known."""
    return column.cast(EXACT).sum(where=where).cast(EXACT)


DUCKDB = "duckdb"
MEMORY_SHARE = 0.5
"""Share of the free memory that DuckDB may take; beyond it, it writes to the temporary folder. Its own default is 80 %
of all memory, with which one large question stops everything else on the machine."""
PARTITIONS = ("cell", "day")
"""Columns that come from the path of a file, both as text."""
_SPARK = re.compile(r"spark://[A-Za-z0-9.-]+:\d{1,5}|local(?:\[\d{1,3}\])?")


class EngineFailed(Exception):
    """The engine could not read a file, or gave up."""


def engine(name: str, lake: LakeFiles) -> QueryEngine:
    """Return the engine of `--engine`. Raises BadInput, and StoreError where its packages are missing."""
    if name == DUCKDB:
        return DuckDB(lake)
    if _SPARK.fullmatch(name):
        return Spark(name, lake)
    raise BadInput(f"--engine {short(name)}: choose {DUCKDB} or spark://HOST:PORT")


class QueryEngine(ABC):
    """Reads tables of a lake, and runs Ibis expressions over them."""

    name: str
    _connection: ibis.BaseBackend

    def __init__(self, lake: LakeFiles) -> None:
        self._lake = lake

    def table(self, name: str, paths: Sequence[str]) -> ibis.Table:
        """Return the Ibis table of some files, with `PARTITIONS`. Raises EngineFailed."""
        if paths:
            with _failing():
                return self._read(paths)
        import pyarrow as pa

        columns = schema(name)
        for partition in PARTITIONS:
            columns = columns.append(pa.field(partition, pa.string()))
        return ibis.memtable(columns.empty_table())

    def run(self, expression: ibis.Table) -> list[dict[str, object]]:
        """Return the rows of an expression. Raises EngineFailed."""
        with _failing():
            rows: list[dict[str, object]] = self._connection.to_pyarrow(expression).to_pylist()
            return rows

    @abstractmethod
    def _read(self, paths: Sequence[str]) -> ibis.Table:
        """Return the Ibis table of at least one file."""

    def close(self) -> None:
        """Disconnect."""
        self._connection.disconnect()


@contextmanager
def _failing() -> Iterator[None]:
    """Raise every error of an engine as `EngineFailed`: their packages share no class of errors."""
    try:
        yield
    except Exception as error:
        raise EngineFailed(short(str(error).partition("\n")[0])) from error


class DuckDB(QueryEngine):
    """DuckDB in this process, on all its processors."""

    name = DUCKDB

    def __init__(self, lake: LakeFiles) -> None:
        super().__init__(lake)
        try:
            # No extension is downloaded: whatever a lake needs is here.
            self._connection = ibis.duckdb.connect(
                autoinstall_known_extensions=False,
                autoload_known_extensions=False,
                memory_limit=f"{int(psutil.virtual_memory().available * MEMORY_SHARE)}B",
                temp_directory=tempfile.gettempdir(),
            )
        except ImportError:
            raise StoreError("a lake is read by DuckDB: install pertoken with its extra `lake`") from None
        if (bucket := lake.for_duckdb()) is not None:
            self._connection.register_filesystem(bucket)

    def _read(self, paths: Sequence[str]) -> ibis.Table:
        full = [self._lake.full_path(path, BUCKET) for path in paths]
        return self._connection.read_parquet(full, hive_partitioning=True, hive_types_autocast=False)


class Spark(QueryEngine):
    """A Spark cluster, whose workers read the same paths."""

    name = "spark"

    def __init__(self, master: str, lake: LakeFiles) -> None:
        super().__init__(lake)
        try:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master(master).appName("pertoken lake")
            for key, value in _SPARK_SETTINGS.items():
                builder = builder.config(key, value)
            self._session = builder.getOrCreate()
            self._connection = ibis.pyspark.connect(self._session)
        except ImportError:
            raise StoreError("Spark needs pyspark and Java: install pertoken with its extra `spark`") from None
        except Exception as error:  # of Java, by way of py4j
            raise StoreError(f"{master}: {short(str(error).partition(chr(10))[0])}") from None

    def _read(self, paths: Sequence[str]) -> ibis.Table:
        frame = self._session.read.option("basePath", self._lake.full_path("").rstrip("/")).parquet(
            *map(self._lake.full_path, paths)
        )
        view = f"lake_{abs(hash(tuple(paths))):x}"
        frame.createOrReplaceTempView(view)
        return self._connection.table(view)

    def close(self) -> None:
        """Stop the session."""
        self._session.stop()


_SPARK_SETTINGS = {
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "16",
}
"""Partition columns are text, as for DuckDB; a sum that does not fit is an error, not NULL."""


Question = Callable[[Tables], ibis.Table]
ASKED = (COSTS, TOKENS, KINDS, OWNERS, SAVINGS, ADVICE)
"""Tables that questions read."""
CHECKED = (COSTS, TOKENS)
"""Tables of hours, whose rows are checked before they are summed."""
Row = dict[str, int | str | None]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the answers of a session are of."""

    cells: tuple[str, ...]
    n_days: int
    """Days of cells that are in every answer."""
    through_ts: int | None
    """End of the newest closed hour; None without a day."""
    faults: tuple[DayFault, ...]

    def values(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {
            "cells": list(self.cells),
            "days": self.n_days,
            "through_ts": self.through_ts,
            "left_out": [str(fault) for fault in self.faults],
        }


class FaultyDays(Exception):
    """Days with rows of no bill."""

    def __init__(self, faults: tuple[DayFault, ...]) -> None:
        super().__init__(*faults)
        self.faults = faults


class OpenTables(Mapping[str, ibis.Table]):
    """Tables of some days. A table is opened and checked when a question first reads it.

    Reading one raises FaultyDays where some of its days hold rows of no bill, and EngineFailed.
    """

    def __init__(self, engine: QueryEngine, days: Days, date_range: Range) -> None:
        self._engine, self._days, self._date_range = engine, days, date_range
        self._opened: dict[str, ibis.Table] = {}

    def __getitem__(self, name: str) -> ibis.Table:
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ASKED)

    def __len__(self) -> int:
        return len(ASKED)

    def _open(self, name: str) -> ibis.Table:
        table = self._engine.table(name, self._days.paths(name))
        if name not in CHECKED:
            return table
        reason = f"its {name} hold lines that no bill holds"
        rows = self._engine.run(faulty_days({name: table}, name))
        if rows:
            raise FaultyDays(
                tuple(DayFault(str(row["cell"]), date.fromisoformat(str(row["day"])), reason) for row in rows)
            )
        return with_owners(within(table, self._date_range))


class LakeSession:
    """Questions about one range of days, over one engine. Close it, or use it as a context manager."""

    def __init__(self, url: str, date_range: Range, engine_name: str) -> None:
        """Raise BadInput for an unknown engine or URL, StoreError where the lake cannot be listed or is none."""
        lake = LakeFiles(url)
        self._date_range = date_range
        days = checked(days_of(lake, date_range), ASKED)
        self._engine: QueryEngine = engine(engine_name, lake)
        self._open(days)

    @property
    def coverage(self) -> Coverage:
        """Which days the answers are of; it may shrink with a question that finds a damaged file."""
        days = self._days
        through_ts = max((manifest.through_ts for manifest in days.manifests), default=None)
        return Coverage(days.cells, len(days.manifests), through_ts, days.faults)

    def rows(self, question: Question) -> list[Row]:
        """Return the rows that answer a question, whole decimals as int.

        Where the engine cannot read a file, all files are compared with their checksums, and the days of those that
        differ are left out. Raises StoreError where the engine fails without such a file.
        """
        try:
            return self._answer(question)
        except EngineFailed as error:
            days = verified(self._days, ASKED)
            if days == self._days:
                raise StoreError(f"{self._engine.name}: {error}") from None
            self._open(days)
        try:
            return self._answer(question)
        except EngineFailed as error:
            raise StoreError(f"{self._engine.name}: {error}") from None

    def _answer(self, question: Question) -> list[Row]:
        while True:
            try:
                return [_plain(row) for row in self._engine.run(question(self._tables))]
            except FaultyDays as left_out:
                self._open(self._days.without(left_out.faults))

    def _open(self, days: Days) -> None:
        self._days, self._tables = days, OpenTables(self._engine, days, self._date_range)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()


def _plain(row: Mapping[str, object]) -> Row:
    """Return a row with whole decimals as int."""
    return {
        name: value if value is None or isinstance(value, (int, str)) else int(cast(Decimal, value))
        for name, value in row.items()
    }


@dataclass(frozen=True, slots=True)
class LakeView:
    """One table."""

    title: str
    question: Question
    note: str | None = None


def _bill(by: str) -> LakeView:
    return LakeView(f"Dollars by {by}", partial(dollars, by=[by]))


VIEWS: Mapping[str, LakeView] = {
    "mtok": LakeView(
        "Dollars per Mtok by model",
        partial(per_mtok, by="model"),
        "Hours in which a device has no price, or tokens are not known, are left out of both.",
    ),
    "cell": LakeView("Dollars by cell, and what of them was idle", partial(unused, by=["cell"])),
    "kinds": LakeView(
        "Dollars by model and kind of work",
        partial(by_kind, by="model"),
        "Prefill and decode are upper bounds where requests ran together; unsplit: the engine counts no times.",
    ),
    "provider": _bill("provider"),
    "namespace": _bill("namespace"),
    "services": LakeView("Services that pay most for idle devices", partial(unused, by=["cell", "service"])),
    "months": LakeView("Spend by month", months),
    "savings": LakeView(
        "Changes by verdict: measured in the hours compared, and what left the bill a month",
        realised,
        "A negative amount is a change that made tokens dearer; capacity leaves no bill.",
    ),
    "advice": LakeView(
        "Open recommendations",
        advice,
        "Amounts do not add up: several may be about the same devices, and commitments of several cells about one.",
    ),
}
"""Views by name, in the order of a report."""
