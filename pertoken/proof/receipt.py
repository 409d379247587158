"""The receipt of a change, its question and their JSON: promised and realised saving, and every checkable input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pertoken
from pertoken.proof.recommendation import read_record
from pertoken.proof.verification.estimate import EffectVerdict, Interval
from pertoken.proof.verification.guard import Guard, guard
from pertoken.proof.verification.question import (
    FIRST,
    METHODS,
    PRESENT,
    Method,
    Promise,
    Question,
)
from pertoken.proof.verification.verify import (
    ReleaseQuestion,
    VerifiedEffect,
    verify,
    verify_release,
)
from pertoken.units import HOUR_MS, HOURS_PER_MONTH

_WHOLE_NUMBERS = ("ts", "started_ts")
"""Columns of hours that hold no fractions."""


def to_json(question: Question | ReleaseQuestion) -> str:
    """Return a question as JSON; equal questions have equal text."""
    values = asdict(question)
    if (outputs := values.pop("outputs", None)) is not None:
        values["outputs"] = outputs | outputs["counts"]
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_listed)


def _listed(value: NDArray[Any] | frozenset[str]) -> object:
    return sorted(value) if isinstance(value, frozenset) else value.tolist()


def from_json(text: str) -> Question | ReleaseQuestion:
    """Return the question that `to_json` wrote. Raises ValueError for text that is none."""
    try:
        values = json.loads(text)
        if "release" in values:
            served = values["served"]
            return read_record(ReleaseQuestion, values | {"served": served and _arrays(served)})
        values["deployment"] = _arrays(values["deployment"])
        values["siblings"] = [_arrays(sibling) for sibling in values["siblings"]]
        if (outputs := values.get("outputs")) is not None:  # older receipts have none
            counts = {"ts": np.array(outputs.pop("ts"), np.int64), "counts": _arrays(outputs["counts"])}
            values["outputs"] = outputs | {"counts": counts}
        return read_record(Question, values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"these are no inputs of a receipt: {error!r}") from None


def _arrays(columns: Mapping[str, list[float] | None]) -> dict[str, NDArray[Any]]:
    """Return columns as arrays; those that were not measured, and that older receipts lack, are left out."""
    return {
        name: np.array(values, "int64" if name in _WHOLE_NUMBERS else "float64")
        for name, values in columns.items()
        if values is not None
    }


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


FORMAT = 1
"""Of the JSON."""
HOUR_S = HOUR_MS // 1000
_RELEASED = (EffectVerdict.REALIZED, EffectVerdict.PARTIAL)
_COUNTED = (EffectVerdict.REALIZED, EffectVerdict.PARTIAL, EffectVerdict.REGRESSED)


@dataclass(frozen=True, slots=True)
class NanoUsd:
    """Dollars with an interval, in 10^-9 USD. Whether they are measured or estimated is in the field's name."""

    low: int
    likely: int
    high: int


@dataclass(frozen=True, slots=True)
class ReceiptPrice:
    """Price of a device-hour at the time of the change; later changes of price are no saving."""

    nano_usd_per_device_hour: int
    source: str


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Latency and energy of deployments in one window. None: not measured."""

    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    j_per_token: float | None = None


NOT_MEASURED = ServiceLevel()


@dataclass(frozen=True, slots=True)
class ReleaseFigures:
    """Savings of released devices, and whether their service went on."""

    promised_devices: int
    released_devices: int
    served: Interval | None
    """Tokens served after over those expected, 90 % interval; None: not known, or nobody was served."""
    measured_per_month: NanoUsd | None
    """Price of the released devices for 730 hours: exact. None where one of them has none, or nothing is proven."""


@dataclass(frozen=True, slots=True)
class TrialFigures:
    """Result of a trial before the change. Its interval is of minutes and no part of the verified saving."""

    design: str
    minutes: int
    saving_90: Interval


@dataclass(frozen=True, slots=True)
class ReceiptChange:
    """Change that a receipt is about: its edits, the rule that proposed it, and the promise."""

    title: str
    target: str
    """Service or deployment."""
    before: str
    """Previous values, to go back to."""
    rule: str | None = None
    regime: str | None = None
    recommendation: str | None = None
    correction: float = 1.0
    """Ratio that the promise was multiplied by: the track record of its rule then."""
    estimated_per_month: NanoUsd | None = None
    """Estimate that was frozen when it was accepted; it is shown beside the measurement, never added to it."""
    moving: tuple[str, ...] = ()
    """Costs of a change of provider or region that were stated with it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """All of a verification that a reader needs, in plain values."""

    change: ReceiptChange
    changed_at: int
    made_at: int
    promised: Promise | None
    finding: VerifiedEffect
    measured_per_mtok: NanoUsd | None
    """Device time saved per 10^6 tokens at the accepted price, 90 % interval. None: not proven, or no price."""
    measured_in_window: NanoUsd | None
    """The same for the tokens of the matched hours."""
    price: ReceiptPrice | None
    service_before: ServiceLevel
    service_after: ServiceLevel
    objectives: ServiceLevel
    """Limits that were agreed."""
    inputs_sha256: str
    """Of `inputs.to_json` of the question."""
    version: str
    sha256: str = ""
    """Of the JSON of all other fields."""
    release: ReleaseFigures | None = None
    """Of released devices; the finding then holds their verdict, and no device time."""
    trial: TrialFigures | None = None
    method: int = PRESENT.number
    """Number of the method of verification that it was made with."""

    @property
    def objectives_kept(self) -> bool | None:
        """Whether the window after kept the agreed limits; None where there are none, or it was not measured."""
        return kept(self.service_after, self.objectives)

    @property
    def objective_missed_since(self) -> bool:
        """Whether an objective that was kept before the change is missed after it."""
        return self.objectives_kept is False and kept(self.service_before, self.objectives) is not False


