"""Rows of one day of a database, as Arrow tables: lines of the bill, tokens, savings, advice, and rows as stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, select

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.bill import Bill
from pertoken.costs.fleet import placements, service_name
from pertoken.costs.lines import IDLE, BilledBuckets
from pertoken.errors import StoreError
from pertoken.lake.reading import ADVICE, COPIED, COSTS, KINDS, OWNERS, SAVINGS, TOKENS, UNPRICED, WORK, Copied, schema
from pertoken.proof.judging.receipts import off_the_bill, read_receipts, readable
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import stored
from pertoken.state.deployment import WORKLOAD, Placement, Workload, bases_of, parsed
from pertoken.store.schema.shared import OTHER
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.columns import NULL
from pertoken.window.inventory import Inventory, follows
from pertoken.window.reading import DAY

if TYPE_CHECKING:
    import pyarrow as pa

Line = tuple[int | str | None, ...]
"""Values of one row of a table, in the order of its columns."""
CostLine = tuple[*Line, int | None]
"""Line of `costs`, which ends with its dollars."""
_NO_PLACE = Placement()


@dataclass(frozen=True, slots=True)
class _Owner:
    """Deployment that a line is of, with the names it is grouped by."""

    epoch_id: int
    deployment_id: int
    model: str
    service: str
    workload: Workload | None

    def values(self) -> Line:
        """Return its columns."""
        workload = self.workload or Workload()
        return self.epoch_id, self.deployment_id, self.model, self.service, workload.namespace, workload.name


_NOBODY = (None,) * 6


class DayRows:
    """Rows of one day, from the bill of its closed hours."""

    def __init__(self, bill: Bill, market: Market, settings: Settings) -> None:
        self._bill, self._start = bill, bill.window.start
        inventory = bill.inventory
        self._places = placements(inventory, market, settings)
        self._owners = dict(_owners(inventory, settings))
        self._counting = {row.epoch_id for row in inventory.epochs if not follows(row)}
        self._accelerators = {
            device_id: _accelerator(row.name, market) if row.kind != "cpu" else None
            for device_id, row in inventory.devices.items()
        }

    def tables(self) -> dict[str, pa.Table]:
        """Return `costs`, `tokens`, `kinds` and `owners` as Arrow tables."""
        billed = self._bill.by_bucket(HOUR)
        costs = list(self._costs(billed))
        return {
            COSTS: arrow(COSTS, sorted(costs, key=_order)),
            TOKENS: arrow(TOKENS, sorted(_with_dollars(self._tokens(billed), costs), key=_order)),
            KINDS: arrow(KINDS, sorted(self._kinds(), key=itemgetter(3))),
            OWNERS: arrow(OWNERS, sorted(self._owner_names())),
        }

    def _costs(self, billed: BilledBuckets) -> Iterator[CostLine]:
        for line in billed.lines():
            yield self._line(line.start_ts, line.device_id, line.epoch_id, line.use, line.nano_usd)
        for use, bucket, device_id, epoch_id in sorted(_without_dollars(billed)):
            yield self._line(bucket * HOUR, device_id, epoch_id, use, None if use == UNPRICED else 0)

    def _line(self, start_ts: int, device_id: int, epoch_id: int | None, use: str, nano_usd: int | None) -> CostLine:
        device = self._bill.inventory.devices[device_id]
        host_place = self._places.get(device.host_id, _NO_PLACE)
        owner = None if epoch_id is None else self._owners.get(epoch_id)
        line: Line = (
            (start_ts - self._start) // HOUR,
            device_id,
            self._accelerators[device_id],
            device.host_name,
            host_place.provider,
            host_place.region,
            epoch_id if epoch_id in self._counting else None,
            *(_NOBODY if owner is None else owner.values()),
            use,
        )
        return *line, nano_usd

    def _tokens(self, billed: BilledBuckets) -> Iterator[Line]:
        names = ("prompt_tokens", "cached_tokens", "generated_tokens", "observed_ms")
        sums: dict[tuple[int, int], list[int | None]] = {}
        for part in billed.parts:
            columns = (part.served.ints(name).tolist() for name in ("epoch_id", "ts", *names))
            for epoch_id, ts, *values in zip(*columns, strict=True):
                if epoch_id in self._counting and epoch_id in self._owners:
                    key = epoch_id, (ts - self._start) // HOUR
                    sums[key] = [
                        _added(total, None if value == NULL else value)
                        for total, value in zip(sums.get(key, [None] * len(names)), values, strict=True)
                    ]
        host_of = {row.epoch_id: row.host_id for row in self._bill.inventory.epochs}
        for (epoch_id, hour), values in sums.items():
            host_place = self._places.get(host_of[epoch_id], _NO_PLACE)
            yield hour, host_place.provider, host_place.region, epoch_id, *self._owners[epoch_id].values(), *values

    def _kinds(self) -> Iterator[Line]:
        newest = self._bill.inventory.newest
        for deployment_id, dollars in self._bill.kinds.items():
            host_place = self._places.get(newest[deployment_id].host_id, _NO_PLACE)
            owner = self._owners[newest[deployment_id].epoch_id]
            served = self._bill.totals.of(deployment_id)
            tokens = (served.get(f"{kind}_tokens") for kind in ("prompt", "cached", "generated"))
            yield (
                host_place.provider,
                host_place.region,
                *owner.values(),
                *(getattr(dollars, kind) for kind in WORK),
                *tokens,
            )

    def _owner_names(self) -> Iterator[tuple[int, str, str]]:
        """Yield the owners of each epoch by every basis that is no column."""
        inventory = self._bill.inventory
        for basis in bases_of([json.loads(row.knobs) for row in inventory.epochs]):
            if basis not in ("namespace", "workload"):
                for epoch_id, owner in inventory.owners(basis).items():
                    if owner is not None:
                        yield epoch_id, basis, owner

    def prices(self) -> Iterator[tuple[int, list[int | None]]]:
        """Yield the prices of all devices that are paid for at the start of the day and at each change in it."""
        book, window = self._bill.prices, self._bill.window
        devices = sorted(self._bill.payers.items())
        rows = [row for _, row in devices]
        for ts in sorted({window.start, *(ts for ts in book.changes() if window.start < ts < window.end)}):
            yield ts, book.rates(rows, ts)


def _with_dollars(tokens: Iterable[Line], costs: Iterable[CostLine]) -> Iterator[Line]:
    """Yield the rows of `tokens`, of each epoch and hour, with the dollars of their lines in `costs`."""
    names = [name for name in schema(TOKENS).names if name in schema(COSTS).names]
    key_names = names[: names.index("workload") + 1]
    columns = [schema(COSTS).names.index(name) for name in key_names]
    dollars: dict[Line, tuple[int | None, bool]] = {}
    for line in costs:
        key = tuple(line[column] for column in columns)
        if key[key_names.index("deployment_id")] is not None:
            paid, unpriced = dollars.get(key, (None, False))
            dollars[key] = _added(paid, line[-1]), unpriced or line[-1] is None
    for row in tokens:
        yield *row, *dollars.pop(row[: len(key_names)], (None, False))
    for key, paid_and_unpriced in dollars.items():
        yield *key, *(None,) * 4, *paid_and_unpriced


def _without_dollars(billed: BilledBuckets) -> set[tuple[str, int, int, int]]:
    """Return the time that deployments held and that is in no line of the bill: its price is unknown, or 0."""
    lines: set[tuple[str, int, int, int]] = set()
    for owned in billed.owned:
        held = (owned.held_ns > 0) & (owned.epoch_id != OTHER)
        for use, rows in ((UNPRICED, held & (owned.nano_usd == NULL)), (IDLE, held & (owned.nano_usd == 0))):
            columns = (column[rows].tolist() for column in (owned.bucket, owned.device_id, owned.epoch_id))
            lines.update((use, *key) for key in zip(*columns, strict=True))
    return lines


def arrow(name: str, rows: Iterable[Line]) -> pa.Table:
    """Return rows as a table of the lake. Raises StoreError for a value that its column cannot hold."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True))
    kinds = schema(name)
    if not columns:
        return kinds.empty_table()
    try:
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, kinds, strict=True)]
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise StoreError(f"{name}: holds a value that cannot be published: {error}") from None
    return pa.Table.from_arrays(arrays, schema=kinds)


