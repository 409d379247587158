"""Receipts in the database, stored with their hours, so that they can be recomputed."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from pertoken.errors import BadInput
from pertoken.proof.receipts.inputs import from_json, sha256, to_json
from pertoken.proof.receipts.receipt import Receipt, from_text, is_intact, receipt, signed, to_text
from pertoken.proof.verification.method import METHODS
from pertoken.proof.verification.question import Question
from pertoken.proof.verification.release import ReleaseQuestion
from pertoken.store import repository

SAME = 1e-9
"""Difference of two figures, relative or absolute, that rounding causes."""
_NO_FIGURES = ("version", "sha256", "inputs_sha256")
"""Fields of a receipt that name what made it, and hashes that are checked before its figures."""


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

    def values(self) -> dict[str, Any]:
        """Return it as JSON values, without its hours."""
        recommendation = _recommendation(self) or None
        return {
            "id": self.full_id,
            "kind": self.kind.value,
            "recommendation": recommendation,
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
            known = self.read()
            if sha256(self.inputs) != known.inputs_sha256:
                return Check(False, False, "the hours stored beside it were altered after it was made")
            again = receipt(
                from_json(self.inputs),
                known.change,
                known.made_at,
                known.price,
                (known.service_before, known.service_after),
                known.objectives,
                known.trial,
                METHODS[known.method],
            )
        except ValueError as error:
            return Check(False, False, str(error))
        stated = {name: value for name, value in json.loads(self.text).items() if name not in _NO_FIGURES}
        if _same(stated, json.loads(to_text(again))):
            return Check(True, True)
        made_by = f": it was made by pertoken {known.version}, this is {again.version}"
        return Check(
            True, False, "the same hours give other figures" + (made_by if again.version != known.version else "")
        )


def of(
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
    return tuple(map(_from_row, repository.receipts(connection, recommendation_id)))


def find(receipts: Iterable[StoredReceipt], prefix: str, where: object) -> StoredReceipt:
    """Return the receipt that the first digits of its id name, or of its recommendation's: the newest of that.

    Raises BadInput if they name none or several.
    """
    wanted = prefix.lower()
    receipts = tuple(receipts)
    own = [stored_receipt for stored_receipt in receipts if wanted and stored_receipt.full_id.startswith(wanted)]
    promised = [
        stored_receipt for stored_receipt in receipts if wanted and _recommendation(stored_receipt).startswith(wanted)
    ]
    if not own and not promised:
        raise BadInput(f"{where}: holds no receipt {prefix!r}; `pertoken receipt` lists what there is")
    if len(own) + len({receipt.recommendation_id for receipt in promised}) > 1:
        raise BadInput(f"{prefix!r} names several receipts or recommendations; give more digits")
    return own[0] if own else max(promised, key=lambda receipt: receipt.created_ts)


def _same(stated: Any, again: Any) -> bool:
    """Return whether every figure that is stated is the same again: older receipts lack what was added since.

    A reason is no figure: later versions word it otherwise. Dollars are equal to the last digit; other numbers may
    differ by what processors round otherwise.
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


def _from_row(row: Any) -> StoredReceipt:
    body = json.loads(row.body)
    return StoredReceipt(
        row.deployment_id,
        row.epoch_id,
        Kind(row.kind),
        body["receipt"],
        body["inputs"],
        row.created_ts,
        row.recommendation_id,
        row.receipt_id,
    )
