"""The advice side of the store: prices people set, and recommendations with every move they made."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import check_revision, explained, revision, writing
from pertoken.store.query.answers import Rows, answer
from pertoken.store.schema import advice as a
from pertoken.store.schema.ids import stable_id


class AdviceRepository:
    """Advice opened for writing, in short transactions; rows carry versions, so that no one's change is lost."""

    def __init__(self, place: StoreLocation) -> None:
        """Raises StoreError if its schema is not this pertoken's or it cannot be opened."""
        self.place = place
        self._engine: Engine = writing(place, "advice")
        with explained(place):
            check_revision(revision(self._engine, "advice"), "advice", place)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction. Raises StoreError if it cannot be done."""
        with explained(self.place), self._engine.connect() as connection, connection.begin():
            yield connection


class PricesChanged(StoreError):
    """Somebody else set a price after the prices were read."""


def prices(connection: Connection) -> Rows:
    """Every price ever set or taken back, oldest first: by when it is in force from, then in the order of setting."""
    return answer(connection, _PRICES, named=True)


_PRICES = select(a.price).order_by(a.price.c.from_ts, a.price.c.seq)


def newest_price(connection: Connection) -> int:
    """The `seq` of the price set last; 0 if there is none."""
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


def offers(connection: Connection) -> Rows:
    """Every list price ever imported, in the order of import."""
    return answer(connection, _OFFERS, named=True)


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


def owned(connection: Connection) -> Rows:
    """What every owned server ever cost: by when it is in force from, then in the order of setting."""
    return answer(connection, _OWNED, named=True)


_OWNED = select(a.owned).order_by(a.owned.c.from_ts, a.owned.c.seq)


def add_owned(connection: Connection, **values: Any) -> None:
    """Add what an owned server costs as the one set last. Raises PricesChanged if another was set at once."""
    seq = 1 + (connection.execute(select(func.max(a.owned.c.seq))).scalar() or 0)
    try:
        connection.execute(insert(a.owned).values(owned_id=stable_id("owned", seq), seq=seq, **values))
    except IntegrityError:
        raise PricesChanged("prices were changed by someone else meanwhile; look again") from None


def recommendations(connection: Connection) -> Rows:
    """Every recommendation as it stands."""
    return connection.execute(select(a.recommendation)).all()


def refusals(connection: Connection) -> Rows:
    """Every refusal as it stands, by recommendation and code."""
    return connection.execute(select(a.refusal).order_by(a.refusal.c.recommendation_id, a.refusal.c.code)).all()


def put_refusals(connection: Connection, recommendation_id: int, reasons: Mapping[str, str], ts: int) -> None:
    """Replace the refusals of a recommendation, given as reasons by code; one that is repeated keeps its `since_ts`."""
    here = a.refusal.c.recommendation_id == recommendation_id
    before = {row.code: row for row in connection.execute(select(a.refusal).where(here))}
    connection.execute(delete(a.refusal).where(here))
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


def put_recommendation(
    connection: Connection, values: dict[str, Any], *, read_version: int, who: str, why: str
) -> None:
    """Insert a recommendation (read_version 0) or replace the version that was read, and note the move.

    Raises StoreError if somebody else changed it in between.
    """
    ts, state = values["updated_ts"], values["state"]
    key = values["recommendation_id"]
    before = None
    if read_version:
        before = connection.execute(
            select(a.recommendation.c.state).where(a.recommendation.c.recommendation_id == key)
        ).scalar()
        changed = connection.execute(
            update(a.recommendation)
            .where(a.recommendation.c.recommendation_id == key, a.recommendation.c.version == read_version)
            .values(**{**values, "version": read_version + 1})
        )
        if changed.rowcount != 1:
            raise StoreError(f"{values['title']}: was changed by someone else meanwhile; look again")
    else:
        connection.execute(insert(a.recommendation).values(**{**values, "version": 1}))
    if before != state:
        connection.execute(
            insert(a.recommendation_event).values(
                recommendation_id=key,
                version=read_version + 1,
                ts=ts,
                from_state=before,
                to_state=state,
                who=who,
                why=why,
            )
        )
