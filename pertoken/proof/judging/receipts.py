"""Receipts in the database with their hours, for recomputation; track records and corrections of advice from them."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter

from sqlalchemy import Connection

from pertoken.errors import BadInput
from pertoken.forecast.calibration import Realised
from pertoken.proof.receipt import (
    NanoUsd,
    Receipt,
    ReceiptChange,
    from_json,
    from_text,
    is_intact,
    receipt,
    sha256,
    signed,
    to_json,
    to_text,
)
from pertoken.proof.recommendation import Recommendation, RecordLine, State, Variant, total
from pertoken.proof.track_record import (
    MIN_PROMISE,
    Record,
    RecordEntry,
    corrected,
    corrected_saving,
    record,
    record_entry,
)
from pertoken.proof.verdicts import VERIFIED, Verdict, VerdictResult, promise_of, read_verdicts
from pertoken.proof.verification.question import METHODS, Promise, Question
from pertoken.proof.verification.verify import ReleaseQuestion
from pertoken.savings.saving import Saving
from pertoken.state.deployment import Deployment, knobs
from pertoken.state.diff import plain
from pertoken.state.fleet import Fleet
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.units import format_utc
from pertoken.window.inventory import Inventory
from pertoken.window.reading import DAY, Window

SAME = 1e-9
"""Difference of two figures, relative or absolute, that rounding causes."""
_NO_FIGURES = ("version", "sha256", "inputs_sha256")
"""Fields with the maker of a receipt, and hashes that are checked before its figures."""


class Kind(StrEnum):
    """Subject of a receipt."""

    VERDICT = "verdict"
    """The first verdict on a change."""
    AFTER_7_DAYS = "recheck-7"
    AFTER_30_DAYS = "recheck-30"

    @property
    def label(self) -> str:
        """The kind as people read it."""
        return {"recheck-7": "check after 7 days", "recheck-30": "check after 30 days"}.get(self.value, "verdict")


@dataclass(frozen=True, slots=True)
class Check:
    """Result of recomputing a stored receipt."""

    intact: bool
    """It has the hash that it was made with, and so have the hours stored beside it."""
    reproduced: bool
    """Its figures, computed again from those hours, are the same."""
    difference: str | None = None
    """Why it is not the same."""


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt of one change of one deployment, as text."""

    deployment_id: int | None
    """None for released devices."""
    epoch_id: int | None
    """The epoch that began with the change; None for released devices."""
    kind: Kind
    text: str
    """`receipt.to_text`."""
    inputs: str
    """`inputs.to_json` of its question."""
    created_ts: int
    recommendation_id: int | None = None
    """None: nobody recommended the change."""
    receipt_id: int = 0
    """0: not stored yet."""

    @property
    def full_id(self) -> str:
        """The id as people read it: 16 hexadecimal digits."""
        return f"{self.receipt_id % 2**64:016x}"

    @property
    def short_id(self) -> str:
        """Its first digits."""
        return self.full_id[:8]

    def values(self) -> dict[str, object]:
        """Return it as JSON values, without its hours."""
        return {
            "id": self.full_id,
            "kind": self.kind.value,
            "recommendation": _recommendation(self) or None,
            "receipt": json.loads(self.text),
        }

    def read(self) -> Receipt:
        """Return the receipt as values. Raises ValueError where its text is none."""
        return from_text(self.text)

    def check(self) -> Check:
        """Make the receipt again from the hours stored beside it, by the method it was made with, and compare."""
        try:
            if not is_intact(self.text):
                return Check(False, False, "its figures were altered after it was made")
            claimed = self.read()
            if sha256(self.inputs) != claimed.inputs_sha256:
                return Check(False, False, "the hours stored beside it were altered after it was made")
            again = receipt(
                from_json(self.inputs),
                claimed.change,
                claimed.made_at,
                claimed.price,
                (claimed.service_before, claimed.service_after),
                claimed.objectives,
                claimed.trial,
                METHODS[claimed.method],
            )
        except ValueError as error:
            return Check(False, False, str(error))
        stated = {name: value for name, value in json.loads(self.text).items() if name not in _NO_FIGURES}
        if _same(stated, json.loads(to_text(again))):
            return Check(True, True)
        made_by = f": it was made by pertoken {claimed.version}, this is {again.version}"
        return Check(
            True, False, "the same hours give other figures" + (made_by if again.version != claimed.version else "")
        )


