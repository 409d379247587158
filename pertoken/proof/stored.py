"""Recommendations in the database: read as values, written with every change of state."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from sqlalchemy import Connection

from pertoken.errors import BadInput
from pertoken.proof.recommendation import (
    FINAL,
    PUT_OFF,
    SET_BY_RUN,
    Moved,
    Recommendation,
    State,
    full_id,
    moved,
    next_life,
    read_record,
)
from pertoken.savings.saving import NOTHING
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository

_GONE = (State.EXPIRED, State.SUPERSEDED)
"""States that no list shows."""


def standing(store: Store, as_of: int | None = None) -> tuple[Recommendation, ...]:
    """Return all standing advice, none of it expired or superseded; empty where no rules ever ran.

    With `as_of`: advice unchanged since then, because earlier versions are not kept.
    """
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return tuple(
            recommendation
            for recommendation in standing_of(stored(connection))
            if as_of is None or recommendation.updated_ts <= as_of
        )


def standing_of(rows: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Return the rows that lists show."""
    return tuple(row for row in rows if row.state not in _GONE)


def find(rows: Iterable[Recommendation], prefix: str, where: object) -> Recommendation:
    """Return the recommendation that the first digits of an id name. Raises BadInput if it is not exactly one."""
    wanted = prefix.lower()
    matches = [row for row in rows if wanted and full_id(row).startswith(wanted)]
    if not matches:
        raise BadInput(f"{where}: holds no advice {prefix!r}; `pertoken advise` lists what there is")
    if len(matches) > 1:
        ids = ", ".join(map(full_id, matches))
        raise BadInput(f"{prefix!r} names {len(matches)} pieces of advice: {ids}; give more digits")
    return matches[0]


def store_acts(
    target: AdviceRepository, read: Recommendation, acts: Sequence[Moved], who: str
) -> tuple[Recommendation, ...]:
    """Store acts of a person on a recommendation; return the rows as they stand, in the order of the acts.

    A trial that runs ends when its recommendation is withdrawn, or declared applied.

    Raises AdviceChanged if somebody else changed it since it was read, StoreError if the database cannot be written.
    """
    with target.writing() as connection:
        write(connection, acts, {read.recommendation_id: read}, who)
        for act in acts:
            if act.recommendation.state is not State.ACCEPTED:
                repository.end_trials(connection, act.recommendation.recommendation_id, act.recommendation.updated_ts)
        rows = {recommendation.recommendation_id: recommendation for recommendation in stored(connection)}
        return tuple(rows[act.recommendation.recommendation_id] for act in acts)


def write(connection: Connection, changes: Iterable[Moved], read: Mapping[int, Recommendation], who: str) -> None:
    """Write rows one after another, each against the version that was `read` or written before it here.

    Raises AdviceChanged if somebody else changed one of them since.
    """
    state_by_id = {key: (row, row.version) for key, row in read.items()}
    new: dict[int, Moved] = {}
    for change in changes:
        row = change.recommendation
        previous, version = state_by_id.get(row.recommendation_id, (None, 0))
        if previous is None:
            new[row.recommendation_id] = change
        else:
            if row.recommendation_id in new:  # it moves on within this run
                _add(connection, new, who)
            repository.put_recommendation(
                connection, _to_row(row), read_version=version, who=who, why=_why(change), code=change.code
            )
            if row.refusals != previous.refusals:
                repository.put_refusals(connection, row.recommendation_id, _reasons(row), row.updated_ts)
        state_by_id[row.recommendation_id] = row, version + 1
    _add(connection, new, who)


def _add(connection: Connection, new: dict[int, Moved], who: str) -> None:
    """Insert new rows with few statements, and forget them."""
    rows = [change.recommendation for change in new.values()]
    repository.add_recommendations(
        connection, [(_to_row(change.recommendation), change.code, _why(change)) for change in new.values()], who=who
    )
    repository.add_refusals(connection, {row.recommendation_id: (row.updated_ts, _reasons(row)) for row in rows})
    new.clear()


def _why(change: Moved) -> str:
    return change.why.splitlines()[-1]


def _reasons(recommendation: Recommendation) -> dict[str, str]:
    return {refusal.code: refusal.reason for refusal in recommendation.refusals}


