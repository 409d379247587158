"""The last check of a tick before it is stored: a value that no column can hold costs that value, not the tick.

Readings are bounded where they are made, so this is met only by a value that nobody foresaw. A database refuses the
whole transaction for one such value, and with it every later tick that has one: the host would no longer be recorded.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Table

from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.samples import SAMPLES

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""What SQLite's INTEGER and PostgreSQL's BIGINT hold."""
UNFIT = (OverflowError, UnicodeEncodeError)
"""What writing a value raises that does not fit."""
Row = TypeVar("Row")


def fitted(tick: rows.Tick) -> rows.Tick:
    """Return the tick without the values that do not fit, and with an event for each column that lost any.

    Such a value becomes NULL; where the column requires one, its row is left out. Characters that UTF-8 does not have
    are replaced.
    """
    lost: Counter[tuple[str, str]] = Counter()

    def fit(table: Table, values: Iterable[Row]) -> tuple[Row, ...]:
        return tuple(fitted for fitted in (_fitted(table, value, lost) for value in values) if fitted is not None)

    kept = replace(
        tick,
        host=_fitted(t.host, tick.host, lost) or tick.host,
        devices=fit(t.device, tick.devices),
        engines=fit(t.engine, tick.engines),
        deployments=fit(t.deployment, tick.deployments),
        epochs=fit(t.epoch, tick.epochs),
        samples=tuple(
            fitted
            for fitted in (_fitted(SAMPLES[type(sample)].table, sample, lost) for sample in tick.samples)
            if fitted is not None
        ),
        counters=fit(t.counter_state, tick.counters),
        capabilities=fit(t.capability, tick.capabilities),
        events=fit(t.event, tick.events),
    )
    event = (
        rows.Event("value_lost", f"a value of {table}.{column} does not fit into the database and was left out")
        for table, column in sorted(lost)
    )
    return replace(kept, events=(*kept.events, *event))


def _fitted(table: Table, value: Row, lost: Counter[tuple[str, str]]) -> Row | None:
    """Return the row with what fits; None if it lacks a value that its table requires."""
    columns = table.columns
    changed: dict[str, Any] = {}
    for name in _names(value):
        field = getattr(value, name)
        if isinstance(field, int) and not MIN_INTEGER <= field <= MAX_INTEGER:
            lost[table.name, name] += 1
            if name not in columns or not columns[name].nullable:
                return None
            changed[name] = None
        elif isinstance(field, str):
            text = field.encode("utf-8", "replace").decode("utf-8")
            if text != field:
                changed[name] = text
    if not changed:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **changed)
    return value._replace(**changed)  # type: ignore[attr-defined, no-any-return]  # the one kind of named tuple


def _names(value: Any) -> Iterable[str]:
    return (field.name for field in fields(value)) if is_dataclass(value) else value._fields
