"""Figures as JSON values, for commands and the MCP server."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pertoken.costs.report.lines import Trouble
from pertoken.costs.spend import Spend
from pertoken.proof.recommendation import Money, Recommendation, State, full_id
from pertoken.proof.verdicts import Verdict
from pertoken.text.advice_sheet import affected, could_break, how_sure, series_label, slower, why
from pertoken.units import NANO_USD


def bill_values(bill: Spend) -> Iterator[dict[str, Any]]:
    """Yield the values of each line of a bill; None is unknown or not applicable."""
    for line in bill.lines:
        price = line.nano_usd_per_mtok
        yield {
            "by": bill.by,
            "name": line.name,
            "team": line.team,
            "key": line.key,
            "user": line.user,
            "usd": None if bill.nano_usd is None else line.nano_usd / NANO_USD,
            "tokens": line.tokens,
            "usd_per_mtok": None if price is None or bill.nano_usd is None else price / NANO_USD,
            "cached_tokens": line.cached_tokens,
            "generated_tokens": line.generated_tokens,
            "reasoning_tokens": line.reasoning_tokens,
            "audio_tokens": line.audio_tokens,
            "images": line.images,
            "video_s": None if line.video_ms is None else line.video_ms / 1000,
            "weighted": not line.unweighted if line.team or line.key or line.user else None,
            "usd_with_shared": None if line.shared_nano_usd is None else line.shared_nano_usd / NANO_USD,
        }


def advice_values(recommendation: Recommendation) -> dict[str, Any]:
    """Return what a recommendation changes, why, how much and how sure it saves, and what it may harm."""
    chosen = recommendation.chosen
    confirmed = None if chosen is None else chosen.if_confirmed
    return {
        "id": full_id(recommendation),
        "rule": recommendation.rule_id,
        "state": recommendation.state.value,
        "title": recommendation.change,
        "target": recommendation.target,
        "why": why(recommendation),
        "bankable_usd_per_month": None if chosen is None else _usd(chosen.net),
        "capacity_usd_per_month": None if chosen is None else _usd(chosen.capacity),
        "if_confirmed_usd_per_month": _usd(confirmed.net) if confirmed else None,
        "to_confirm": None if chosen is None else chosen.to_confirm,
        "forecast": asdict(chosen.tier) if chosen and chosen.tier else None,
        "confidence": None if chosen is None else how_sure(chosen),
        "slower": [] if chosen is None else list(slower(chosen)),
        "could_break": [] if chosen is None else list(could_break(chosen)),
        "moving": [] if chosen is None else list(chosen.moving),
        "moving_once_usd": _usd(chosen.moving_once) if chosen and chosen.moving_once else None,
        "affected": None if chosen is None else affected(recommendation, chosen),
        "evidence": [series_label(line.series) for line in recommendation.evidence if line.missing is None],
        "commands": [] if chosen is None else list(chosen.commands),
        "pays_more": recommendation.pays_more,
        "may_rise": recommendation.may_rise,
        "unconfirmed": recommendation.unconfirmed if recommendation.state is State.OPEN else None,
        "reason": recommendation.reason,
        "remedy": recommendation.remedy,
        "refusals": [{"code": refusal.code, "reason": refusal.reason} for refusal in recommendation.refusals],
    }


def trouble_values(trouble: Trouble) -> dict[str, Any]:
    """Return what is wrong now as JSON values."""
    nano_usd = trouble.nano_usd_per_hour
    return {
        "kind": trouble.kind.value,
        "target": trouble.target,
        "reason": trouble.reason,
        "usd_per_hour": None if nano_usd is None else nano_usd / NANO_USD,
        "command": trouble.command,
    }


def verdict_values(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict with its effect on the cost of a token, as a ratio."""
    effect = verdict.judgement.effect
    return {
        "deployment": verdict.name,
        "changed_ts": verdict.changed_ts,
        "judged_ts": verdict.judged_ts,
        "changes": [{"field": edit.field, "before": edit.before, "after": edit.after} for edit in verdict.edits],
        "result": verdict.judgement.result.value,
        "effect": None if effect is None else dict(zip(("low", "likely", "high"), effect, strict=True)),
        "reason": verdict.judgement.reason,
    }


def _usd(money: Money | None) -> dict[str, float] | None:
    if money is None:
        return None
    return dict(zip(("low", "likely", "high"), (nano / NANO_USD for nano in money), strict=True))
