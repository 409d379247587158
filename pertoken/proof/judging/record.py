"""The track record of each rule, from the stored receipts of its recommendations."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pertoken.proof.judging.receipts import Kind, StoredReceipt, read_receipts
from pertoken.proof.receipts.receipt import Change
from pertoken.proof.recommendation import Recommendation, RecordLine, Variant
from pertoken.proof.track_record import (
    MIN_PROMISE,
    Outcome,
    Record,
    corrected,
    corrected_saving,
    outcome,
    record,
)
from pertoken.proof.verdicts import promise_of
from pertoken.proof.verification.question import Promise
from pertoken.savings.saving import Saving
from pertoken.store.connect.open import Store
from pertoken.window.inventory import Inventory
from pertoken.window.reading import Window

DAY_S = 86_400
MAX_SAVING = 0.99
"""Part of the device time that a corrected promise can save."""


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """Promises of one rule against what was realised."""

    rule: str
    record: Record
    not_counted: int
    """Receipts that do not count for the ratio: nothing was promised in device time, or a gate failed."""


def records(receipts: Iterable[StoredReceipt]) -> tuple[RuleRecord, ...]:
    """Return the record of each rule that has receipts, in the order of names. Re-checks are no further outcomes."""
    receipts = tuple(receipts)
    outcomes_of_rules, seen = (
        outcomes(receipts),
        Counter(receipt.read().change.rule for receipt in receipts if receipt.kind is Kind.VERDICT),
    )
    made_of = {rule: record(outcomes_of_rules, rule) for rule in sorted(rule for rule in seen if rule is not None)}
    return tuple(RuleRecord(rule, known, seen[rule] - known.receipts) for rule, known in made_of.items())


def outcomes(receipts: Iterable[StoredReceipt]) -> tuple[Outcome, ...]:
    """Return what each first verdict on a recommendation adds to the record of its rule.

    A promise counts as its rule made it, without the correction by earlier receipts: else a record that is believed
    would lead back to 1.
    """
    outcomes_of_rules = []
    for stored_receipt in receipts:
        made = stored_receipt.read() if stored_receipt.kind is Kind.VERDICT else None
        if made is not None and made.change.rule is not None:
            change = made.change
            outcomes_of_rules.append(
                outcome(made.change.rule, change.regime, _as_made(made.promised, change), made.finding)
            )
    return tuple(outcome for outcome in outcomes_of_rules if outcome is not None)


def _as_made(promised: Promise | None, change: Change) -> Promise | None:
    if promised is None or change.correction <= 0:
        return promised
    return Promise(*(value / change.correction for value in (promised.low, promised.likely, promised.high)))


def regime(inventory: Inventory, deployment_id: int | None) -> str | None:
    """Return the regime of a deployment: its engine and devices. Rules err alike within one, and other than in others.

    None where it is not known.
    """
    row = None if deployment_id is None else inventory.newest.get(deployment_id)
    if row is None:
        return None
    names = dict.fromkeys(str(device_id.name) for device_id in inventory.held(row.epoch_id))
    return f"{row.engine_kind} on {', '.join(names) or 'unknown devices'}"


def corrected_by(
    recommendations: Iterable[Recommendation], known: Iterable[Outcome], inventory: Inventory
) -> tuple[Recommendation, ...]:
    """Return an advice run's results with each estimate corrected by the track record of its rule and regime."""
    known = tuple(known)
    counts = Counter(outcome.rule for outcome in known)
    return tuple(
        recommendation
        if not counts[recommendation.rule_id]
        else _corrected(recommendation, known, counts[recommendation.rule_id], inventory)
        for recommendation in recommendations
    )


def corrected_by_receipts(
    store: Store, recommendations: Sequence[Recommendation], now_ts: int
) -> tuple[Recommendation, ...]:
    """Return the same by the receipts of a store. Raises StoreError."""
    if store.advice is None:
        return tuple(recommendations)
    with store.read("advice") as connection:
        known = outcomes(read_receipts(connection))
    if not known:
        return tuple(recommendations)
    with store.read() as connection:
        return corrected_by(recommendations, known, Window(connection, now_ts - DAY_S, now_ts).inventory)


def _corrected(row: Recommendation, known: tuple[Outcome, ...], receipts: int, inventory: Inventory) -> Recommendation:
    variants = []
    for variant in row.variants:
        targets = (int(edit.target) for edit in variant.edits if edit.kind == "deployment")
        of = record(known, row.rule_id, regime(inventory, next(targets, row.deployment_id)))
        line = RecordLine(receipts, of.ratio, of.ratio_sd, of.widening)
        variants.append(corrected_variant(variant, line, of))
    return replace(row, variants=tuple(variants))


def corrected_variant(variant: Variant, line: RecordLine, known: Record) -> Variant:
    """Return a variant whose saving of device time, and the dollars that follow from it, are corrected by a record.

    What promises no device time, such as another price, stays: receipts do not measure it.
    """
    promise = promise_of(variant)
    if promise is None or promise.likely < MIN_PROMISE:
        return variant
    by = corrected(promise, known)
    throughput = 1 / (1 - by.low), 1 / (1 - by.likely), 1 / (1 - min(by.high, MAX_SAVING))
    return replace(
        variant,
        throughput_ratio=throughput,
        saving=_corrected_saving(variant.saving, line),
        if_confirmed=_corrected_saving(variant.if_confirmed, line),
        record=line,
    )


def _corrected_saving(saving: Saving | None, line: RecordLine) -> Saving | None:
    return None if saving is None else corrected_saving(saving, line.ratio, line.widening)
