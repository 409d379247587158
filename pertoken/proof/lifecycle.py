"""State machine of recommendations and the acts of a person. Each legal move is one row of `MOVES`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from pertoken.errors import BadInput
from pertoken.proof.recommendation import Recommendation, Refusal, State, Variant, identity, short_id
from pertoken.units import format_duration, format_utc

SET_BY_RUN = (State.OPEN, State.FAILED, State.BLOCKED, State.REFUSED)
"""States that advice runs move: nobody has decided anything yet."""
UNDER_WAY = (State.ACCEPTED, State.APPLIED, State.VERIFYING)
"""States between a decision and its verdict."""
PUT_OFF = (State.SNOOZED, State.DISMISSED)
"""States that end at a date."""
JUDGED = (State.REALIZED, State.PARTIAL, State.NO_EFFECT, State.REGRESSED, State.OUTPUT_CHANGED, State.INCONCLUSIVE)
"""States with a verdict."""
UNDOABLE = (State.APPLIED, State.VERIFYING, *JUDGED, State.DECAYED)
"""States of a change that runs, or may still run."""
DONE = (*JUDGED, State.DECAYED, State.ROLLED_BACK)
"""States of applied recommendations that have a verdict or were undone."""
FINAL = (*DONE, State.SUPERSEDED, State.EXPIRED)
"""States that end a life: the next proposal of the rule for the target opens the next one."""
TRIED = (State.OPEN, State.ACCEPTED)
"""States in which a trial can begin: it accepts an open recommendation and is no separate move."""


class IllegalMove(BadInput):
    """A move that the lifecycle does not have."""


@dataclass(frozen=True, slots=True)
class Move:
    """One kind of move."""

    code: str
    """Reason code, stored with each such move."""
    before: tuple[State | None, ...]
    """States it starts from; None: there is no recommendation yet."""
    after: State
    verb: str
    """Participle of the act, as in `it cannot be …`."""
    command: str | None = None
    """The command by which a person makes it; None for moves of runs and verdicts."""


MOVES = (
    # An advice run
    Move("proposed", (None, State.FAILED, State.BLOCKED, State.REFUSED), State.OPEN, "proposed"),
    Move("refused", (None, State.OPEN, State.FAILED, State.BLOCKED, State.EXPIRED), State.REFUSED, "refused"),
    Move("blocked", (None, State.OPEN, State.FAILED, State.REFUSED, State.EXPIRED), State.BLOCKED, "blocked"),
    Move("failed", (None, State.OPEN, State.BLOCKED, State.REFUSED, State.EXPIRED), State.FAILED, "marked as failed"),
    Move("not-found", SET_BY_RUN, State.EXPIRED, "expired"),
    Move("snooze-ended", (State.SNOOZED,), State.OPEN, "woken"),
    Move("dismissal-ended", (State.DISMISSED,), State.OPEN, "proposed again"),
    # A person
    Move("accepted", (State.OPEN,), State.ACCEPTED, "accepted", "accept"),
    Move("snoozed", (State.OPEN,), State.SNOOZED, "snoozed", "snooze"),
    Move("dismissed", (State.OPEN, State.SNOOZED), State.DISMISSED, "dismissed", "dismiss"),
    Move("reopened", PUT_OFF, State.OPEN, "reopened", "reopen"),
    Move("withdrawn", (State.ACCEPTED,), State.EXPIRED, "reopened", "reopen"),
    Move("declared", (State.OPEN, *PUT_OFF, State.ACCEPTED), State.APPLIED, "marked as applied", "applied"),
    Move("undone", UNDOABLE, State.ROLLED_BACK, "rolled back", "undo"),
    # Changes that were detected, and verdicts
    Move("detected", (State.OPEN, *PUT_OFF, State.ACCEPTED), State.APPLIED, "marked as applied"),
    Move("superseded", (State.OPEN, *PUT_OFF, State.ACCEPTED), State.SUPERSEDED, "superseded"),
    Move("verifying", (State.APPLIED,), State.VERIFYING, "verified"),
    Move("realized", (State.VERIFYING,), State.REALIZED, "judged"),
    Move("partial", (State.VERIFYING,), State.PARTIAL, "judged"),
    Move("no-effect", (State.VERIFYING,), State.NO_EFFECT, "judged"),
    Move("regressed", (State.VERIFYING,), State.REGRESSED, "judged"),
    Move("output-changed", (State.VERIFYING,), State.OUTPUT_CHANGED, "judged"),
    Move("inconclusive", (State.VERIFYING,), State.INCONCLUSIVE, "judged"),
    Move("decayed", (State.REALIZED, State.PARTIAL), State.DECAYED, "marked as decayed"),
    Move("reverted", UNDOABLE, State.ROLLED_BACK, "rolled back"),
)
"""Every legal move, by its reason code."""
_BY_CODE = {move.code: move for move in MOVES}


@dataclass(frozen=True, slots=True)
class Moved:
    """A recommendation after a move or an update, with the reason that is stored."""

    recommendation: Recommendation
    code: str
    why: str


class MoveFields(TypedDict, total=False):
    """Other fields of a recommendation that change with a move."""

    reason: str
    until_ts: int | None
    variant: str
    estimate: Variant
    unconfirmed: None
    refusals: tuple[Refusal, ...]


def next_moves(state: State) -> Iterator[Move]:
    """Yield the moves that a person can make from a state."""
    return (move for move in MOVES if move.command is not None and state in move.before)


def commands(state: State) -> tuple[str, ...]:
    """Return the commands that a person can give in a state, a trial after an acceptance."""
    names = [move.command for move in next_moves(state) if move.command is not None]
    if state in TRIED:
        names.insert(int(state is State.OPEN), "trial")
    return tuple(dict.fromkeys(names))


def moved(recommendation: Recommendation, code: str, why: str, now_ts: int, **changes: Unpack[MoveFields]) -> Moved:
    """Make one move of the table, with other fields that change. Raises IllegalMove with the possible moves."""
    move = _BY_CODE[code]
    if recommendation.state not in move.before:
        raise IllegalMove(refusal(recommendation, code))
    changes.setdefault("until_ts", None)
    return Moved(replace(recommendation, state=move.after, updated_ts=now_ts, **changes), code, why)


def refusal(recommendation: Recommendation, code: str) -> str:
    """Return why a move cannot be made, or a trial not begun, and the possible moves."""
    verb = "tried" if code == "trial" else _BY_CODE[code].verb
    what = f"{short_id(recommendation)} ({recommendation.change}) is {described(recommendation)} and cannot be {verb}"
    if names := commands(recommendation.state):
        return f"{what}; possible now: {', '.join(f'`pertoken {name} {short_id(recommendation)}`' for name in names)}"
    if recommendation.state in FINAL:
        return f"{what}: it has ended; if its rule proposes it again, that is a new recommendation"
    return f"{what}: there is no proposal in it"


def described(recommendation: Recommendation) -> str:
    """Return the state of a recommendation in words: `snoozed until 2026-12-01 09:00Z`."""
    until_ts = recommendation.until_ts
    return recommendation.state.label + ("" if until_ts is None else f" until {format_utc(until_ts)}")


SNOOZE_S = 14 * 86_400
DISMISS_S = 90 * 86_400
"""How long a dismissal lasts by default: prices and load of another quarter may decide otherwise."""
MAX_PUT_OFF_S = 366 * 86_400


def accept(
    recommendation: Recommendation, now_ts: int, why: str | None = None, variant: str | None = None
) -> Sequence[Moved]:
    """Accept a variant, the best one if none is named; its estimate is frozen. Raises BadInput."""
    chosen = None if recommendation.state is not State.OPEN else _variant(recommendation, variant)
    changes: MoveFields = {} if chosen is None else {"variant": chosen.key, "estimate": chosen, "unconfirmed": None}
    return (moved(recommendation, "accepted", why or "accepted", now_ts, **changes),)


def snooze(recommendation: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Put a recommendation off until a date. Raises BadInput."""
    end_ts = _until(until_ts, now_ts)
    return (moved(recommendation, "snoozed", why or "snoozed", now_ts, until_ts=end_ts, unconfirmed=None),)


