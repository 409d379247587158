"""Sentences about advice around its tables: totals, and reasons for empty lists."""

from collections import Counter
from collections.abc import Sequence

from pertoken.proof.recommendation import Recommendation, beside_accepted, best_of_each_target, short_id, total
from pertoken.text.advice.columns import (
    UNCONFIRMED,
    bankable,
    capacity,
    not_evaluated,
)
from pertoken.text.words import literal, usd_range

MAX_IDS = 6
"""Proposals that one sentence names."""


def totals(advice: Sequence[Recommendation]) -> str:
    """Return bankable and capacity dollars of the open proposals, which are never added to each other."""
    best = best_of_each_target(advice)
    assumed = Counter(line for row in best if row.best for line in row.best.assumptions)
    frequent = max(assumed, key=lambda line: assumed[line], default=None)
    more = f" (and {len(assumed) - 1} more, in the details)" if len(assumed) > 1 else ""
    notes = accepted_note(advice), forecast_note(best), unconfirmed_note(advice)
    return (
        f"{_worth(best)}\n"
        "Of changes to the same service or host only the best counts."
        + ("" if frequent is None else f"\nAssumed: {literal(frequent.partition('; ')[0])}{more}")
        + "".join(f"\n{note}" for note in notes if note)
    )


def accepted_note(advice: Sequence[Recommendation]) -> str | None:
    """Return a sentence on open proposals beside an accepted change of the same target; None without any."""
    rows = [row for row in beside_accepted(advice) if any(bankable(row) or ()) or any(capacity(row) or ())]
    if not rows:
        return None
    ids = ", ".join(map(short_id, rows[:MAX_IDS])) + (f" and {len(rows) - MAX_IDS} more" if rows[MAX_IDS:] else "")
    return (
        f"In no total, since their prices are those before an accepted change of the same target: {ids}. "
        "`pertoken plan` prices them after it."
    )


def forecast_note(rows: Sequence[Recommendation]) -> str | None:
    """Return what the forecasts of some advice rest on, with what lifts them; None without a forecast."""
    counts = Counter(row.best.tier for row in rows if row.best and row.best.tier)
    if not counts:
        return None
    known = "; ".join(f"{n} {tier.short}" for tier, n in counts.most_common())
    lifted = sorted({tier.lifted_by for tier in counts if tier.lifted_by})
    lifts = f"; `{'`, `'.join(lifted)}` at the load in question lifts it" if lifted else ""
    return f"Forecasts: {known} (off by, median / 90th percentile){lifts}."


def unconfirmed_note(proposed: Sequence[Recommendation]) -> str | None:
    """Return a sentence on open proposals that the last run did not confirm; None if it confirmed all."""
    count = sum(row.unconfirmed is not None for row in proposed)
    if not count:
        return None
    rows, them = ("1 row is", "it") if count == 1 else (f"{count} rows are", "them")
    return f"{UNCONFIRMED} {rows} not confirmed by the last run: in no total; the next run confirms or closes {them}."


def _worth(best: Sequence[Recommendation]) -> str:
    """Return what the proposals are worth: a sentence for each kind of dollars that they have."""
    falls, serves_more = total(bankable(row) for row in best), total(capacity(row) for row in best)
    bill = f"Bankable {usd_range(falls)} a month: the bill falls by this." if falls and any(falls) else ""
    more = (
        f"Capacity {usd_range(serves_more)} a month: the same bill serves more."
        if serves_more and any(serves_more)
        else ""
    )
    both = f"{bill}\n{more} Not to be added." if bill and more else bill or more
    return both or "None of these has dollars yet."


def advice_note(advice: Sequence[Recommendation]) -> str:
    """Return the reason why nothing is proposed."""
    silent = len(not_evaluated(advice))
    if not silent:
        return (
            "Nothing to propose, and no rule has anything to report. Rules need a few minutes of telemetry of a served "
            "model; `pertoken doctor` reports what can be measured here."
        )
    results = "1 rule result with its reason" if silent == 1 else f"{silent} rule results with their reasons"
    return f"Nothing to propose: Not evaluated lists {results}."
