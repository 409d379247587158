"""The receipt of a change, its question and their JSON: promised and realised saving, and every checkable input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import pertoken
from pertoken.proof.verification.estimate import EffectVerdict, HeldOut, Interval, Placebo
from pertoken.proof.verification.guard import Guard, SignalChange, guard
from pertoken.proof.verification.question import (
    FIRST,
    METHODS,
    PRESENT,
    Covariate,
    Cycle,
    Event,
    EventKind,
    Method,
    Outputs,
    Promise,
    Question,
    Signal,
)
from pertoken.proof.verification.verify import Finding, Release, ReleaseQuestion, Served, Span, verify, verify_release
from pertoken.units import HOUR_MS, HOURS_PER_MONTH
from pertoken.window.columns import Floats
from pertoken.window.epochs import OutputCounts
from pertoken.window.like_for_like import HourlyOutcomes

_COLUMNS = ("device_s_per_token", "tokens_per_s", "generated_share", "cached_share")
_LATER_COLUMNS = ("tokens_per_request", "prompt_spread", "generated_spread", "started_ts")
"""Columns that older receipts lack."""


def to_json(question: Question | ReleaseQuestion) -> str:
    """Return a question as JSON; equal questions have equal text."""
    values = _release(question) if isinstance(question, ReleaseQuestion) else _question(question)
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _question(question: Question) -> dict[str, Any]:
    outputs = question.outputs
    return {
        **({} if outputs is None else {"outputs": _outputs(outputs)}),
        "deployment": _hours(question.deployment),
        "siblings": [_hours(sibling) for sibling in question.siblings],
        "changed_at": question.changed_at,
        "until": question.until,
        "after_from": question.after_from,
        "promise": None if question.promise is None else asdict(question.promise),
        "events": [asdict(event) for event in question.events],
        "acts_through": sorted(question.acts_through),
        "cycle": asdict(question.cycle),
    }


def _release(question: ReleaseQuestion) -> dict[str, Any]:
    served = question.served
    return {
        "release": asdict(question.release),
        "served": None if served is None else {"ts": served.ts.tolist(), "tokens_per_s": served.tokens_per_s.tolist()},
        "changed_at": question.changed_at,
        "until": question.until,
        "nano_usd_per_hour": question.nano_usd_per_hour,
        "cycle": asdict(question.cycle),
    }


def from_json(text: str) -> Question | ReleaseQuestion:
    """Return the question that `to_json` wrote. Raises ValueError for text that is none."""
    try:
        values = json.loads(text)
        if "release" in values:
            return _read_release(values)
        promise = values["promise"]
        return Question(
            _outcomes(values["deployment"]),
            values["changed_at"],
            values["until"],
            after_from=values["after_from"],
            siblings=tuple(map(_outcomes, values["siblings"])),
            promise=None if promise is None else Promise(**promise),
            events=tuple(Event(event["ts"], EventKind(event["kind"]), event["text"]) for event in values["events"]),
            acts_through=frozenset(map(Covariate, values["acts_through"])),
            cycle=Cycle(**values["cycle"]),
            outputs=_read_outputs(values["outputs"]) if "outputs" in values else None,  # older receipts have none
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"these are no inputs of a receipt: {error!r}") from None


def _read_release(values: dict[str, Any]) -> ReleaseQuestion:
    served = values["served"]
    return ReleaseQuestion(
        Release(**values["release"]),
        None
        if served is None
        else Served(np.array(served["ts"], np.int64), np.array(served["tokens_per_s"], np.float64)),
        values["changed_at"],
        values["until"],
        values["nano_usd_per_hour"],
        Cycle(**values["cycle"]),
    )


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _hours(hours: HourlyOutcomes) -> dict[str, Any]:
    columns = {name: getattr(hours, name) for name in (*_COLUMNS, *_LATER_COLUMNS)}
    lists = {name: None if values is None else values.tolist() for name, values in columns.items()}
    return {"ts": hours.ts.tolist(), **lists}


def _outcomes(values: dict[str, Any]) -> HourlyOutcomes:
    cost, tokens, generated, cached = (
        None if values[name] is None else np.array(values[name], np.float64) for name in _COLUMNS
    )
    hours = HourlyOutcomes(np.array(values["ts"], np.int64), _known(cost), _known(tokens), _known(generated), cached)
    later: dict[str, Any] = {
        name: np.array(values[name], np.int64 if name == "started_ts" else np.float64)
        for name in _LATER_COLUMNS
        if values.get(name) is not None
    }
    return replace(hours, **later)


def _outputs(outputs: Outputs) -> dict[str, Any]:
    counts = {name: values.tolist() for name, values in outputs.counts.counts.items()}
    return {
        "ts": outputs.counts.ts.tolist(),
        "counts": counts,
        "meant": sorted(outputs.meant),
        "checked": outputs.checked,
    }


def _read_outputs(values: dict[str, Any]) -> Outputs:
    counts = {name: np.array(column, np.float64) for name, column in values["counts"].items()}
    counted = OutputCounts(np.array(values["ts"], np.int64), counts)
    return Outputs(counted, frozenset(map(Signal, values["meant"])), values["checked"])


def _known(values: Floats | None) -> Floats:
    if values is None:
        raise TypeError("a column of hours is missing")
    return values


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
class Price:
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
class Change:
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

    change: Change
    changed_at: int
    made_at: int
    promised: Promise | None
    finding: Finding
    measured_per_mtok: NanoUsd | None
    """Device time saved per 10^6 tokens at the accepted price, 90 % interval. None: not proven, or no price."""
    measured_in_window: NanoUsd | None
    """The same for the tokens of the matched hours."""
    price: Price | None
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
    change: Change,
    made_at: int,
    price: Price | None,
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


def guarded(finding: Finding, guard: Guard | None) -> Finding:
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


def _released(question: ReleaseQuestion, method: Method) -> tuple[Finding, ReleaseFigures]:
    finding, release = verify_release(question, method), question.release
    hourly = question.nano_usd_per_hour
    month = None if hourly is None or finding.verdict not in _RELEASED else hourly * HOURS_PER_MONTH
    usd = None if month is None else NanoUsd(month, month, month)
    figures = ReleaseFigures(release.promised_devices, release.released_devices, finding.served, usd)
    return Finding(finding.verdict, finding.code, finding.reason), figures


def to_dict(receipt: Receipt) -> dict[str, Any]:
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


def _canonical(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _measured(finding: Finding, price: Price | None) -> NanoUsd | None:
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
        change = values["change"]
        change["estimated_per_month"] = _optional(NanoUsd, change["estimated_per_month"])
        values["change"] = Change(**{**change, "moving": tuple(change.get("moving", ()))})
        values.setdefault("method", _unnumbered(values["finding"]))
        if values["method"] not in METHODS:
            raise ValueError(f"this receipt is of a newer method of verification, number {values['method']}")
        values["finding"] = _finding(values["finding"])
        for name, kind in _TYPES.items():
            values[name] = _optional(kind, values.get(name))  # older receipts know neither release nor trial
        for name, interval in (("release", "served"), ("trial", "saving_90")):
            if (read := values[name]) is not None:
                values[name] = replace(read, **{interval: _optional(Interval, getattr(read, interval))})
        if (release := values["release"]) is not None:
            values["release"] = replace(release, measured_per_month=_optional(NanoUsd, release.measured_per_month))
        return Receipt(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no receipt: {error!r}") from None


_TYPES: Mapping[str, Callable[..., Any]] = {
    "promised": Promise,
    "price": Price,
    "measured_per_mtok": NanoUsd,
    "measured_in_window": NanoUsd,
    "service_before": ServiceLevel,
    "service_after": ServiceLevel,
    "objectives": ServiceLevel,
    "release": ReleaseFigures,
    "trial": TrialFigures,
}
_FINDING_TYPES: Mapping[str, Callable[..., Any]] = {
    "saving_90": Interval,
    "saving_80": Interval,
    "before": Span,
    "after": Span,
    "held_out": HeldOut,
    "placebo": Placebo,
}


def _unnumbered(finding: Mapping[str, Any]) -> int:
    """Return the method of a receipt that does not state its number: the first one knew nothing of moved siblings."""
    return 2 if "siblings_moved" in finding else FIRST.number


def _finding(values: dict[str, Any]) -> Finding:
    for name, kind in _FINDING_TYPES.items():
        values[name] = _optional(kind, values[name])
    values["verdict"] = EffectVerdict(values["verdict"])
    values["guard"] = _optional(_guard, values.get("guard"))  # older receipts have none
    values["explained"] = tuple((Covariate(name), share) for name, share in values["explained"])
    values["events"] = tuple(Event(event["ts"], EventKind(event["kind"]), event["text"]) for event in values["events"])
    values["not_matched"] = tuple(map(Covariate, values["not_matched"]))
    return Finding(**values)


def _guard(signals: list[dict[str, Any]], not_compared: list[list[str]], checked: bool) -> Guard:
    changes = (SignalChange(**{**change, "signal": Signal(change["signal"])}) for change in signals)
    return Guard(tuple(changes), tuple((Signal(name), reason) for name, reason in not_compared), checked)


def _optional(kind: Callable[..., Any], values: dict[str, Any] | None) -> Any:
    return None if values is None else kind(**values)