def newest(rows: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Return of each rule and target the newest life."""
    ordered = sorted(rows, key=lambda recommendation: recommendation.life)
    return tuple({recommendation.subject: recommendation for recommendation in ordered}.values())


def stored(connection: Connection) -> tuple[Recommendation, ...]:
    """Return every recommendation, earlier lives included."""
    refusals: dict[int, list[dict[str, str]]] = defaultdict(list)
    for refusal in repository.refusals(connection):
        refusals[refusal.recommendation_id].append({"code": refusal.code, "reason": refusal.reason})
    recommendations = []
    for row in repository.recommendations(connection):
        values = {name: value for name, value in json.loads(row.body).items() if name in _BODY}
        values |= {name: getattr(row, name) for name in _COLUMNS}
        values["estimate"] = None if row.estimate is None else json.loads(row.estimate)
        values["refusals"] = refusals[row.recommendation_id]
        for variant in (*values.get("variants", ()), values["estimate"] or {}):
            _rename(variant)
        recommendations.append(read_record(Recommendation, values))
    return tuple(recommendations)


def _rename(variant: dict[str, object]) -> None:
    """Give the dollars of a variant that an older pertoken stored their present names."""
    net, capacity = variant.pop("bankable", None), variant.pop("capacity", None)
    if net is not None or capacity is not None:
        variant["saving"] = {"net": net or NOTHING, "capacity": capacity or NOTHING}


_COLUMNS = (
    *("recommendation_id", "rule_id", "deployment_id", "state", "title", "reason", "created_ts", "updated_ts"),
    *("version", "target_kind", "target_key", "life", "until_ts", "variant"),
)


_BODY = tuple(field.name for field in fields(Recommendation) if field.name not in (*_COLUMNS, "refusals", "estimate"))


def _to_row(recommendation: Recommendation) -> dict[str, int | str | None]:
    row: dict[str, int | str | None] = {name: getattr(recommendation, name) for name in _COLUMNS}
    best = recommendation.best
    row["bankable_nano_usd_month"] = best.net[1] if best and best.net else None
    row["capacity_nano_usd_month"] = best.capacity[1] if best and best.capacity else None
    row["estimate"] = None if recommendation.estimate is None else _encoded(recommendation.estimate)
    return {
        **row,
        "state": recommendation.state.value,
        "body": _encoded({name: getattr(recommendation, name) for name in _BODY}),
    }


_encoded = json.JSONEncoder(sort_keys=True, default=vars).encode
"""Returns nested records as JSON: `asdict` would copy every value before."""


_CODES = {State.OPEN: "proposed", State.REFUSED: "refused", State.BLOCKED: "blocked", State.FAILED: "failed"}
_TARGET_MISSING = "its rule did not report on this target"


def keep(
    target: AdviceRepository, recommendations: Iterable[Recommendation], ran: Collection[str], now_ts: int, who: str
) -> tuple[Recommendation, ...]:
    """Store the results of an advice run. `ran`: ids of the rules that ran.

    Returns the standing advice. Raises StoreError if the database cannot be written.
    """
    with target.writing() as connection:
        rows = newest(stored(connection))
        write(connection, merged(rows, recommendations, ran, now_ts), {row.recommendation_id: row for row in rows}, who)
    with target.writing() as connection:  # nobody waits for reading all of it
        return standing_of(stored(connection))


def merged(
    rows: Iterable[Recommendation], recommendations: Iterable[Recommendation], ran: Collection[str], now_ts: int
) -> Iterator[Moved]:
    """Yield the rows that change, in order: the newest row of each rule and target against the run's result."""
    stored_by_subject = {row.subject: row for row in rows}
    after = {recommendation.subject: recommendation for recommendation in recommendations}
    for subject in dict.fromkeys((*stored_by_subject, *after)):
        row = stored_by_subject.get(subject)
        if row is not None and row.state in PUT_OFF and row.until_ts is not None and row.until_ts <= now_ts:
            ended = "snooze-ended" if row.state is State.SNOOZED else "dismissal-ended"
            yield (woken := moved(row, ended, f"its {ended.partition('-')[0]} ended", now_ts))
            row = woken.recommendation
        change = _change(row, after.get(subject), subject[0] in ran, now_ts)
        if change is not None:
            yield change


def _change(row: Recommendation | None, recommendation: Recommendation | None, ran: bool, now_ts: int) -> Moved | None:
    """Return the move that a run makes of one row; None if it stays."""
    if recommendation is None:
        return None if row is None or row.state not in SET_BY_RUN else _missing(row, ran, now_ts)
    is_open = recommendation.state is State.OPEN
    code, why = _CODES[recommendation.state], (None if is_open else recommendation.reason) or "proposed by its rule"
    if row is None:
        return Moved(recommendation, code, why)
    if row.state in FINAL and (row.state is not State.EXPIRED or recommendation.state is State.OPEN):
        return Moved(next_life(row, recommendation), code, why)
    if row.state not in (*SET_BY_RUN, State.EXPIRED):
        return None  # a person decided: it stays as it was then
    if row.state is State.OPEN and row.unconfirmed is None and recommendation.state is State.BLOCKED:
        kept = replace(
            row, unconfirmed=why, refusals=recommendation.refusals, output=recommendation.output, updated_ts=now_ts
        )
        return Moved(kept, code, why)
    same = replace(
        recommendation,
        recommendation_id=row.recommendation_id,
        life=row.life,
        created_ts=row.created_ts,
        version=row.version,
    )
    return None if _undated(same) == _undated(row) else Moved(same, code, why)


def _missing(row: Recommendation, ran: bool, now_ts: int) -> Moved:
    if row.state is State.OPEN and ran and row.unconfirmed is None:
        return Moved(replace(row, unconfirmed=_TARGET_MISSING, updated_ts=now_ts), "not-found", _TARGET_MISSING)
    why = "the last run did not find it again" if ran else "its rule did not run any more"
    return moved(row, "not-found", why, now_ts, reason=why, unconfirmed=None, refusals=())


def _undated(recommendation: Recommendation) -> Recommendation:
    """Return advice without its dates and output: a rule may print the time."""
    return replace(recommendation, output="", created_ts=0, updated_ts=0, version=0)
