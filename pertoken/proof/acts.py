"""Acts of a person on a recommendation: pure functions from a row to its moves.

`proof.stored.store_acts` writes them, against the version of the row that the person looked at.
"""

from collections.abc import Sequence
from dataclasses import replace

from pertoken.errors import BadInput
from pertoken.proof.lifecycle import DONE, IllegalMove, Moved, moved, refusal
from pertoken.proof.recommendation import Recommendation, State, Variant, identity, short_id
from pertoken.units import format_duration

SNOOZE_S = 14 * 86_400
DISMISS_S = 90 * 86_400
"""How long a dismissal lasts by default: prices and load of another quarter may decide otherwise."""
MAX_PUT_OFF_S = 366 * 86_400


def accept(
    recommendation: Recommendation, now_ts: int, why: str | None = None, variant: str | None = None
) -> Sequence[Moved]:
    """Accept a variant, the best one if none is named; its estimate is frozen. Raises BadInput."""
    chosen = None if recommendation.state is not State.OPEN else _variant(recommendation, variant)
    what = {} if chosen is None else {"variant": chosen.key, "estimate": chosen, "unconfirmed": None}
    return (moved(recommendation, "accepted", why or "accepted", now_ts, **what),)


def snooze(recommendation: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Put a recommendation off until a date. Raises BadInput."""
    return (
        moved(recommendation, "snoozed", why or "snoozed", now_ts, until_ts=_until(until_ts, now_ts), unconfirmed=None),
    )


def dismiss(recommendation: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Decline a recommendation until a date; its dollars count as declined. Raises BadInput."""
    return (
        moved(
            recommendation, "dismissed", why or "dismissed", now_ts, until_ts=_until(until_ts, now_ts), unconfirmed=None
        ),
    )


def reopen(recommendation: Recommendation, now_ts: int, why: str | None = None) -> Sequence[Moved]:
    """End a snooze or dismissal, or withdraw an acceptance. Raises BadInput.

    What was accepted keeps its estimate and ends; its proposal goes on as the next life, an open recommendation.
    """
    why = why or "reopened"
    if recommendation.state is not State.ACCEPTED:
        return (moved(recommendation, "reopened", why, now_ts),)
    ended = moved(recommendation, "withdrawn", why, now_ts, reason="its acceptance was withdrawn")
    life = recommendation.life + 1
    again = replace(
        recommendation,
        recommendation_id=identity(recommendation.rule_id, recommendation.target_kind, recommendation.target_key, life),
        life=life,
        state=State.OPEN,
        variant=None,
        estimate=None,
        created_ts=now_ts,
        updated_ts=now_ts,
        version=0,
    )
    return ended, Moved(again, "proposed", why)


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
    if recommendation.estimate is None and recommendation.variants:
        chosen = _variant(recommendation, variant)
        return moved(recommendation, code, why, now_ts, variant=chosen.key, estimate=chosen, unconfirmed=None)
    if (
        variant is not None
        and recommendation.estimate is not None
        and not recommendation.estimate.key.startswith(variant)
    ):
        raise BadInput(
            f"{short_id(recommendation)}: {recommendation.estimate.title} was accepted, not {variant!r}; "
            f"`pertoken reopen {short_id(recommendation)}` withdraws that"
        )
    return moved(recommendation, code, why, now_ts)


def undo_commands(recommendation: Recommendation) -> Variant:
    """Return the applied variant, with its commands to undo it. Raises IllegalMove if nothing was applied."""
    if recommendation.estimate is None or recommendation.state not in (State.APPLIED, State.VERIFYING, *DONE):
        raise IllegalMove(refusal(recommendation, "undone"))
    return recommendation.estimate


def _variant(recommendation: Recommendation, key: str | None) -> Variant:
    """Return the variant whose key begins so, or the best. Raises BadInput if it is not exactly one."""
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
