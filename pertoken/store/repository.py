"""The advice side of the store: prices people set, recommendations with their transitions, verdicts, receipts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import check_revision, explained, revision, upsert, writing
from pertoken.store.query.fast_rows import SqlRow, fetch
from pertoken.store.schema import advice as a
from pertoken.store.schema.shared import stable_id


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


class PricesChanged(StoreError):
    """Somebody else set a price after the prices were read."""


class AdviceChanged(StoreError):
    """Somebody else changed a recommendation or verdict after it was read."""


class PriceRow(NamedTuple):
    """A price as it was set."""

    price_id: int
    selector: str
    nano_usd_per_device_hour: int | None
    from_ts: int
    set_ts: int
    set_by: str
    note: str | None
    seq: int
    until_ts: int | None
    entered: str | None


def prices(connection: Connection) -> Sequence[PriceRow]:
    """Return every price ever set or taken back, oldest first: by when it is in force from, then in the order of
    setting."""
    return fetch(connection, _PRICES, row=PriceRow)


_PRICES = select(a.price).order_by(a.price.c.from_ts, a.price.c.seq)


def newest_price(connection: Connection) -> int:
    """Return the `seq` of the price set last; 0 if there is none."""
    return connection.execute(select(func.max(a.price.c.seq))).scalar() or 0


def add_price(connection: Connection, *, read_seq: int | None = None, **values: Any) -> int:
    """Add a price as the one set last, and return its id.

    `read_seq` is `newest_price` when the prices were read: raises PricesChanged if another was set since.
    """
    seq = 1 + (newest_price(connection) if read_seq is None else read_seq)
    price_id = stable_id("price", seq)  # of two who set one at once, the second finds the id taken
    try:
        connection.execute(insert(a.price).values(price_id=price_id, seq=seq, **values))
    except IntegrityError:
        raise PricesChanged("prices were changed by someone else meanwhile; look again") from None
    return price_id


class DiscountRow(NamedTuple):
    """A discount as it was set."""

    discount_id: int
    provider: str
    millionths: int | None
    from_ts: int
    until_ts: int | None
    set_ts: int
    set_by: str
    note: str | None
    seq: int


def discounts(connection: Connection) -> Sequence[DiscountRow]:
    """Return every discount ever set or withdrawn: by when it is in force from, then in the order of setting."""
    return fetch(connection, _DISCOUNTS, row=DiscountRow)


_DISCOUNTS = select(a.discount).order_by(a.discount.c.from_ts, a.discount.c.seq)


def add_discount(connection: Connection, *, read_seq: int, **values: Any) -> None:
    """Add a discount as the one set last. Raises PricesChanged if another was set since `read_seq`, the newest read."""
    newest = connection.execute(select(func.max(a.discount.c.seq))).scalar() or 0
    if newest != read_seq:
        raise PricesChanged("discounts were changed by someone else meanwhile; look again")
    try:
        connection.execute(
            insert(a.discount).values(discount_id=stable_id("discount", newest + 1), seq=newest + 1, **values)
        )
    except IntegrityError:
        raise PricesChanged("discounts were changed by someone else meanwhile; look again") from None


class OfferRow(NamedTuple):
    """A list price as it was imported."""

    offer_id: int
    provider: str
    instance_type: str
    accelerator: str
    n_devices: int
    region: str
    purchase: str
    nano_usd_per_device_hour: int
    as_of: str
    from_ts: int | None
    source: str
    confidence: str
    note: str
    set_ts: int
    set_by: str
    seq: int


def offers(connection: Connection) -> Sequence[OfferRow]:
    """Return every list price ever imported, in the order of import."""
    return fetch(connection, _OFFERS, row=OfferRow)


_OFFERS = select(a.offer).order_by(a.offer.c.seq)


def add_offers(connection: Connection, rows: Iterable[Mapping[str, Any]], *, read_seq: int) -> None:
    """Add list prices in their order. `read_seq` is that of the newest when they were read, 0 without any.

    Raises PricesChanged if others were imported since.
    """
    newest = connection.execute(select(func.max(a.offer.c.seq))).scalar() or 0
    if newest != read_seq:
        raise PricesChanged("list prices were imported by someone else meanwhile; look again")
    numbered = [{**row, "seq": seq, "offer_id": stable_id("offer", seq)} for seq, row in enumerate(rows, read_seq + 1)]
    try:
        if numbered:
            connection.execute(insert(a.offer), numbered)
    except IntegrityError:
        raise PricesChanged("list prices were imported by someone else meanwhile; look again") from None


class OwnedRow(NamedTuple):
    """The cost of an owned server as it was set."""

    owned_id: int
    host: str
    terms: str
    from_ts: int
    set_ts: int
    set_by: str
    seq: int


def owned(connection: Connection) -> Sequence[OwnedRow]:
    """Return what every owned server ever cost: by when it is in force from, then in the order of setting."""
    return fetch(connection, _OWNED, row=OwnedRow)


_OWNED = select(a.owned).order_by(a.owned.c.from_ts, a.owned.c.seq)


def add_owned(connection: Connection, **values: Any) -> None:
    """Add what an owned server costs as the one set last. Raises PricesChanged if another was set at once."""
    seq = 1 + (connection.execute(select(func.max(a.owned.c.seq))).scalar() or 0)
    try:
        connection.execute(insert(a.owned).values(owned_id=stable_id("owned", seq), seq=seq, **values))
    except IntegrityError:
        raise PricesChanged("prices were changed by someone else meanwhile; look again") from None


def add_budget_alert(connection: Connection, **values: Any) -> None:
    """Note that a threshold was reached, unless it is noted for this month."""
    key = {name: values[name] for name in ("month", "kind", "threshold_1e4")}
    noted = select(a.budget_alert.c.ts).filter_by(**key)
    if connection.execute(noted).first() is None:
        connection.execute(insert(a.budget_alert).values(**values))


def probes(connection: Connection) -> Sequence[SqlRow]:
    """Return every measurement by `pertoken probe`, oldest first."""
    return connection.execute(select(a.probe).order_by(a.probe.c.started_ts)).all()


def add_probe(connection: Connection, **values: Any) -> None:
    """Store what a probe measured of a deployment."""
    connection.execute(insert(a.probe).values(**values))


def recommendations(connection: Connection) -> Sequence[SqlRow]:
    """Return every recommendation as it stands."""
    return connection.execute(select(a.recommendation)).all()


def refusals(connection: Connection) -> Sequence[SqlRow]:
    """Return every refusal as it stands, by recommendation and code."""
    return connection.execute(select(a.refusal).order_by(a.refusal.c.recommendation_id, a.refusal.c.code)).all()


def put_refusals(connection: Connection, recommendation_id: int, reasons: Mapping[str, str], ts: int) -> None:
    """Replace the refusals of a recommendation, given as reasons by code; one that is repeated keeps its `since_ts`."""
    same_recommendation = a.refusal.c.recommendation_id == recommendation_id
    before = {row.code: row for row in connection.execute(select(a.refusal).where(same_recommendation))}
    connection.execute(delete(a.refusal).where(same_recommendation))
    rows = [
        {
            "recommendation_id": recommendation_id,
            "code": code,
            "reason": reason,
            "since_ts": before[code].since_ts if code in before else ts,
        }
        for code, reason in reasons.items()
    ]
    if rows:
        connection.execute(insert(a.refusal), rows)


def add_refusals(connection: Connection, reasons: Mapping[int, tuple[int, Mapping[str, str]]]) -> None:
    """Add the refusals of new recommendations, by id their time and reasons by code, in one statement."""
    rows = [
        {"recommendation_id": key, "code": code, "reason": reason, "since_ts": ts}
        for key, (ts, of) in reasons.items()
        for code, reason in of.items()
    ]
    if rows:
        connection.execute(insert(a.refusal), rows)


def add_recommendations(
    connection: Connection, recommendations: Iterable[tuple[Mapping[str, Any], str, str]], *, who: str
) -> None:
    """Insert new recommendations, each with the reason code and why it was made, and note the moves: two statements.

    Raises AdviceChanged if somebody else added one of them meanwhile.
    """
    rows, moves = [], []
    for values, code, why in recommendations:
        rows.append({**values, "version": 1})
        of = {"recommendation_id": values["recommendation_id"], "version": 1, "ts": values["updated_ts"]}
        moves.append({**of, "from_state": None, "to_state": values["state"], "code": code, "who": who, "why": why})
    if not rows:
        return
    try:
        connection.execute(insert(a.recommendation), rows)
    except IntegrityError:
        raise AdviceChanged("advice was added by someone else meanwhile; look again") from None
    connection.execute(insert(a.transition), moves)


def put_recommendation(
    connection: Connection, values: Mapping[str, Any], *, read_version: int, who: str, why: str, code: str
) -> None:
    """Insert a recommendation (read_version 0) or replace the version that was read; a change of state is recorded.

    Raises AdviceChanged if somebody else changed it since it was read, StoreError for a change of its estimate.
    """
    key, of = values["recommendation_id"], a.recommendation.c
    before = connection.execute(select(of.state, of.version, of.estimate).where(of.recommendation_id == key)).first()
    if (before.version if before else 0) != read_version:
        raise _changed(connection, values)
    if before is not None and before.estimate is not None and values.get("estimate") != before.estimate:
        raise StoreError(f"{values['title']}: the estimate that was accepted never changes")
    if before is None:
        try:
            connection.execute(insert(a.recommendation).values(**{**values, "version": 1}))
        except IntegrityError:
            raise AdviceChanged(f"{values['title']}: was added by someone else meanwhile; look again") from None
    else:
        changed = connection.execute(
            update(a.recommendation)
            .where(of.recommendation_id == key, of.version == read_version)
            .values(**{**values, "version": read_version + 1})
        )
        if changed.rowcount != 1:
            raise _changed(connection, values)
    if before is None or before.state != values["state"]:
        connection.execute(
            insert(a.transition).values(
                recommendation_id=key,
                version=read_version + 1,
                ts=values["updated_ts"],
                from_state=before.state if before else None,
                to_state=values["state"],
                code=code,
                who=who,
                why=why,
            )
        )


def _changed(connection: Connection, values: Mapping[str, Any]) -> AdviceChanged:
    """Return the error that names who moved a recommendation last."""
    newest = next(reversed(transitions(connection, values["recommendation_id"])), None)
    by = f" (now {newest.to_state.lower()}, by {newest.who})" if newest is not None else ""
    return AdviceChanged(f"{values['title']}: was changed by someone else meanwhile{by}; look again")


def transitions(connection: Connection, recommendation_id: int | None = None) -> Sequence[SqlRow]:
    """Return every change of state of one recommendation, or of all, oldest first."""
    of = a.transition.c
    query = select(a.transition).order_by(of.recommendation_id, of.version)
    return connection.execute(
        query if recommendation_id is None else query.where(of.recommendation_id == recommendation_id)
    ).all()


def verdicts(connection: Connection) -> Sequence[SqlRow]:
    """Return every verdict on a change of configuration, oldest change first."""
    return connection.execute(select(a.verdict).order_by(a.verdict.c.changed_ts, a.verdict.c.epoch_id)).all()


def add_verdict(connection: Connection, values: Mapping[str, Any]) -> bool:
    """Add the verdict on an epoch. Return False, without a change, if the epoch has one."""
    statement = upsert(connection.dialect.name, a.verdict).on_conflict_do_nothing()
    return connection.execute(statement.values(**{**values, "version": 1})).rowcount == 1


def put_verdict(connection: Connection, values: Mapping[str, Any], *, read_version: int) -> None:
    """Replace the verdict that was read. Raises AdviceChanged if somebody else changed it since."""
    of = a.verdict.c
    changed = connection.execute(
        update(a.verdict)
        .where(
            of.deployment_id == values["deployment_id"],
            of.epoch_id == values["epoch_id"],
            of.version == read_version,
        )
        .values(**{**values, "version": read_version + 1})
    )
    if changed.rowcount != 1:
        raise AdviceChanged("a verdict was changed by someone else meanwhile; look again")


def receipts(connection: Connection, recommendation_id: int | None = None) -> Sequence[SqlRow]:
    """Return every receipt of one recommendation, or of all, oldest first."""
    of = a.receipt.c
    query = select(a.receipt).order_by(of.created_ts, of.receipt_id)
    if recommendation_id is not None:
        query = query.where(of.recommendation_id == recommendation_id)
    return connection.execute(query).all()


def receipt_kinds(connection: Connection) -> Sequence[SqlRow]:
    """Return (recommendation_id, deployment_id, epoch_id, kind, created_ts) of every receipt."""
    of = a.receipt.c
    columns = (of.recommendation_id, of.deployment_id, of.epoch_id, of.kind, of.created_ts)
    return connection.execute(select(*columns)).all()


def add_receipt(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add a receipt; its `receipt_id` is made of what it is about, its kind and its hash. A repetition changes nothing.

    `values` has every other column of the table.
    """
    subject = [values.get(name) or 0 for name in ("recommendation_id", "deployment_id", "epoch_id")]
    receipt_id = stable_id("receipt", *subject, values["kind"], values["hash"])
    statement = upsert(connection.dialect.name, a.receipt).on_conflict_do_nothing()
    connection.execute(statement.values(**{**values, "receipt_id": receipt_id}))


