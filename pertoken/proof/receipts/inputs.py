"""A question as text, exact to the last bit, so that a receipt can be recomputed from its stored inputs."""

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pertoken.proof.verification.question import (
    Covariate,
    Cycle,
    Event,
    EventKind,
    Outputs,
    Promise,
    Question,
    Signal,
)
from pertoken.proof.verification.release import Release, ReleaseQuestion, Served
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
