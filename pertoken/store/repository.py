"""The advice side of the store: prices people set, recommendations with their transitions, verdicts, receipts."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Connection, Engine, Table, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import check_revision, explained, revision, upsert, writing
from pertoken.store.query.rollups import Row, named_tuples
from pertoken.store.schema import advice as a
from pertoken.store.schema.shared import stable_id

ColumnValues = Mapping[str, int | str | None]


class AdviceRepository:
    """Advice opened for writing, in short transactions; rows carry versions, so that no one's change is lost."""

    def __init__(self, location: StoreLocation) -> None:
        """Raises StoreError if its schema is not this pertoken's or it cannot be opened."""
        self.location = location
        self._engine: Engine = writing(location, "advice")
        with explained(location):
            check_revision(revision(self._engine, "advice"), "advice", location)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction. Raises StoreError if it cannot be done."""
        with explained(self.location), self._engine.connect() as connection, connection.begin():
            yield connection


def _stored(
    connection: Connection, table: Table, row: type[Row], *order: str, recommendation_id: int | None = None
) -> list[Row]:
    """Return the rows of a table in an order: all of them, or those of one recommendation."""
    query = select(table).order_by(*(table.c[name] for name in order))
    if recommendation_id is not None:
        query = query.where(table.c.recommendation_id == recommendation_id)
    return named_tuples(connection, query, row)


class PricesChanged(StoreError):
    """Somebody else set a price after the prices were read."""


class AdviceChanged(StoreError):
    """Somebody else changed a recommendation or verdict after it was read."""


def prices(connection: Connection) -> list[a.PriceRow]:
    """Return every price ever set or taken back, oldest first: by when it is in force from, then in the order of
    setting."""
    return _stored(connection, a.price, a.PriceRow, "from_ts", "seq")


def add_price(connection: Connection, *, read_seq: int | None = None, **values: object) -> int:
    """Add a price as the one set last, and return its id.

    `read_seq` is that of the newest price read, 0 without any: raises PricesChanged if another was set since.
    """
    return stable_id("price", _append(connection, a.price, [values], read_seq, "prices were changed"))


def _append(
    connection: Connection, table: Table, rows: Iterable[Mapping[str, object]], read_seq: int | None, change: str
) -> int:
    """Insert rows as the last ones, and return the `seq` of the newest.

    Raises PricesChanged if others were set since `read_seq`, or are at once.
    """
    changed = PricesChanged(f"{change} by someone else meanwhile; look again")
    newest = connection.execute(select(func.max(table.c.seq))).scalar() or 0
    if read_seq is not None and newest != read_seq:
        raise changed
    numbered = [
        {**row, "seq": seq, f"{table.name}_id": stable_id(table.name, seq)} for seq, row in enumerate(rows, newest + 1)
    ]
    try:
        if numbered:
            connection.execute(insert(table), numbered)
    except IntegrityError:  # of two who set one at once, the second finds the id taken
        raise changed from None
    return newest + len(numbered)


def discounts(connection: Connection) -> list[a.DiscountRow]:
    """Return every discount ever set or withdrawn: by when it is in force from, then in the order of setting."""
    return _stored(connection, a.discount, a.DiscountRow, "from_ts", "seq")


def add_discount(connection: Connection, *, read_seq: int, **values: object) -> None:
    """Add a discount as the one set last. Raises PricesChanged if another was set since `read_seq`, the newest read."""
    _append(connection, a.discount, [values], read_seq, "discounts were changed")


def offers(connection: Connection) -> list[a.OfferRow]:
    """Return every list price ever imported, in the order of import."""
    return _stored(connection, a.offer, a.OfferRow, "seq")


def add_offers(connection: Connection, rows: Iterable[Mapping[str, object]], *, read_seq: int) -> None:
    """Add list prices in their order. `read_seq` is that of the newest when they were read, 0 without any.

    Raises PricesChanged if others were imported since.
    """
    _append(connection, a.offer, rows, read_seq, "list prices were imported")


def owned(connection: Connection) -> list[a.OwnedRow]:
    """Return what every owned server ever cost: by when it is in force from, then in the order of setting."""
    return _stored(connection, a.owned, a.OwnedRow, "from_ts", "seq")


def add_owned(connection: Connection, **values: object) -> None:
    """Add what an owned server costs as the one set last. Raises PricesChanged if another was set at once."""
    _append(connection, a.owned, [values], None, "prices were changed")


def add_budget_alert(connection: Connection, **values: object) -> None:
    """Note that a threshold was reached, unless it is noted for this month."""
    key = {name: values[name] for name in ("month", "kind", "threshold_1e4")}
    noted = select(a.budget_alert.c.ts).filter_by(**key)
    if connection.execute(noted).first() is None:
        connection.execute(insert(a.budget_alert).values(**values))


def probes(connection: Connection) -> list[a.ProbeRow]:
    """Return every measurement by `pertoken probe`, oldest first."""
    return _stored(connection, a.probe, a.ProbeRow, "started_ts")


def add_probe(connection: Connection, **values: object) -> None:
    """Store what a probe measured of a deployment."""
    connection.execute(insert(a.probe).values(**values))


def recommendations(connection: Connection) -> list[a.RecommendationRow]:
    """Return every recommendation as it stands."""
    return _stored(connection, a.recommendation, a.RecommendationRow)


def refusals(connection: Connection) -> list[a.RefusalRow]:
    """Return every refusal as it stands, by recommendation and code."""
    return _stored(connection, a.refusal, a.RefusalRow, "recommendation_id", "code")


def put_refusals(connection: Connection, recommendation_id: int, reasons: Mapping[str, str], ts: int) -> None:
    """Replace the refusals of a recommendation, given as reasons by code; one that is repeated keeps its `since_ts`."""
    same_recommendation = a.refusal.c.recommendation_id == recommendation_id
    stored = _stored(connection, a.refusal, a.RefusalRow, recommendation_id=recommendation_id)
    since_by_code = {row.code: row.since_ts for row in stored}
    connection.execute(delete(a.refusal).where(same_recommendation))
    rows = [
        a.RefusalRow(recommendation_id, code, reason, since_by_code.get(code, ts))._asdict()
        for code, reason in reasons.items()
    ]
    if rows:
        connection.execute(insert(a.refusal), rows)


def add_refusals(connection: Connection, reasons: Mapping[int, tuple[int, Mapping[str, str]]]) -> None:
    """Add the refusals of new recommendations, by id their time and reasons by code, in one statement."""
    rows = [
        a.RefusalRow(key, code, reason, ts)._asdict()
        for key, (ts, reason_by_code) in reasons.items()
        for code, reason in reason_by_code.items()
    ]
    if rows:
        connection.execute(insert(a.refusal), rows)


def add_recommendations(
    connection: Connection, recommendations: Iterable[tuple[ColumnValues, str, str]], *, who: str
) -> None:
    """Insert new recommendations, each with the reason code and why it was made, and note the moves: two statements.

    Raises AdviceChanged if somebody else added one of them meanwhile.
    """
    rows, moves = [], []
    for values, code, why in recommendations:
        rows.append({**values, "version": 1})
        moves.append(_move(values, 1, None, code, who, why))
    if not rows:
        return
    try:
        connection.execute(insert(a.recommendation), rows)
    except IntegrityError:
        raise AdviceChanged("advice was added by someone else meanwhile; look again") from None
    connection.execute(insert(a.transition), moves)


def put_recommendation(
    connection: Connection, values: ColumnValues, *, read_version: int, who: str, why: str, code: str
) -> None:
    """Insert a recommendation (read_version 0) or replace the version that was read; a change of state is recorded.

    Raises AdviceChanged if somebody else changed it since it was read, StoreError for a change of its estimate.
    """
    key, columns = values["recommendation_id"], a.recommendation.c
    present = connection.execute(
        select(columns.state, columns.version, columns.estimate).where(columns.recommendation_id == key)
    ).first()
    if (present.version if present else 0) != read_version:
        raise _changed(connection, values)
    if present is not None and present.estimate is not None and values.get("estimate") != present.estimate:
        raise StoreError(f"{values['title']}: the estimate that was accepted never changes")
    if present is None:
        try:
            connection.execute(insert(a.recommendation).values(**{**values, "version": 1}))
        except IntegrityError:
            raise AdviceChanged(f"{values['title']}: was added by someone else meanwhile; look again") from None
    else:
        if not _replaced(connection, a.recommendation, values, read_version):
            raise _changed(connection, values)
    if present is None or present.state != values["state"]:
        move = _move(values, read_version + 1, present.state if present else None, code, who, why)
        connection.execute(insert(a.transition).values(move))


def _move(
    values: ColumnValues, version: int, from_state: str | None, code: str, who: str, why: str
) -> dict[str, int | str | None]:
    return {
        "recommendation_id": values["recommendation_id"],
        "version": version,
        "ts": values["updated_ts"],
        "from_state": from_state,
        "to_state": values["state"],
        "code": code,
        "who": who,
        "why": why,
    }


def _replaced(connection: Connection, table: Table, values: Mapping[str, object], read_version: int) -> bool:
    """Replace the version of a row that was read. Return False, without a change, if there is another one now."""
    same = [key == values[key.name] for key in table.primary_key]
    statement = update(table).where(*same, table.c.version == read_version)
    return connection.execute(statement.values(**{**values, "version": read_version + 1})).rowcount == 1


def _changed(connection: Connection, values: ColumnValues) -> AdviceChanged:
    newest = next(reversed(transitions(connection, int(values["recommendation_id"] or 0))), None)
    by = f" (now {newest.to_state.lower()}, by {newest.who})" if newest is not None else ""
    return AdviceChanged(f"{values['title']}: was changed by someone else meanwhile{by}; look again")


def transitions(connection: Connection, recommendation_id: int | None = None) -> list[a.TransitionRow]:
    """Return every change of state of one recommendation, or of all, oldest first."""
    order = "recommendation_id", "version"
    return _stored(connection, a.transition, a.TransitionRow, *order, recommendation_id=recommendation_id)


def verdicts(connection: Connection) -> list[a.VerdictRow]:
    """Return every verdict on a change of configuration, oldest change first."""
    return _stored(connection, a.verdict, a.VerdictRow, "changed_ts", "epoch_id")


def add_verdict(connection: Connection, values: Mapping[str, object]) -> bool:
    """Add the verdict on an epoch. Return False, without a change, if the epoch has one."""
    statement = upsert(connection.dialect.name, a.verdict).on_conflict_do_nothing()
    return connection.execute(statement.values(**{**values, "version": 1})).rowcount == 1


def put_verdict(connection: Connection, values: Mapping[str, object], *, read_version: int) -> None:
    """Replace the verdict that was read. Raises AdviceChanged if somebody else changed it since."""
    if not _replaced(connection, a.verdict, values, read_version):
        raise AdviceChanged("a verdict was changed by someone else meanwhile; look again")


def receipts(connection: Connection, recommendation_id: int | None = None) -> list[a.ReceiptRow]:
    """Return every receipt of one recommendation, or of all, oldest first."""
    order = "created_ts", "receipt_id"
    return _stored(connection, a.receipt, a.ReceiptRow, *order, recommendation_id=recommendation_id)


class ReceiptSubject(NamedTuple):
    """Subject, kind and time of a receipt."""

    recommendation_id: int | None
    deployment_id: int | None
    epoch_id: int | None
    kind: str
    created_ts: int


def receipt_kinds(connection: Connection) -> list[ReceiptSubject]:
    """Return (recommendation_id, deployment_id, epoch_id, kind, created_ts) of every receipt."""
    columns = (a.receipt.c[name] for name in ReceiptSubject._fields)
    return named_tuples(connection, select(*columns), ReceiptSubject)


def add_receipt(connection: Connection, values: ColumnValues) -> None:
    """Add a receipt; its `receipt_id` is made of what it is about, its kind and its hash. A repetition changes nothing.

    `values` has every other column of the table.
    """
    subject = [values.get(name) or 0 for name in ("recommendation_id", "deployment_id", "epoch_id")]
    receipt_id = stable_id("receipt", *subject, str(values["kind"]), str(values["hash"]))
    statement = upsert(connection.dialect.name, a.receipt).on_conflict_do_nothing()
    connection.execute(statement.values(**{**values, "receipt_id": receipt_id}))


def trials(connection: Connection, recommendation_id: int | None = None) -> list[a.TrialRow]:
    """Return every trial of one recommendation, or of all, oldest first."""
    return _stored(connection, a.trial, a.TrialRow, "started_ts", "trial_id", recommendation_id=recommendation_id)


def put_trial(connection: Connection, values: Mapping[str, object], *, read_version: int) -> None:
    """Insert a trial (read_version 0), or replace the version that was read.

    Raises AdviceChanged if somebody else began or changed it since.
    """
    changed = AdviceChanged("the trial was begun or changed by someone else meanwhile; look again")
    if read_version == 0:
        try:
            connection.execute(insert(a.trial).values(**{**values, "version": 1}))
        except IntegrityError:
            raise changed from None
        return
    if not _replaced(connection, a.trial, values, read_version):
        raise changed


def alerts(connection: Connection) -> list[a.AlertRow]:
    """Return every alert that holds or held a moment ago, by name and target."""
    return _stored(connection, a.alert, a.AlertRow, "name", "target")


def put_alert(connection: Connection, values: Mapping[str, object]) -> None:
    """Insert an alert of a target, or replace it."""
    drop_alert(connection, str(values["name"]), str(values["target"]))
    connection.execute(insert(a.alert).values(**values))


def drop_alert(connection: Connection, name: str, target: str) -> bool:
    """Delete an alert of a target: it does not hold. Return whether it was there: of two advisors one deletes it."""
    same = a.alert.c.name == name, a.alert.c.target == target
    return connection.execute(delete(a.alert).where(*same)).rowcount == 1


def add_alert_delivery(connection: Connection, values: Mapping[str, object]) -> None:
    """Add what is to be sent, unless it is there."""
    statement = upsert(connection.dialect.name, a.alert_delivery).on_conflict_do_nothing()
    connection.execute(statement.values(**values))


def due_alert_deliveries(connection: Connection, now_ts: int) -> list[a.AlertDeliveryRow]:
    """Return what is to be sent by now, oldest first."""
    columns = a.alert_delivery.c
    return named_tuples(
        connection,
        select(a.alert_delivery).where(columns.next_ts <= now_ts).order_by(columns.created_ts),
        a.AlertDeliveryRow,
    )


class AlertEvent(NamedTuple):
    """JSON of an event of alerts, and its time."""

    body: str
    ts: int


def alert_events(connection: Connection, start_ts: int) -> list[AlertEvent]:
    """Return the JSON of each event of alerts since `start_ts`, with its time; one row for all its destinations."""
    columns = a.alert_delivery.c
    query = (
        select(columns.body, func.min(columns.created_ts).label("ts"))
        .where(columns.created_ts >= start_ts)
        .group_by(columns.body)
    )
    return named_tuples(connection, query, AlertEvent)


def put_alert_delivery(
    connection: Connection, delivery_id: int, *, read_tries: int, tries: int, next_ts: int | None, error: str | None
) -> bool:
    """Note a try. Return False, without a change, if somebody else tried since it was read."""
    columns = a.alert_delivery.c
    same = columns.delivery_id == delivery_id, columns.tries == read_tries
    changed = update(a.alert_delivery).where(*same).values(tries=tries, next_ts=next_ts, error=error)
    return connection.execute(changed).rowcount == 1


def forget_alert_deliveries(connection: Connection, before_ts: int) -> None:
    """Delete what was delivered or given up and is older."""
    columns = a.alert_delivery.c
    connection.execute(delete(a.alert_delivery).where(columns.created_ts < before_ts, columns.next_ts.is_(None)))


def end_trials(connection: Connection, recommendation_id: int, now_ts: int) -> None:
    """End the trial of a recommendation that runs, where one does, without a result."""
    columns = a.trial.c
    runs = (columns.recommendation_id == recommendation_id, columns.status == "RUNNING")
    connection.execute(
        update(a.trial).where(*runs).values(status="STOPPED", ended_ts=now_ts, version=columns.version + 1)
    )


def last_configuration(connection: Connection) -> list[a.ConfigurationRow]:
    """Return the row of the configuration that advice belongs to; empty before the first run."""
    newest = select(a.configuration).order_by(a.configuration.c.configuration_id.desc()).limit(1)
    return named_tuples(connection, newest, a.ConfigurationRow)


def add_configuration(connection: Connection, *, source: str, digest: str, set_ts: int, set_by: str) -> None:
    """Add the configuration that advice belongs to from now on."""
    number = 1 + max((row.configuration_id for row in last_configuration(connection)), default=0)
    connection.execute(
        insert(a.configuration).values(
            configuration_id=number, source=source, digest=digest, set_ts=set_ts, set_by=set_by
        )
    )