def trials(connection: Connection, recommendation_id: int | None = None) -> Sequence[SqlRow]:
    """Return every trial of one recommendation, or of all, oldest first."""
    of = a.trial.c
    query = select(a.trial).order_by(of.started_ts, of.trial_id)
    if recommendation_id is not None:
        query = query.where(of.recommendation_id == recommendation_id)
    return connection.execute(query).all()


def put_trial(connection: Connection, values: Mapping[str, Any], *, read_version: int) -> None:
    """Insert a trial (read_version 0), or replace the version that was read.

    Raises AdviceChanged if somebody else began or changed it since.
    """
    of, row = a.trial.c, {**values, "version": read_version + 1}
    changed = AdviceChanged("the trial was begun or changed by someone else meanwhile; look again")
    if read_version == 0:
        try:
            connection.execute(insert(a.trial).values(**row))
        except IntegrityError:
            raise changed from None
        return
    same = (of.trial_id == values["trial_id"], of.version == read_version)
    if connection.execute(update(a.trial).where(*same).values(**row)).rowcount != 1:
        raise changed


def alerts(connection: Connection) -> Sequence[SqlRow]:
    """Return every alert that holds or held a moment ago, by name and target."""
    return connection.execute(select(a.alert).order_by(a.alert.c.name, a.alert.c.target)).all()


