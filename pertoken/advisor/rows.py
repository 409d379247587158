"""Recommendations of a run: priced results of each rule for each target, in batches."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from pertoken.advisor.leaving import Departure, best_by_service, departure
from pertoken.advisor.nature import FLEET, Target
from pertoken.advisor.present import Present
from pertoken.advisor.pricing import Priced, Pricing, Proposed, TargetOutcome
from pertoken.advisor.worker.child import trace
from pertoken.advisor.worker.inputs import Measured, SubjectKey
from pertoken.advisor.worker.run import Call, RuleInfo, RuleRun
from pertoken.evidence import EPOCHS, Epoch, Evidence
from pertoken.metrics import SERIES, label_of
from pertoken.proof.recommendation import EvidenceLine, Recommendation, State, identity
from pertoken.rule import InvalidEdit, subject_key
from pertoken.window.progress import TICK_S, Progress

T = TypeVar("T")

MAX_EVIDENCE = 200
"""Maximum series that a recommendation lists: a rule over a fleet may read thousands, which nobody reads."""
MAX_TOGETHER = 2048
"""Maximum changed deployments and services in one forecast batch, so that progress is visible: a batch takes about a
second. A quarter of it takes 4 % more time in all."""


@dataclass(frozen=True, slots=True)
class PricedRun:
    """Recommendations of each call of a rule."""

    rows: Sequence[Sequence[Recommendation]]
    departures: Sequence[Departure]
    """Those of each service that save most."""
    seconds: float
    """Time to make them."""


def priced_runs(runs: Sequence[RuleRun], gathered: Present, progress: Progress) -> list[PricedRun]:
    """Make the rows of each rule."""
    total = sum(len(run.calls) for run in runs)
    pricer = _Pricer(gathered, lambda done: progress("pricing", min(1.0, done / max(1, total))))
    priced = []
    for run in runs:
        began = time.monotonic()
        rows, departures = list(pricer.rows(run)), tuple(best_by_service(pricer.departures).values())
        priced.append(PricedRun(rows, departures, time.monotonic() - began))
    return priced


class _Pricer:
    """Makes rows from the results of rules, and reports progress."""

    def __init__(self, gathered: Present, report: Callable[[float], None]) -> None:
        """`report` is called with the number of priced calls."""
        self._pricing = Pricing(gathered, gathered.context, self._within_batch)
        self._measured = gathered.measured
        self._report = report
        self._done, self._batch = 0, 0
        self._reported = 0.0
        self.departures: list[Departure] = []
        """Those of the last rule."""

    def rows(self, run: RuleRun) -> Iterator[list[Recommendation]]:
        """Yield the rows of one rule, call by call. A call that cannot be priced becomes a FAILED row."""
        self.departures = []
        for together in self._batches(run.rule.rule_id, run.calls):
            self._prepare(
                self._pricing.prepare, [proposed for _, proposed in together if isinstance(proposed, Proposed)]
            )
            priced = self._priced(together)
            self.departures += self._departures(run.rule.rule_id, (result for _, result in priced))
            self._prepare(self._pricing.prepare_shown, [result for _, result in priced if isinstance(result, Priced)])
            for call, result in priced:
                yield self._rows(run.rule, call, result)
                self._within_batch(0.0)

    def _batches(self, rule_id: str, calls: Iterable[Call]) -> Iterator[Sequence[tuple[Call, Proposed | str | None]]]:
        """Yield calls in batches, each with its proposals, or the error that prevents pricing."""
        batch: list[tuple[Call, Proposed | str | None]] = []
        count = 0
        for call in calls:
            self._within_batch(0.0)
            proposed = self._proposed(rule_id, call)
            batch.append((call, proposed))
            count += proposed.size if isinstance(proposed, Proposed) else 0
            if count >= MAX_TOGETHER:
                yield batch
                batch, count = [], 0
        yield batch

    def _proposed(self, rule_id: str, call: Call) -> Proposed | str | None:
        """Return the proposals of a call, or its error; None for a blocked rule."""
        if call.blocked is not None or call.failed is not None:
            return call.failed
        try:
            return self._pricing.proposed(rule_id, call.target, json.loads(call.yielded))
        except Exception as error:  # only this target fails: the others are still priced
            return _failure(error)

    def _priced(self, together: Sequence[tuple[Call, Proposed | str | None]]) -> list[tuple[Call, Priced | str | None]]:
        """Return each call with its priced proposals, or with the error that prevents that."""
        self._batch = len(together)
        results = iter(self._pricing.priced([proposed for _, proposed in together if isinstance(proposed, Proposed)]))
        priced: list[tuple[Call, Priced | str | None]] = []
        for call, proposed in together:
            result = next(results) if isinstance(proposed, Proposed) else proposed
            priced.append((call, trace(result) if isinstance(result, Exception) else result))
        self._done, self._batch = self._done + len(together), 0
        return priced

    def _departures(self, rule_id: str, results: Iterable[Priced | str | None]) -> Iterator[Departure]:
        for priced in (result for result in results if isinstance(result, Priced)):
            for possible, money in (*chain.from_iterable(priced.kept.values()), *priced.worthless):
                if leaving := departure(rule_id, possible, money, self._pricing.gathered.fleet):
                    yield leaving

    def _prepare(self, forecast: Callable[[Sequence[T]], None], together: Sequence[T]) -> None:
        """Forecast several targets in one batch; if that fails, each alone, so that one error affects one row."""
        try:
            forecast(together)
        except Exception:
            for item in together if len(together) > 1 else ():
                self._prepare(forecast, [item])

    def _within_batch(self, share: float) -> None:
        if (now := time.monotonic()) - self._reported >= TICK_S:
            self._reported = now
            self._report(self._done + share * self._batch)

    def _rows(self, rule: RuleInfo, call: Call, priced: Priced | str | None) -> list[Recommendation]:
        own = self._pricing.target(call.target)
        if call.blocked is not None:
            series, remedy = call.blocked
            reason = f"{label_of(series)} was not measured"
            return [self._base(rule, call, own, state=State.BLOCKED, reason=reason, remedy=remedy)]
        failed = priced if isinstance(priced, str) else None
        if isinstance(priced, Priced):
            try:
                results = self._pricing.outcomes(priced)
            except Exception as error:  # only this proposal fails: the others are still priced
                failed = _failure(error)
            else:
                return [self._row(rule, call, target, result) for target, result in results.items()]
        assert failed is not None
        remedy = "The rule itself is broken: report it to its author."
        return [self._base(rule, call, own, state=State.FAILED, reason=failed, remedy=remedy)]

    def _row(self, rule: RuleInfo, call: Call, target: Target, outcome: TargetOutcome) -> Recommendation:
        base = partial(
            self._base, rule, call, target, refusals=tuple(outcome.refusals), ignored=outcome.ignored
        )  # and not `replace`, which makes another row
        if not outcome.variants:
            return base(reason="; ".join(dict.fromkeys(refusal.reason for refusal in outcome.refusals)))
        variants = tuple(outcome.variants)
        return base(state=State.OPEN, title=variants[0].title, reason=rule.title, variants=variants)

    def _base(self, rule: RuleInfo, call: Call, target: Target, **result: Any) -> Recommendation:
        now_ts, gathered = self._pricing.context.now_ts, self._pricing.gathered
        measured = self._measured if rule.window_s is None else gathered.windows.get(rule.window_s, self._measured)
        result = {"state": State.REFUSED, "title": rule.title} | result
        return Recommendation(
            recommendation_id=identity(rule.rule_id, target.kind, target.key),
            rule_id=rule.rule_id,
            target=target.label,
            target_kind=target.kind,
            target_key=target.key,
            deployment_id=int(target.key) if target.kind == "deployment" else None,
            evidence=_evidence(call, target, gathered, measured),
            window_s=rule.window_s or gathered.window_s,
            owner=_owner(target, gathered),
            prices=_prices(target, gathered),
            output=call.output,
            created_ts=now_ts,
            updated_ts=now_ts,
            **result,
        )


def _owner(target: Target, gathered: Present) -> str | None:
    """Return the owner of the service that a target is or serves; None where nobody is named."""
    if target.kind == "deployment":
        names = [name for name, _ in gathered.fleet.deployment(int(target.key)).serves]
    else:
        names = [target.key] if target.kind == "service" else []
    return next((gathered.owners[name] for name in names if name in gathered.owners), None)


def _prices(target: Target, gathered: Present) -> tuple[str, ...]:
    """Return the present prices of the devices of a target; none for the fleet."""
    fleet = gathered.fleet
    device_ids: Iterable[int] = ()
    if target.kind == "host":
        device_ids = fleet.host(int(target.key)).device_ids
    elif target.kind == "deployment":
        device_ids = fleet.deployment(int(target.key)).device_ids
    elif target.kind == "service":
        device_ids = [
            device_id for replica in fleet.service(target.key).deployments for device_id in replica.device_ids
        ]
    texts = (gathered.price_texts[device_id] for device_id in sorted(device_ids) if device_id in gathered.price_texts)
    return tuple(dict.fromkeys(texts))


def _failure(error: Exception) -> str:
    """Return why a proposal cannot be priced: its error, or the traceback of a defect of this program."""
    return f"{type(error).__name__}: {error}" if isinstance(error, InvalidEdit) else trace(error)


def _evidence(call: Call, target: Target, gathered: Present, known: Measured) -> tuple[EvidenceLine, ...]:
    """Return a line for each series that the rule read of a target or its parts, with gathered values.

    Of more than `MAX_EVIDENCE` series, a last line counts the others.
    """
    own = None if call.target is None else subject_key(call.target)
    is_part = _parts_of(target, gathered)
    read = [(subject, names) for subject, names in call.read if subject is None or is_part(subject)]
    listed = islice(((subject, name) for subject, names in read for name in names), MAX_EVIDENCE)
    lines = [
        line
        for subject, name in listed
        for line in _lines(
            f"{_name(subject, gathered)}: " if subject is not None else "",
            name,
            known.get(subject or own or ("", "")) or Evidence({}),
        )
    ]
    if (more := sum(len(names) for _, names in read) - MAX_EVIDENCE) > 0:
        lines.append(EvidenceLine("more that the rule read", "series", None, None, None, more, "not listed"))
    return tuple(lines)


def _parts_of(target: Target, gathered: Present) -> Callable[[SubjectKey], bool]:
    """Return a function that returns whether a subject is a target or a part of it."""
    if target == FLEET:
        return lambda subject: True
    if target.kind == "host":
        host = gathered.fleet.host(int(target.key))
        of_host = {("host", host.host_id), *(("device", device_id) for device_id in host.device_ids)}
        return lambda subject: subject in of_host
    deployments = gathered.fleet.service(target.key).deployments if target.kind == "service" else ()
    ids = {deployment.deployment_id for deployment in deployments}
    return lambda subject: str(subject[1]) == target.key or (subject[0] == "deployment" and subject[1] in ids)


def _name(subject: SubjectKey, gathered: Present) -> str:
    _, key = subject
    return key if isinstance(key, str) else gathered.names.get(key, str(key))


def _lines(prefix: str, name: str, evidence: Evidence) -> Iterable[EvidenceLine]:
    """Return the line of a series, or one for each earlier epoch."""
    if name == EPOCHS:
        return [_epoch_line(prefix, peek_epoch) for peek_epoch in evidence.peek_epochs()]
    return [_line(prefix + name, name, evidence)]


def _epoch_line(prefix: str, epoch: Epoch) -> EvidenceLine:
    """Return the line that compares device time per token now with an earlier epoch."""
    ended = datetime.fromtimestamp(epoch.end, UTC).date()
    label = f"{prefix}device time per token, now over {epoch.engine_version or 'the epoch'} until {ended}"
    against = epoch.present
    if against.ratio is None:
        return EvidenceLine(label, "ratio", None, None, None, 0, None, missing=against.reason)
    low, likely, high = against.ratio
    origin = f"matched hours, 90 % interval {low:.3g} to {high:.3g}"
    return EvidenceLine(label, "ratio", likely, None, None, against.matched_hours, origin)


def _line(label: str, name: str, evidence: Evidence) -> EvidenceLine:
    spec = SERIES[name]
    measured = evidence.peek(name)
    if measured is None:
        return EvidenceLine(label, spec.unit, None, None, None, 0, None, missing=spec.remedy)
    return EvidenceLine(label, spec.unit, measured.mean, measured.p50, measured.p95, measured.n, measured.origin)
