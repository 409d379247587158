"""What a person does with a recommendation: pure functions from a row to its moves.

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


def accept(each: Recommendation, now_ts: int, why: str | None = None, variant: str | None = None) -> Sequence[Moved]:
    """Accept a variant, the best one if none is named; its estimate is frozen. Raises BadInput."""
    chosen = None if each.state is not State.OPEN else _variant(each, variant)
    what = {} if chosen is None else {"variant": chosen.key, "estimate": chosen, "unconfirmed": None}
    return (moved(each, "accepted", why or "accepted", now_ts, **what),)


def snooze(each: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Put a recommendation off until a date. Raises BadInput."""
    return (moved(each, "snoozed", why or "snoozed", now_ts, until_ts=_until(until_ts, now_ts), unconfirmed=None),)


def dismiss(each: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Decline a recommendation until a date; its dollars count as declined. Raises BadInput."""
    return (moved(each, "dismissed", why or "dismissed", now_ts, until_ts=_until(until_ts, now_ts), unconfirmed=None),)


def reopen(each: Recommendation, now_ts: int, why: str | None = None) -> Sequence[Moved]:
    """End a snooze or dismissal, or withdraw an acceptance. Raises BadInput.

    What was accepted keeps its estimate and ends; its proposal goes on as the next life, an open recommendation.
    """
    why = why or "reopened"
    if each.state is not State.ACCEPTED:
        return (moved(each, "reopened", why, now_ts),)
    ended = moved(each, "withdrawn", why, now_ts, reason="its acceptance was withdrawn")
    life = each.life + 1
    again = replace(
        each,
        recommendation_id=identity(each.rule_id, each.target_kind, each.target_key, life),
        life=life,
        state=State.OPEN,
        variant=None,
        estimate=None,
        created_ts=now_ts,
        updated_ts=now_ts,
        version=0,
    )
    return ended, Moved(again, "proposed", why)


def declare(each: Recommendation, now_ts: int, why: str | None = None, variant: str | None = None) -> Sequence[Moved]:
    """Declare a recommendation applied, accepted or not. Raises BadInput."""
    return (applied(each, "declared", why or "declared applied", now_ts, variant),)


def roll_back(each: Recommendation, now_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Declare that an applied change was undone. Raises BadInput."""
    why = why or "declared undone"
    return (moved(each, "undone", why, now_ts, reason=why),)


def applied(each: Recommendation, code: str, why: str, now_ts: int, variant: str | None = None) -> Moved:
    """Move a recommendation to APPLIED; what nobody accepted has its estimate frozen now. Raises BadInput."""
    if each.estimate is None and each.variants:
        chosen = _variant(each, variant)
        return moved(each, code, why, now_ts, variant=chosen.key, estimate=chosen, unconfirmed=None)
    if variant is not None and each.estimate is not None and not each.estimate.key.startswith(variant):
        raise BadInput(
            f"{short_id(each)}: {each.estimate.title} was accepted, not {variant!r}; "
            f"`pertoken reopen {short_id(each)}` withdraws that"
        )
    return moved(each, code, why, now_ts)


def undo_commands(each: Recommendation) -> Variant:
    """Return what was applied, with its commands to undo it. Raises IllegalMove if nothing was applied."""
    if each.estimate is None or each.state not in (State.APPLIED, State.VERIFYING, *DONE):
        raise IllegalMove(refusal(each, "undone"))
    return each.estimate


def _variant(each: Recommendation, key: str | None) -> Variant:
    """Return the variant whose key begins so, or the best. Raises BadInput if it is not exactly one."""
    if not each.variants:
        raise BadInput(f"{short_id(each)}: an older pertoken stored it; run `pertoken advise` first")
    if key is None:
        return each.variants[0]
    matches = [variant for variant in each.variants if key and variant.key.startswith(key.lower())]
    if len(matches) != 1:
        listed = "; ".join(f"{variant.key} ({variant.title})" for variant in each.variants)
        raise BadInput(f"{short_id(each)}: {key!r} names {len(matches) or 'none'} of its variants: {listed}")
    return matches[0]


def _until(until_ts: int, now_ts: int) -> int:
    if until_ts <= now_ts:
        raise BadInput("the end is in the past; give a later date, or a duration such as `--for 14d`")
    if until_ts > now_ts + MAX_PUT_OFF_S:
        raise BadInput(f"the end is more than {format_duration(MAX_PUT_OFF_S)} from now; give an earlier one")
    return until_ts