def copied_rows(connection: Connection, name: str, start: int, end: int) -> pa.Table:
    """Return the rows of one day that are published as stored, in the order of their key."""
    source = COPIED[name]
    table, columns = source.table, [source.table.c[column] for column in source.columns]
    query = select(*columns).where(*_inside(source, start, end)).order_by(*table.primary_key)
    return arrow(name, (tuple(row) for row in connection.execute(query)))


def _inside(source: Copied, start: int, end: int) -> Iterator[ColumnElement[bool]]:
    columns = source.table.c
    if source.time is not None:
        yield columns[source.time] >= start
        yield columns[source.time] < end
    else:
        yield columns.first_ts < end
        yield columns.last_ts >= start


def savings_rows(connection: Connection, start: int, end: int, models: Mapping[int, str]) -> pa.Table:
    """Return the receipts of a day. `models`: served model by deployment."""
    recommendations = {row.recommendation_id: row for row in stored(connection)}
    rows = []
    for stored_receipt in read_receipts(connection):
        receipt = readable(stored_receipt) if start <= stored_receipt.created_ts < end else None
        if receipt is None:
            continue
        advice = recommendations.get(stored_receipt.recommendation_id or 0)
        in_hours, by_month = receipt.measured_in_window, off_the_bill(receipt)
        rows.append(
            (
                stored_receipt.receipt_id,
                stored_receipt.recommendation_id,
                stored_receipt.deployment_id,
                stored_receipt.epoch_id,
                models.get(stored_receipt.deployment_id or 0),
                receipt.finding.verdict.value,
                advice.rule_id if advice else None,
                advice.title if advice else None,
                stored_receipt.created_ts,
                *((None,) * 3 if in_hours is None else (in_hours.low, in_hours.likely, in_hours.high)),
                *((None,) * 3 if by_month is None else (by_month.low, by_month.likely, by_month.high)),
            )
        )
    return arrow(SAVINGS, sorted(rows, key=itemgetter(0)))