def to_stored(
    question: Question | ReleaseQuestion,
    made: Receipt,
    kind: Kind,
    *,
    deployment_id: int | None,
    epoch_id: int | None,
    recommendation_id: int | None,
) -> StoredReceipt:
    """Return a receipt with its question, to be stored."""
    return StoredReceipt(
        deployment_id, epoch_id, kind, to_text(made), to_json(question), made.made_at, recommendation_id
    )


def add(connection: Connection, receipts: Iterable[StoredReceipt]) -> None:
    """Store receipts; one that is stored already changes nothing."""
    for stored_receipt in receipts:
        body = json.dumps({"receipt": stored_receipt.text, "inputs": stored_receipt.inputs})
        repository.add_receipt(
            connection,
            {
                "recommendation_id": stored_receipt.recommendation_id,
                "deployment_id": stored_receipt.deployment_id,
                "epoch_id": stored_receipt.epoch_id,
                "kind": stored_receipt.kind.value,
                "body": body,
                "hash": sha256(body),
                "created_ts": stored_receipt.created_ts,
            },
        )


def resealed(body: str) -> str:
    """Return the stored body of a receipt with the checksums of its present texts, after names in them were replaced.

    A body that holds no receipt is returned as it is.
    """
    try:
        stored = json.loads(body)
        inputs = to_json(from_json(stored["inputs"]))
        text = to_text(signed(replace(from_text(stored["receipt"]), inputs_sha256=sha256(inputs))))
    except (ValueError, KeyError, TypeError):
        return body
    return json.dumps({"receipt": text, "inputs": inputs})


def read_receipts(connection: Connection, recommendation_id: int | None = None) -> tuple[StoredReceipt, ...]:
    """Return the receipts of one recommendation, or all of them, oldest first."""
    receipts = []
    for row in repository.receipts(connection, recommendation_id):
        body = json.loads(row.body)
        receipts.append(
            StoredReceipt(
                row.deployment_id,
                row.epoch_id,
                Kind(row.kind),
                body["receipt"],
                body["inputs"],
                row.created_ts,
                row.recommendation_id,
                row.receipt_id,
            )
        )
    return tuple(receipts)


