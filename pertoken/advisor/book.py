"""Recommendations and refusals in the database: what an advice run found, with every change of state."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import Any

from sqlalchemy import Connection

from pertoken.advisor.advise import Advice
from pertoken.advisor.recommendation import (
    ChangeLine,
    EvidenceLine,
    LatencyLine,
    Recommendation,
    Refusal,
    State,
    Variant,
)
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository


def keep(target: AdviceRepository, advice: Advice, who: str) -> tuple[Recommendation, ...]:
    """Store an advice run: new and changed advice is written, advice that was not found again expires.

    Returns the recommendations as they stand. Raises StoreError if the database cannot be written.
    """
    with target.writing() as connection:
        before = {each.recommendation_id: each for each in _stored(connection)}
        found = {each.recommendation_id: each for each in advice.recommendations}
        for key, each in before.items():
            if key not in found and each.state is not State.EXPIRED:
                found[key] = replace(
                    each,
                    state=State.EXPIRED,
                    reason="the last run did not find it again",
                    refusals=(),
                    updated_ts=advice.now_ts,
                )
        for key, each in found.items():
            old = before.get(key)
            if old and _undated(each) == _undated(old):
                continue
            each = replace(each, created_ts=old.created_ts if old else each.created_ts)
            why = each.reason or "proposed by its rule"
            repository.put_recommendation(
                connection, _to_row(each), read_version=old.version if old else 0, who=who, why=why.splitlines()[-1]
            )
            if not old or each.refusals != old.refusals:
                refusals = {refusal.code: refusal.reason for refusal in each.refusals}
                repository.put_refusals(connection, key, refusals, advice.now_ts)
        return _stored(connection)


def standing(store: Store, as_of: int | None = None) -> tuple[Recommendation, ...]:
    """All advice as it stands, expired left out; empty where no rules ever ran.

    With `as_of` that which has stood unchanged since then: what changed advice was before is not kept.
    """
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return tuple(
            each
            for each in _stored(connection)
            if each.state is not State.EXPIRED and (as_of is None or each.updated_ts <= as_of)
        )


def _undated(each: Recommendation) -> Recommendation:
    """Return advice without what changes from run to run: a rule may print the time."""
    return replace(each, output="", created_ts=0, updated_ts=0, version=0)


_COLUMNS = (
    *("recommendation_id", "rule_id", "deployment_id", "state", "title", "reason", "created_ts", "updated_ts"),
    *("version", "target_kind", "target_key", "life"),
)


def _to_row(each: Recommendation) -> dict[str, Any]:
    values = asdict(each)
    del values["refusals"]
    row = {name: values.pop(name) for name in _COLUMNS}
    best = each.best
    row["bankable_nano_usd_month"] = best.bankable[1] if best and best.bankable else None
    row["capacity_nano_usd_month"] = best.capacity[1] if best and best.capacity else None
    return {**row, "state": each.state.value, "body": json.dumps(values, sort_keys=True)}


def _stored(connection: Connection) -> tuple[Recommendation, ...]:
    refusals: dict[int, list[Refusal]] = defaultdict(list)
    for row in repository.refusals(connection):
        refusals[row.recommendation_id].append(Refusal(row.code, row.reason))
    return tuple(_from_row(row, refusals[row.recommendation_id]) for row in repository.recommendations(connection))


def _from_row(row: Any, refusals: Iterable[Refusal]) -> Recommendation:
    body = json.loads(row.body)
    known = {each.name for each in fields(Recommendation)}
    body["evidence"] = tuple(EvidenceLine(**line) for line in body.get("evidence", ()))
    body["variants"] = tuple(_variant(each) for each in body.get("variants", ()))
    columns = {name: getattr(row, name) for name in _COLUMNS}
    columns["state"] = State(columns["state"])
    rest = {name: value for name, value in body.items() if name in known}
    return Recommendation(**columns, **rest, refusals=tuple(refusals))


def _variant(values: dict[str, Any]) -> Variant:
    plain: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
    plain["changes"] = tuple(ChangeLine(**line) for line in values["changes"])
    plain["latency"] = tuple(_latency(line) for line in values["latency"])
    return Variant(**plain)


def _latency(line: dict[str, Any]) -> LatencyLine:
    ranges = {name: tuple(line[name]) if line[name] is not None else None for name in ("before", "after")}
    return LatencyLine(**{**line, **ranges})