def kept(measured: ServiceLevel, agreed: ServiceLevel) -> bool | None:
    """Return whether a window kept the agreed limits; None where there are none, or it was not measured."""
    pairs = (measured.ttft_p95_s, agreed.ttft_p95_s), (measured.tpot_p95_s, agreed.tpot_p95_s)
    limited = [(value, limit) for value, limit in pairs if limit is not None]
    if any(value is not None and value > limit for value, limit in limited):
        return False
    return None if not limited or any(value is None for value, _ in limited) else True


def receipt(
    question: Question | ReleaseQuestion,
    change: ReceiptChange,
    made_at: int,
    price: ReceiptPrice | None,
    service: tuple[ServiceLevel, ServiceLevel] = (NOT_MEASURED, NOT_MEASURED),
    objectives: ServiceLevel = NOT_MEASURED,
    trial: TrialFigures | None = None,
    method: Method = PRESENT,
) -> Receipt:
    """Verify a question and return its receipt. `service`: of the windows before and after."""
    released: ReleaseFigures | None = None
    if isinstance(question, ReleaseQuestion):
        finding, released = _released(question, method)
    else:
        finding = guarded(verify(question, method), guard(question))
    per_mtok = _measured(finding, price)
    mtok = finding.matched_mtok or 0.0
    in_window = per_mtok and NanoUsd(
        *(round(nano_usd * mtok) for nano_usd in (per_mtok.low, per_mtok.likely, per_mtok.high))
    )
    unsigned = Receipt(
        change,
        question.changed_at,
        made_at,
        None if isinstance(question, ReleaseQuestion) else question.promise,
        finding,
        per_mtok,
        in_window,
        price,
        *service,
        objectives,
        sha256(to_json(question)),
        pertoken.__version__,
        release=released,
        trial=trial,
        method=method.number,
    )
    return signed(unsigned)


def guarded(finding: VerifiedEffect, guard: Guard | None) -> VerifiedEffect:
    """Return a finding with its guard: where outputs changed, nothing but a loss is proven of its cost."""
    if guard is None or not guard.alarms:
        return replace(finding, guard=guard)
    if guard.checked or finding.verdict is EffectVerdict.REGRESSED:
        return replace(finding, guard=guard, reason="; ".join(filter(None, (finding.reason, guard.sentence))))
    return replace(
        finding, verdict=EffectVerdict.OUTPUT_CHANGED, code="output-changed", reason=guard.sentence, guard=guard
    )


def signed(receipt: Receipt) -> Receipt:
    """Return a receipt with the checksum of its present figures and texts."""
    return replace(receipt, sha256=sha256(_text(receipt)))


def _released(question: ReleaseQuestion, method: Method) -> tuple[VerifiedEffect, ReleaseFigures]:
    finding, release = verify_release(question, method), question.release
    hourly = question.nano_usd_per_hour
    month = None if hourly is None or finding.verdict not in _RELEASED else hourly * HOURS_PER_MONTH
    usd = None if month is None else NanoUsd(month, month, month)
    figures = ReleaseFigures(release.promised_devices, release.released_devices, finding.served, usd)
    return VerifiedEffect(finding.verdict, finding.code, finding.reason), figures


def to_dict(receipt: Receipt) -> dict[str, object]:
    """Return a receipt as plain values, for JSON."""
    return {"format": FORMAT, **asdict(receipt), "objectives_kept": receipt.objectives_kept}


def to_text(receipt: Receipt) -> str:
    """Return a receipt as JSON; equal receipts have equal text."""
    return json.dumps(to_dict(receipt), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)


def is_intact(text: str) -> bool:
    """Return whether the JSON of a receipt still has the hash it was made with."""
    values = json.loads(text)
    stated = values.pop("sha256", None)
    return bool(stated == sha256(_canonical(values)))


def _text(receipt: Receipt) -> str:
    values = to_dict(receipt)
    del values["sha256"]
    return _canonical(values)


def _canonical(values: Mapping[str, object]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _measured(finding: VerifiedEffect, price: ReceiptPrice | None) -> NanoUsd | None:
    saving, later = finding.saving_90, finding.later_s_per_mtok
    if price is None or saving is None or later is None or finding.verdict not in _COUNTED:
        return None
    # Device-seconds after are measured; without the change they would have been 1 / (1 - saving) of them.
    saved_s = (later / (1 - value) - later for value in (saving.low, saving.likely, saving.high))
    return NanoUsd(*(round(seconds / HOUR_S * price.nano_usd_per_device_hour) for seconds in saved_s))


def from_text(text: str) -> Receipt:
    """Return the receipt that `to_text` wrote. Raises ValueError for text that is none."""
    try:
        values = json.loads(text)
        if values.pop("format") != FORMAT:
            raise ValueError("this receipt is of another format")
        del values["objectives_kept"]
        # A receipt without a number is of one of the first methods: the very first knew nothing of moved siblings.
        values.setdefault("method", 2 if "siblings_moved" in values["finding"] else FIRST.number)
        if values["method"] not in METHODS:
            raise ValueError(f"this receipt is of a newer method of verification, number {values['method']}")
        return read_record(Receipt, values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no receipt: {error!r}") from None