def all_receipts(store: Store, as_of: int | None = None) -> tuple[StoredReceipt, ...]:
    """Return the receipts of a database, those of later than `as_of` left out, oldest first. Raises StoreError."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        return tuple(row for row in read_receipts(connection) if as_of is None or row.created_ts <= as_of)


def find(receipts: Iterable[StoredReceipt], prefix: str, where: object) -> StoredReceipt:
    """Return the receipt that the first digits of its id name, or of its recommendation's: the newest of that.

    Raises BadInput if they name none or several.
    """
    wanted = prefix.lower()
    receipts = tuple(receipts)
    matches = [stored_receipt for stored_receipt in receipts if wanted and stored_receipt.full_id.startswith(wanted)]
    promised = [
        stored_receipt for stored_receipt in receipts if wanted and _recommendation(stored_receipt).startswith(wanted)
    ]
    if not matches and not promised:
        raise BadInput(f"{where}: holds no receipt {prefix!r}; `pertoken receipt` lists what there is")
    if len(matches) + len({receipt.recommendation_id for receipt in promised}) > 1:
        raise BadInput(f"{prefix!r} names several receipts or recommendations; give more digits")
    return matches[0] if matches else max(promised, key=lambda receipt: receipt.created_ts)


def _same(stated: object, again: object) -> bool:
    """Return whether every stated figure is the same again: older receipts lack later fields. A reason is no figure:
    later versions word it otherwise. Dollars are equal to the last digit; other numbers may differ by the rounding of
    processors.
    """
    if isinstance(stated, dict) and isinstance(again, dict):
        return all(_same(value, again.get(name)) for name, value in stated.items() if name != "reason")
    if isinstance(stated, list) and isinstance(again, list):
        return len(stated) == len(again) and all(map(_same, stated, again))
    if isinstance(stated, float) and isinstance(again, float):
        return math.isclose(stated, again, rel_tol=SAME, abs_tol=SAME)
    return bool(stated == again)


def _recommendation(receipt: StoredReceipt) -> str:
    return "" if receipt.recommendation_id is None else f"{receipt.recommendation_id % 2**64:016x}"


LASTING = (State.REALIZED, State.PARTIAL)
"""States of changes with a proven saving that is still there."""


@dataclass(frozen=True, slots=True)
class Banked:
    """Dollars a month that left a bill, in nano-USD, and by how many changes."""

    changes: int = 0
    nano_usd: tuple[int, int, int] | None = None
    """Low, likely, high. None: nothing was proven."""


def banked(receipts: Iterable[StoredReceipt], rows: Iterable[Recommendation]) -> Banked:
    """Add up the price of the devices that changes gave back, by the newest receipt of each.

    Device time that a faster configuration saves is capacity: no bill falls by it. A change that also pays for other
    devices banks no more than it promised net of them.
    """
    lasting = {row.recommendation_id for row in rows if row.state in LASTING}
    newest: dict[int | None, Receipt] = {}
    for stored in sorted(receipts, key=lambda stored: stored.created_ts):
        receipt = readable(stored) if stored.recommendation_id in lasting else None
        if receipt is not None and receipt.release is not None:
            newest[stored.recommendation_id] = receipt
    savings = [saved for receipt in newest.values() if (saved := off_the_bill(receipt)) is not None]
    return Banked(len(savings), total((saved.low, saved.likely, saved.high) for saved in savings))


def off_the_bill(receipt: Receipt) -> NanoUsd | None:
    """Return the dollars a month that left the bill; None where none did."""
    released = None if receipt.release is None else receipt.release.measured_per_month
    promised = receipt.change.estimated_per_month
    if released is None or promised is None or promised.likely <= 0:
        return None
    return NanoUsd(
        min(released.low, promised.low), min(released.likely, promised.likely), min(released.high, promised.high)
    )


def readable(stored: StoredReceipt) -> Receipt | None:
    """Return a receipt; None where its text is none, which `pertoken receipt` reports."""
    try:
        return stored.read()
    except (ValueError, KeyError, TypeError):
        return None


MAX_SAVING = 0.99
"""Part of the device time that a corrected promise can save."""


@dataclass(frozen=True, slots=True)
class RuleReceipts:
    """Promised against realised savings of one rule."""

    rule: str
    record: Record
    not_counted: int
    """Receipts that do not count for the ratio: nothing was promised in device time, or a gate failed."""


def records(receipts: Iterable[StoredReceipt]) -> tuple[RuleReceipts, ...]:
    """Return the record of each rule that has receipts, in the order of names. Re-checks are no further outcomes."""
    receipts = tuple(receipts)
    entries = record_entries(receipts)
    counts = Counter(receipt.read().change.rule for receipt in receipts if receipt.kind is Kind.VERDICT)
    record_by_rule = {rule: record(entries, rule) for rule in sorted(rule for rule in counts if rule is not None)}
    return tuple(RuleReceipts(rule, made, counts[rule] - made.receipts) for rule, made in record_by_rule.items())


def record_entries(receipts: Iterable[StoredReceipt]) -> tuple[RecordEntry, ...]:
    """Return the entry that each first verdict on a recommendation adds to the record of its rule.

    Promises count without the correction by earlier receipts: corrected ones would lead the record back to 1.
    """
    first_receipts = (receipt.read() for receipt in receipts if receipt.kind is Kind.VERDICT)
    entries = (
        record_entry(made.change.rule, made.change.regime, _as_made(made.promised, made.change), made.finding)
        for made in first_receipts
        if made.change.rule is not None
    )
    return tuple(entry for entry in entries if entry is not None)


def _as_made(promised: Promise | None, change: ReceiptChange) -> Promise | None:
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
    names = dict.fromkeys(device.name for device in inventory.held(row.epoch_id))
    return f"{row.engine_kind} on {', '.join(names) or 'unknown devices'}"


def corrected_by(
    recommendations: Iterable[Recommendation], entries: Iterable[RecordEntry], inventory: Inventory
) -> tuple[Recommendation, ...]:
    """Return an advice run's results with each estimate corrected by the track record of its rule and regime."""
    entries = tuple(entries)
    counts = Counter(entry.rule for entry in entries)
    return tuple(
        recommendation
        if not counts[recommendation.rule_id]
        else _corrected(recommendation, entries, counts[recommendation.rule_id], inventory)
        for recommendation in recommendations
    )


