"""Merge of an advice run's results with stored rows: decisions stay, and advice does not flap between runs.

Open advice whose rule could not judge its target in one run (blocked, or no result) stays open, marked as unconfirmed
with the reason and in no total; the second such run in a row closes it. A gap of telemetry would otherwise close
advice that a person reads. A run that judges closes it at once: its rule refused, broke, or did not run any more
(switched off, uninstalled).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from pertoken.proof.lifecycle import FINAL, PUT_OFF, SET_BY_RUN, Moved, moved
from pertoken.proof.recommendation import Recommendation, State, identity
from pertoken.proof.stored import newest, standing_of, stored, write
from pertoken.store.repository import AdviceRepository

_CODES = {State.OPEN: "proposed", State.REFUSED: "refused", State.BLOCKED: "blocked", State.FAILED: "failed"}
_TARGET_MISSING = "its rule did not report on this target"


def keep(
    target: AdviceRepository, recommendations: Iterable[Recommendation], ran: Collection[str], now_ts: int, who: str
) -> tuple[Recommendation, ...]:
    """Store the results of an advice run. `ran`: ids of the rules that ran.

    Returns what stands then. Raises StoreError if the database cannot be written.
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
    before: Mapping[tuple[str, str, str], Recommendation] = {row.subject: row for row in rows}
    after: Mapping[tuple[str, str, str], Recommendation] = {
        recommendation.subject: recommendation for recommendation in recommendations
    }
    for subject in dict.fromkeys((*before, *after)):
        row = before.get(subject)
        if row is not None and row.state in PUT_OFF and row.until_ts is not None and row.until_ts <= now_ts:
            ended = "snooze-ended" if row.state is State.SNOOZED else "dismissal-ended"
            yield (woken := moved(row, ended, f"its {ended.partition('-')[0]} ended", now_ts))
            row = woken.recommendation
        change = _change(row, after.get(subject), subject[0] in ran, now_ts)
        if change is not None:
            yield change


def _change(row: Recommendation | None, recommendation: Recommendation | None, ran: bool, now_ts: int) -> Moved | None:
    """Return what a run changes in one row; None if it stays as it is."""
    if recommendation is None:
        return None if row is None or row.state not in SET_BY_RUN else _missing(row, ran, now_ts)
    code, why = _CODES[recommendation.state], recommendation.reason or "proposed by its rule"
    if row is None:
        return Moved(recommendation, code, why)
    if row.state in FINAL and (row.state is not State.EXPIRED or recommendation.state is State.OPEN):
        return Moved(_next_life(row, recommendation), code, why)
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


def _next_life(row: Recommendation, recommendation: Recommendation) -> Recommendation:
    life = row.life + 1
    key = identity(recommendation.rule_id, recommendation.target_kind, recommendation.target_key, life)
    return replace(recommendation, recommendation_id=key, life=life)


def _undated(recommendation: Recommendation) -> Recommendation:
    """Return advice without what changes from run to run: a rule may print the time."""
    return replace(recommendation, output="", created_ts=0, updated_ts=0, version=0)
