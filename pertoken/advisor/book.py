"""The book of recommendations: what an advice run found, kept in the database, every change of state noted."""

import json
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import Any

from pertoken.advisor.advise import Advice
from pertoken.advisor.recommendation import EvidenceLine, LatencyLine, Recommendation, State
from pertoken.store import book
from pertoken.store.book import Book
from pertoken.store.open import Store


def keep(target: Book, advice: Advice, who: str) -> tuple[Recommendation, ...]:
    """Store an advice run: new and changed advice is written, open advice no longer found expires.

    Returns the recommendations as they stand. Raises StoreError if the database cannot be written.
    """
    with target.writing() as connection:
        before = {row.recommendation_id: _from_row(row) for row in book.recommendations(connection)}
        found = {each.recommendation_id: each for each in advice.recommendations}
        for key, each in before.items():
            if key not in found and each.state is not State.EXPIRED:
                found[key] = replace(
                    each, state=State.EXPIRED, reason="the last run did not find it again", updated_ts=advice.now_ts
                )
        for key, each in found.items():
            old = before.get(key)
            if old and replace(each, created_ts=0, updated_ts=0, version=0) == replace(
                old, created_ts=0, updated_ts=0, version=0
            ):
                continue
            each = replace(each, created_ts=old.created_ts if old else each.created_ts)
            why = each.reason or "proposed by its rule"
            book.put_recommendation(
                connection, _to_row(each), read_version=old.version if old else 0, who=who, why=why.splitlines()[-1]
            )
        return tuple(_from_row(row) for row in book.recommendations(connection))


def standing(store: Store) -> tuple[Recommendation, ...]:
    """All advice as it stands, expired left out; empty where no rules ever ran."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        found: Iterable[Recommendation] = (_from_row(row) for row in book.recommendations(connection))
        return tuple(each for each in found if each.state is not State.EXPIRED)


_COLUMNS = (
    "recommendation_id",
    "rule_id",
    "deployment_id",
    "state",
    "title",
    "reason",
    "created_ts",
    "updated_ts",
    "version",
)


def _to_row(each: Recommendation) -> dict[str, Any]:
    values = asdict(each)
    row = {name: values.pop(name) for name in _COLUMNS}
    row["bankable_nano_usd_month"] = each.bankable[1] if each.bankable else None
    row["capacity_nano_usd_month"] = each.capacity[1] if each.capacity else None
    return {**row, "state": each.state.value, "body": json.dumps(values, sort_keys=True)}


def _from_row(row: Any) -> Recommendation:
    body = json.loads(row.body)
    known = {each.name for each in fields(Recommendation)}
    for name in ("bankable", "capacity", "throughput_ratio", "replicas"):
        body[name] = tuple(body[name]) if body.get(name) is not None else None
    for name in ("commands", "undo", "assumptions", "against"):
        body[name] = tuple(body.get(name, ()))
    body["changes"] = {name: tuple(pair) for name, pair in body.get("changes", {}).items()}
    body["evidence"] = tuple(EvidenceLine(**line) for line in body.get("evidence", ()))
    body["latency"] = tuple(_latency(line) for line in body.get("latency", ()))
    columns = {name: getattr(row, name) for name in _COLUMNS}
    columns["state"] = State(columns["state"])
    return Recommendation(**columns, **{name: value for name, value in body.items() if name in known})


def _latency(line: dict[str, Any]) -> LatencyLine:
    ranges = {name: tuple(line[name]) if line[name] is not None else None for name in ("before", "after")}
    return LatencyLine(**{**line, **ranges})