def corrected_by_receipts(
    store: Store, recommendations: Sequence[Recommendation], now_ts: int
) -> tuple[Recommendation, ...]:
    """Return the same by the receipts of a store. Raises StoreError."""
    if store.advice is None:
        return tuple(recommendations)
    with store.read("advice") as connection:
        entries = record_entries(read_receipts(connection))
    if not entries:
        return tuple(recommendations)
    with store.read() as connection:
        return corrected_by(recommendations, entries, Window(connection, now_ts - DAY, now_ts).inventory)


def _corrected(
    row: Recommendation, entries: tuple[RecordEntry, ...], receipts: int, inventory: Inventory
) -> Recommendation:
    variants = []
    for variant in row.variants:
        targets = (int(edit.target) for edit in variant.edits if edit.kind == "deployment")
        rule_record = record(entries, row.rule_id, regime(inventory, next(targets, row.deployment_id)))
        line = RecordLine(receipts, rule_record.ratio, rule_record.ratio_sd, rule_record.widening)
        variants.append(corrected_variant(variant, line, rule_record))
    return replace(row, variants=tuple(variants))


def corrected_variant(variant: Variant, line: RecordLine, rule_record: Record) -> Variant:
    """Return a variant with its saving of device time and the resulting dollars corrected by a record.

    Other savings, such as another price, stay: receipts do not measure them.
    """
    promise = promise_of(variant)
    if promise is None or promise.likely < MIN_PROMISE:
        return variant
    by = corrected(promise, rule_record)
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


PROVEN = (VerdictResult.CHEAPER, VerdictResult.DEARER, VerdictResult.NO_EFFECT)
"""Results with a known effect: an interval that is too wide to decide is too wide to correct a forecast."""
NO_SPEED = ("driver",)
"""Fields of an epoch that no forecast reads."""


def proven_verdicts(store: Store) -> tuple[Verdict, ...]:
    """Return the verdicts that have a receipt. Raises StoreError."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        verdicts = read_verdicts(connection)
        proven = {
            (row.deployment_id, row.epoch_id)
            for row in (repository.receipt_kinds(connection) if verdicts else ())
            if row.kind == Kind.VERDICT
        }
    return tuple(verdict for verdict in verdicts if (verdict.deployment_id, verdict.epoch_id) in proven)


def realised_by(verdicts: Iterable[Verdict], present: Fleet) -> Mapping[int, tuple[Realised, ...]]:
    """Return the changes that verdicts with a receipt are on, of each deployment that runs as its change left it."""
    changes: dict[int, list[Realised]] = defaultdict(list)
    for verdict in verdicts:
        deployment = present.deployment_of.get(verdict.deployment_id)
        change = None if deployment is None else _realised(verdict, deployment)
        if change is not None:
            changes[verdict.deployment_id].append(change)
    return {key: tuple(realised) for key, realised in changes.items()}


def _realised(verdict: Verdict, present: Deployment) -> Realised | None:
    """Return one change; None where it was not proven, was of more than knobs and version, or was changed since."""
    judged = verdict.judgement
    edits = [edit for edit in verdict.edits if edit.field not in NO_SPEED]
    all_knobs = all(edit.field in knobs() or edit.field == "engine_version" for edit in edits)
    if judged.result not in PROVEN or judged.method != VERIFIED or judged.effect is None or not edits or not all_knobs:
        return None
    if any(plain(attrgetter(edit.field)(present)) != edit.after for edit in edits):
        return None
    low, likely, high = judged.effect
    source = f"the receipt of its change of {format_utc(verdict.changed_ts)}"
    values_before = tuple((edit.field, edit.before) for edit in edits)
    return Realised(values_before, (1 + low, 1 + likely, 1 + high), source)
