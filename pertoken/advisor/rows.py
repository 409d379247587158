"""Rows of a run: what each rule returned for each target, priced, many side by side and half of them in a fork."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from pertoken.advisor.forked import Forked, can_fork
from pertoken.advisor.nature import FLEET, Target
from pertoken.advisor.present import Present
from pertoken.advisor.pricing import Priced, Pricing, Proposed, TargetOutcome
from pertoken.advisor.worker.inputs import Inputs, Measured, SubjectKey
from pertoken.advisor.worker.messages import trace
from pertoken.advisor.worker.run import Call, RuleInfo, RuleRun
from pertoken.evidence import EPOCHS, Epoch, Evidence
from pertoken.forecast.second_opinion.opinion import Opinion
from pertoken.metrics import SERIES
from pertoken.proof.recommendation import EvidenceLine, Recommendation, State, identity
from pertoken.rule import InvalidEdit, subject_key
from pertoken.state.service import Service
from pertoken.window.progress import TICK_S, Progress

T = TypeVar("T")

MIN_SHARED = 400
"""Calls of rules from which a fork prices half of them."""
FLEET_WORK = 0.1
"""Work of the calls over the fleet, for each of its deployments, where that of a deployment's own is 1: measured."""
SERVICE_WORK = 5.0
"""Work of the calls for one service beside that of its deployments: measured."""
MAX_TOGETHER = 512
"""Changed deployments and services, of all proposals, from which no more are forecast together: progress is seen."""


@dataclass(frozen=True, slots=True)
class PricedRun:
    """The rows of each call of a rule."""

    rows: Sequence[Sequence[Recommendation]]
    seconds: float
    """What making them took, of both processes."""


def priced_runs(
    runs: Sequence[RuleRun], gathered: Present, opinion: Opinion | None, inputs: Inputs, progress: Progress
) -> list[PricedRun]:
    """Make the rows of each rule; many calls are shared with a fork, each service with its deployments in one half."""
    total = sum(len(run.calls) for run in runs)

    def priced(halves: Sequence[RuleRun], report: Callable[[float], None]) -> list[PricedRun]:
        pricer = _Pricer(gathered, opinion, inputs, report)
        priced_runs = []
        for run in halves:
            began = time.monotonic()
            priced_runs.append(PricedRun(list(pricer.rows(run)), time.monotonic() - began))
        return priced_runs

    def show(done: float) -> None:
        progress("pricing", min(1.0, done / max(1, total)))

    if opinion is not None or total < MIN_SHARED or not can_fork():
        return priced(runs, show)
    half_of = _halves(gathered)
    chosen = [[half_of(call) for call in run.calls] for run in runs]
    ours, theirs = (
        [
            replace(run, calls=[call for call, of in zip(run.calls, halves, strict=True) if of == half])
            for run, halves in zip(runs, chosen, strict=True)
        ]
        for half in (0, 1)
    )
    with Forked(lambda report: priced(theirs, lambda done: report(int(done)))) as other:
        our_runs = priced(ours, lambda done: show(done + other.done))
        their_runs = other.result(lambda: show(sum(len(run.calls) for run in ours) + other.done), TICK_S)
    merged = []
    for halves, one, two in zip(chosen, our_runs, their_runs, strict=True):
        rows = iter(one.rows), iter(two.rows)
        merged.append(PricedRun([next(rows[half]) for half in halves], one.seconds + two.seconds))
    return merged


def _halves(gathered: Present) -> Callable[[Call], int]:
    """Return what assigns calls to one of two halves of about equal work.

    Forecasts of a deployment serve many proposals: those of a service, and those over the fleet, stay together.
    """
    work = [len(gathered.fleet.deployments) * FLEET_WORK, 0.0]
    half: dict[str, int] = {}
    for service in sorted(gathered.fleet.services, key=lambda service: (-len(service.deployments), service.name)):
        half[service.name] = lighter = work.index(min(work))
        work[lighter] += len(service.deployments) + SERVICE_WORK
    listed_by = gathered.fleet.listed_by

    def of(call: Call) -> int:
        if isinstance(call.target, Service):
            return half[call.target.name]
        return 0 if call.target is None else half[listed_by[call.target.deployment_id][0]]

    return of


