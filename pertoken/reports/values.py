"""Figures as plain values, which commands print as JSON and the MCP server answers."""

from collections.abc import Iterator
from typing import Any

from pertoken.costs.hours.spend import Spend
from pertoken.proof.recommendation import Money, Recommendation, full_id
from pertoken.proof.verdicts import Verdict
from pertoken.units import NANO_USD


def bill_values(bill: Spend) -> Iterator[dict[str, Any]]:
    """Yield one for each line of a bill; what is not known, or does not apply, is None."""
    for each in bill.lines:
        price = each.nano_usd_per_mtok
        yield {
            "by": bill.by,
            "name": each.name,
            "team": each.team,
            "key": each.key,
            "user": each.user,
            "usd": None if bill.nano_usd is None else each.nano_usd / NANO_USD,
            "tokens": each.tokens,
            "usd_per_mtok": None if price is None or bill.nano_usd is None else price / NANO_USD,
        }


def advice_values(each: Recommendation) -> dict[str, Any]:
    """Return a recommendation with the dollars of the variant that counts."""
    chosen = each.chosen
    return {
        "id": full_id(each),
        "rule": each.rule_id,
        "state": each.state.value,
        "title": each.title,
        "target": each.target,
        "bankable_usd_per_month": None if chosen is None else _usd(chosen.bankable),
        "capacity_usd_per_month": None if chosen is None else _usd(chosen.capacity),
        "reason": each.reason,
        "remedy": each.remedy,
        "refusals": [{"code": refusal.code, "reason": refusal.reason} for refusal in each.refusals],
    }


def verdict_values(each: Verdict) -> dict[str, Any]:
    """Return a verdict with its effect on the cost of a token, as a ratio."""
    effect = each.judgement.effect
    return {
        "deployment": each.name,
        "changed_ts": each.changed_ts,
        "changes": [{"field": edit.field, "before": edit.before, "after": edit.after} for edit in each.edits],
        "result": each.judgement.result.value,
        "effect": None if effect is None else dict(zip(("low", "likely", "high"), effect, strict=True)),
        "reason": each.judgement.reason,
    }


def _usd(money: Money | None) -> dict[str, float] | None:
    if money is None:
        return None
    return dict(zip(("low", "likely", "high"), (nano / NANO_USD for nano in money), strict=True))