def advice_rows(connection: Connection, places: Iterable[Placement]) -> pa.Table:
    """Return the open recommendations that count, with the provider of the cell where all `places` have one."""
    providers = {host_place.provider for host_place in places}
    provider = providers.pop() if len(providers) == 1 else None
    open_rows = (row for row in stored(connection) if row.counted)
    return arrow(ADVICE, sorted(filter(None, (_advice(row, provider) for row in open_rows))))


def _advice(row: Recommendation, provider: str | None) -> Line | None:
    if row.best is None or row.best.saving is None:
        return None
    edits = {(edit.field, str(edit.after)) for edit in row.best.edits}
    commitment = any(field == "commitments" or after == "reserved" for field, after in edits)
    net = row.best.saving.net
    return row.recommendation_id, row.rule_id, row.target, row.title, *net, State.OPEN.value, provider, commitment


def _owners(inventory: Inventory, settings: Settings) -> Iterator[tuple[int, _Owner]]:
    """Yield the owner of each epoch; a worker rank's is the deployment of its head rank."""
    for row in inventory.epochs:
        deployment_id, head = inventory.heads.get(row.epoch_id, row.deployment_id), inventory.head_rows[row.epoch_id]
        workload = parsed(json.loads(head.knobs).get(WORKLOAD))
        service = service_name(head.served_model, settings)
        yield row.epoch_id, _Owner(row.epoch_id, deployment_id, head.served_model, service, workload)


def _accelerator(name: str, market: Market) -> str:
    accelerator = market.accelerator(name)
    return accelerator.name if accelerator else name


def _added(total: int | None, value: int | None) -> int | None:
    return total if value is None else value + (total or 0)


def _order(row: Line) -> tuple[tuple[bool, int | str | None], ...]:
    """Order rows so that equal values stand together: by place and owner, then by time."""
    return tuple((value is not None, value) for value in (*row[2:-1], row[0], row[1]))


def day_end(start: int, through_ts: int) -> int:
    """Return the end of the closed hours of a day."""
    return min(start + DAY, through_ts // HOUR * HOUR)


def count_of(tables: Mapping[str, pa.Table], names: Iterable[str]) -> int:
    """Return the rows of some tables together."""
    return sum(tables[name].num_rows for name in names)
