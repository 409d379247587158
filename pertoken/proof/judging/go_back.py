"""Recommendations to go back: a change that made tokens dearer, or since which an objective is missed.

They are proposed by each advice run for as long as the changed configuration runs, whether anybody recommended the
change or not. Going back is detected as any change is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pertoken.catalog import knobs as knob_commands
from pertoken.proof.judging.receipts import Kind, StoredReceipt
from pertoken.proof.own_rules import GO_BACK
from pertoken.proof.receipts.receipt import Receipt
from pertoken.proof.recommendation import (
    ChangeLine,
    Edit,
    Recommendation,
    State,
    Variant,
    identity,
)
from pertoken.proof.verdicts import Result, Verdict
from pertoken.state.knobs import knobs
from pertoken.store.schema.shared import stable_id
from pertoken.units import format_utc
from pertoken.window.inventory import Inventory


def go_back(
    verdicts: Iterable[Verdict],
    receipts: Iterable[StoredReceipt],
    rows: Mapping[int, Recommendation],
    inventory: Inventory,
    now_ts: int,
) -> tuple[Recommendation, ...]:
    """Return a recommendation for each deployment that runs what made it worse. `rows`: recommendations by id."""
    made = {
        (receipt.deployment_id, receipt.epoch_id): receipt.read()
        for receipt in receipts
        if receipt.kind is Kind.VERDICT
    }
    proposals = []
    for verdict in verdicts:
        row = inventory.running.get(verdict.deployment_id)
        if row is None or row.epoch_id != verdict.epoch_id or not verdict.edits:
            continue
        reasons = list(_reasons(verdict, made.get((verdict.deployment_id, verdict.epoch_id))))
        if reasons:
            proposals.append(_recommendation(verdict, rows.get(verdict.recommendation_id or 0), row, reasons, now_ts))
    return tuple(proposals)


def _reasons(verdict: Verdict, receipt: Receipt | None) -> Iterator[str]:
    since = f"since {format_utc(verdict.changed_ts)}"
    if verdict.judgement.result is Result.DEARER and verdict.judgement.effect is not None:
        low, likely, high = verdict.judgement.effect
        yield f"{since} a token takes {likely:+.1%} ({low:+.1%} to {high:+.1%}) device time at like load"
    if receipt is not None and (guard := receipt.finding.guard) is not None and guard.changed:
        yield f"{since} {guard.sentence}: check their quality before you keep it"
    if receipt is not None and receipt.objective_missed_since:
        yield f"{since} an objective is missed that was kept before"


def _recommendation(
    verdict: Verdict, applied: Recommendation | None, row: Any, reasons: list[str], now_ts: int
) -> Recommendation:
    back = tuple(replace(edit, before=edit.after, after=edit.before) for edit in verdict.edits)
    undo = applied.estimate.undo if applied is not None and applied.estimate is not None else ()
    commands = undo or tuple(_commands(verdict, row))
    effect = verdict.judgement.effect if verdict.judgement.result is Result.DEARER else None
    title = "go back: " + ", ".join(f"{edit.field} {_text(edit.before)} → {_text(edit.after)}" for edit in back)
    variant = Variant(
        key=f"{stable_id('go back', verdict.deployment_id, verdict.epoch_id) % 2**64:016x}",
        title=title,
        changes=tuple(ChangeLine(verdict.name, edit.field, _text(edit.before), _text(edit.after)) for edit in back),
        edits=back,
        commands=commands,
        undo=("apply the change again, as it runs now",),
        throughput_ratio=None if effect is None else (1 + effect[0], 1 + effect[1], 1 + effect[2]),
        risk="availability",
        effort="medium",
        touches=(f"deployment:{verdict.deployment_id}",),
        provenance="measured",
        unpriced="it restores what ran before; its worth is the regression that was measured",
        assumptions=("load and mix of the weeks to come are those of the weeks compared",),
    )
    key = str(verdict.deployment_id)
    return Recommendation(
        recommendation_id=identity(GO_BACK, "deployment", key),
        rule_id=GO_BACK,
        state=State.OPEN,
        title=title,
        target=verdict.name,
        target_kind="deployment",
        target_key=key,
        deployment_id=verdict.deployment_id,
        reason="; ".join(reasons),
        variants=(variant,),
        created_ts=now_ts,
        updated_ts=now_ts,
    )


def _commands(verdict: Verdict, row: Any) -> Iterator[str]:
    """Yield how to set each field back, by the flags of the engine where they are known."""
    present = json.loads(row.knobs)
    for edit in verdict.edits:
        if edit.field == "engine_version":
            version = verdict.version_before or "the version that ran before"
            yield f"install {row.engine_kind} {version} again and restart"
        elif edit.field in knobs() and knobs()[edit.field].scope == "engine":
            staying = {name: value for name, value in present.items() if name in knobs() and name != edit.field}
            written = knob_commands.commands(row.engine_kind, {edit.field: (edit.after, edit.before)}, staying)
            yield from (*written.apply, *written.manual)
        else:
            yield f"set {_label(edit)} back to {_text(edit.before)}"


def _label(edit: Edit) -> str:
    return knobs()[edit.field].label if edit.field in knobs() else edit.field.replace("_", " ")


def _text(value: object) -> str:
    return "not set" if value is None else str(value)