def put_alert(connection: Connection, values: Mapping[str, Any]) -> None:
    """Insert an alert of a target, or replace it."""
    drop_alert(connection, values["name"], values["target"])
    connection.execute(insert(a.alert).values(**values))


def drop_alert(connection: Connection, name: str, target: str) -> bool:
    """Delete an alert of a target: it does not hold. Return whether it was there: of two advisors one deletes it."""
    same = a.alert.c.name == name, a.alert.c.target == target
    return connection.execute(delete(a.alert).where(*same)).rowcount == 1


def add_alert_delivery(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add what is to be sent, unless it is there."""
    statement = upsert(connection.dialect.name, a.alert_delivery).on_conflict_do_nothing()
    connection.execute(statement.values(**values))


def due_alert_deliveries(connection: Connection, now_ts: int) -> Sequence[SqlRow]:
    """Return what is to be sent by now, oldest first."""
    of = a.alert_delivery.c
    return connection.execute(select(a.alert_delivery).where(of.next_ts <= now_ts).order_by(of.created_ts)).all()


def alert_events(connection: Connection, start_ts: int) -> Sequence[SqlRow]:
    """Return the JSON of each event of alerts since `start_ts`, with its time; one row for all its destinations."""
    of = a.alert_delivery.c
    query = select(of.body, func.min(of.created_ts).label("ts")).where(of.created_ts >= start_ts).group_by(of.body)
    return connection.execute(query).all()


def put_alert_delivery(
    connection: Connection, delivery_id: int, *, read_tries: int, tries: int, next_ts: int | None, error: str | None
) -> bool:
    """Note a try. Return False, without a change, if somebody else tried since it was read."""
    of = a.alert_delivery.c
    same = of.delivery_id == delivery_id, of.tries == read_tries
    changed = update(a.alert_delivery).where(*same).values(tries=tries, next_ts=next_ts, error=error)
    return connection.execute(changed).rowcount == 1


def forget_alert_deliveries(connection: Connection, before_ts: int) -> None:
    """Delete what was delivered or given up and is older."""
    of = a.alert_delivery.c
    connection.execute(delete(a.alert_delivery).where(of.created_ts < before_ts, of.next_ts.is_(None)))


def end_trials(connection: Connection, recommendation_id: int, now_ts: int) -> None:
    """End the trial of a recommendation that runs, where one does, without a result."""
    of = a.trial.c
    runs = (of.recommendation_id == recommendation_id, of.status == "RUNNING")
    connection.execute(update(a.trial).where(*runs).values(status="STOPPED", ended_ts=now_ts, version=of.version + 1))


def last_configuration(connection: Connection) -> Sequence[SqlRow]:
    """Return the row of the configuration that advice belongs to; empty before the first run."""
    newest = select(a.configuration).order_by(a.configuration.c.configuration_id.desc()).limit(1)
    return connection.execute(newest).all()


def add_configuration(connection: Connection, *, source: str, digest: str, set_ts: int, set_by: str) -> None:
    """Add the configuration that advice belongs to from now on."""
    number = 1 + max((row.configuration_id for row in last_configuration(connection)), default=0)
    connection.execute(
        insert(a.configuration).values(
            configuration_id=number, source=source, digest=digest, set_ts=set_ts, set_by=set_by
        )
    )