class _Pricer:
    """Makes rows of what rules returned, and reports how many are done."""

    def __init__(
        self,
        gathered: Present,
        opinion: Opinion | None,
        inputs: Inputs,
        report: Callable[[float], None],
    ) -> None:
        """`report` is called with how many calls are priced."""
        self._pricing = Pricing(gathered, replace(gathered.context, opinion=opinion), self._within_target)
        self._inputs = inputs
        self._report = report
        self._done = 0
        self._reported = 0.0

    def rows(self, run: RuleRun) -> Iterator[list[Recommendation]]:
        """Yield the rows of one rule, call by call. What cannot be priced is a row too, whatever it raises."""
        for together in self._batches(run.rule.rule_id, run.calls):
            self._prepare(
                self._pricing.prepare, [proposed for _, proposed in together if isinstance(proposed, Proposed)]
            )
            priced = []
            for call, proposed in together:
                priced.append((call, self._priced(proposed) if isinstance(proposed, Proposed) else proposed))
                self._done += 1
                self._within_target(0.0)
            self._prepare(self._pricing.prepare_shown, [result for _, result in priced if isinstance(result, Priced)])
            for call, result in priced:
                yield self._rows(run.rule, call, result)
                self._within_target(0.0)

    def _batches(self, rule_id: str, calls: Iterable[Call]) -> Iterator[Sequence[tuple[Call, Proposed | str | None]]]:
        """Yield calls with what they propose, or why that is nothing that can be priced, some at a time."""
        batch: list[tuple[Call, Proposed | str | None]] = []
        count = 0
        for call in calls:
            self._within_target(0.0)
            proposed = self._proposed(rule_id, call)
            batch.append((call, proposed))
            count += proposed.size if isinstance(proposed, Proposed) else 0
            if count >= MAX_TOGETHER:
                yield batch
                batch, count = [], 0
        yield batch

    def _proposed(self, rule_id: str, call: Call) -> Proposed | str | None:
        """Return what a call proposes, or what failed; None for a rule that was blocked."""
        if call.blocked is not None or call.failed is not None:
            return call.failed
        try:
            return self._pricing.proposed(rule_id, call.target, json.loads(call.yielded))
        except Exception as error:  # of this target: the others are priced all the same
            return _failure(error)

    def _priced(self, proposed: Proposed) -> Priced | str:
        """Return the priced proposals of a target, or what failed."""
        try:
            return self._pricing.priced(proposed)
        except Exception as error:  # of this target: the others are priced all the same
            return trace(error)

    def _prepare(self, forecast: Callable[[Sequence[T]], None], together: Sequence[T]) -> None:
        """Forecast several targets side by side; one that cannot be forecast must not cost the others their row."""
        try:
            forecast(together)
        except Exception:
            for item in together if len(together) > 1 else ():
                self._prepare(forecast, [item])

    def _within_target(self, share: float) -> None:
        if (now := time.monotonic()) - self._reported >= TICK_S:
            self._reported = now
            self._report(self._done + share)

    def _rows(self, rule: RuleInfo, call: Call, priced: Priced | str | None) -> list[Recommendation]:
        own = self._pricing.target(call.target)
        if call.blocked is not None:
            series, remedy = call.blocked
            row = self._base(rule, call, own)
            return [replace(row, state=State.BLOCKED, reason=f"{series} was not measured", remedy=remedy)]
        failed = priced if isinstance(priced, str) else None
        if isinstance(priced, Priced):
            try:
                results = self._pricing.outcomes(priced)
            except Exception as error:  # of this proposal: the others are priced all the same
                failed = _failure(error)
            else:
                return [self._row(rule, call, target, result) for target, result in results.items()]
        assert failed is not None
        remedy = "The rule itself is broken: report it to its author."
        return [replace(self._base(rule, call, own), state=State.FAILED, reason=failed, remedy=remedy)]

    def _row(self, rule: RuleInfo, call: Call, target: Target, outcome: TargetOutcome) -> Recommendation:
        base = replace(self._base(rule, call, target), refusals=tuple(outcome.refusals), ignored=outcome.ignored)
        if not outcome.variants:
            return replace(base, reason="; ".join(dict.fromkeys(refusal.reason for refusal in outcome.refusals)))
        return replace(base, state=State.OPEN, title=outcome.variants[0].title, variants=tuple(outcome.variants))

    def _base(self, rule: RuleInfo, call: Call, target: Target) -> Recommendation:
        now_ts = self._pricing.context.now_ts
        inputs = self._inputs.over(rule.window_s)
        return Recommendation(
            recommendation_id=identity(rule.rule_id, target.kind, target.key),
            rule_id=rule.rule_id,
            state=State.REFUSED,
            title=rule.title,
            target=target.label,
            target_kind=target.kind,
            target_key=target.key,
            deployment_id=int(target.key) if target.kind == "deployment" else None,
            evidence=_evidence(call, target, self._pricing.gathered, inputs.measured),
            window_s=inputs.window_s,
            output=call.output,
            created_ts=now_ts,
            updated_ts=now_ts,
        )


def _failure(error: Exception) -> str:
    """Return why a proposal cannot be priced: what is wrong with it, or the traceback of a defect of this program."""
    return f"{type(error).__name__}: {error}" if isinstance(error, InvalidEdit) else trace(error)


def _evidence(call: Call, target: Target, gathered: Present, known: Measured) -> tuple[EvidenceLine, ...]:
    """Return a line for each series that was read of a target, or of what it consists of, as it was gathered."""
    own = None if call.target is None else subject_key(call.target)
    return tuple(
        line
        for subject, names in call.read
        if subject is None or _part_of(subject, target, gathered)
        for name in names
        for line in _lines(
            f"{_name(subject, gathered)}: " if subject is not None else "",
            name,
            known.get(subject or own or ("", ""), Evidence({})),
        )
    )


def _part_of(subject: SubjectKey, target: Target, gathered: Present) -> bool:
    kind, key = subject
    if target == FLEET:
        return True
    if target.kind == "host":
        host = gathered.fleet.host(int(target.key))
        return subject == ("host", host.host_id) or (kind == "device" and key in host.device_ids)
    deployments = gathered.fleet.service(target.key).deployments if target.kind == "service" else ()
    ids = {deployment.deployment_id for deployment in deployments}
    return str(key) == target.key or (kind == "deployment" and key in ids)


def _name(subject: SubjectKey, gathered: Present) -> str:
    _, key = subject
    return key if isinstance(key, str) else gathered.names.get(key, str(key))


def _lines(prefix: str, name: str, evidence: Evidence) -> Iterable[EvidenceLine]:
    """Return the line of a series, or one for each earlier epoch."""
    if name == EPOCHS:
        return [_epoch_line(prefix, peek_epoch) for peek_epoch in evidence.peek_epochs()]
    return [_line(prefix + name, name, evidence)]


def _epoch_line(prefix: str, epoch: Epoch) -> EvidenceLine:
    """Return what a token costs now over what it cost in an earlier epoch, by the hours that match."""
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