def dismiss(recommendation: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Decline a recommendation until a date; its dollars count as declined. Raises BadInput."""
    end_ts = _until(until_ts, now_ts)
    return (moved(recommendation, "dismissed", why or "dismissed", now_ts, until_ts=end_ts, unconfirmed=None),)


def reopen(recommendation: Recommendation, now_ts: int, why: str | None = None) -> Sequence[Moved]:
    """End a snooze or dismissal, or withdraw an acceptance. Raises BadInput.

    An accepted recommendation keeps its estimate and ends; its proposal becomes an open recommendation, the next life.
    """
    why = why or "reopened"
    if recommendation.state is not State.ACCEPTED:
        return (moved(recommendation, "reopened", why, now_ts),)
    ended = moved(recommendation, "withdrawn", why, now_ts, reason="its acceptance was withdrawn")
    proposal = replace(recommendation, state=State.OPEN, variant=None, estimate=None, version=0)
    again = replace(next_life(recommendation, proposal), created_ts=now_ts, updated_ts=now_ts)
    return ended, Moved(again, "proposed", why)


def next_life(ended: Recommendation, proposal: Recommendation) -> Recommendation:
    """Return a proposal as the life that follows one that ended."""
    life = ended.life + 1
    return replace(proposal, recommendation_id=identity(*ended.subject, life), life=life)


def declare(
    recommendation: Recommendation, now_ts: int, why: str | None = None, variant: str | None = None
) -> Sequence[Moved]:
    """Declare a recommendation applied, accepted or not. Raises BadInput."""
    return (applied(recommendation, "declared", why or "declared applied", now_ts, variant),)


def roll_back(recommendation: Recommendation, now_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Declare that an applied change was undone. Raises BadInput."""
    why = why or "declared undone"
    return (moved(recommendation, "undone", why, now_ts, reason=why),)


def applied(recommendation: Recommendation, code: str, why: str, now_ts: int, variant: str | None = None) -> Moved:
    """Move a recommendation to APPLIED; an estimate that was never accepted is frozen now. Raises BadInput."""
    estimate = recommendation.estimate
    if estimate is None and recommendation.variants:
        chosen = _variant(recommendation, variant)
        return moved(recommendation, code, why, now_ts, variant=chosen.key, estimate=chosen, unconfirmed=None)
    if variant is not None and estimate is not None and not estimate.key.startswith(variant):
        raise BadInput(
            f"{short_id(recommendation)}: {estimate.title} was accepted, not {variant!r}; "
            f"`pertoken reopen {short_id(recommendation)}` withdraws that"
        )
    return moved(recommendation, code, why, now_ts)


def undo_commands(recommendation: Recommendation) -> Variant:
    """Return the applied variant, with its commands to undo it. Raises IllegalMove if nothing was applied."""
    if recommendation.estimate is None or recommendation.state not in (*UNDOABLE, State.ROLLED_BACK):
        raise IllegalMove(refusal(recommendation, "undone"))
    return recommendation.estimate


def _variant(recommendation: Recommendation, key: str | None) -> Variant:
    """Return the variant with this prefix of its key, or the best. Raises BadInput if it is not exactly one."""
    if not recommendation.variants:
        raise BadInput(f"{short_id(recommendation)}: an older pertoken stored it; run `pertoken advise` first")
    if key is None:
        return recommendation.variants[0]
    matches = [variant for variant in recommendation.variants if key and variant.key.startswith(key.lower())]
    if len(matches) != 1:
        listed = "; ".join(f"{variant.key} ({variant.title})" for variant in recommendation.variants)
        raise BadInput(f"{short_id(recommendation)}: {key!r} names {len(matches) or 'none'} of its variants: {listed}")
    return matches[0]


def _until(until_ts: int, now_ts: int) -> int:
    if until_ts <= now_ts:
        raise BadInput("the end is in the past; give a later date, or a duration such as `--for 14d`")
    if until_ts > now_ts + MAX_PUT_OFF_S:
        raise BadInput(f"the end is more than {format_duration(MAX_PUT_OFF_S)} from now; give an earlier one")
    return until_ts
