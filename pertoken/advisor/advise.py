"""One advice run: gather, run every rule, price what they propose, and keep what is worth a person's time."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from pertoken.advisor.nature import FLEET, Target
from pertoken.advisor.present import Present, present
from pertoken.advisor.pricing import Found, Priced, Pricing, Proposed
from pertoken.advisor.recommendation import EvidenceLine, Recommendation, State
from pertoken.advisor.windows import measured, measured_over
from pertoken.advisor.worker.inputs import Inputs, Measured, SubjectKey
from pertoken.advisor.worker.limits import Limits
from pertoken.advisor.worker.messages import trace
from pertoken.advisor.worker.run import Call, PluginRun, RuleInfo, RuleRun, run_plugins
from pertoken.advisor.worker.source import Source
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.evidence import EPOCHS, Epoch, Evidence
from pertoken.forecast.second_opinion.opinion import KernelTables, Opinion
from pertoken.metrics import SERIES
from pertoken.printable import natural_key
from pertoken.rule import InvalidEdit, subject_key
from pertoken.store.connect.open import Store
from pertoken.store.schema.ids import stable_id
from pertoken.window.progress import TICK_S, Progress, no_progress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """How one rule, or a plugin that could not be loaded, ran."""

    name: str
    """The id of the rule; of a plugin that could not be loaded, its name."""
    origin: str
    """The distribution and version, or the file."""
    confinement: str
    """`confined`, or `not confined` with the reasons."""
    seconds: float | None = None
    """In its worker; None if it did not run."""
    pricing_seconds: float = 0.0
    output: str = ""
    """What the plugin printed and logged while it was loaded."""
    failed: str | None = None
    """The first of its errors."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """How a run went, which differs from run to run: times, and what the kernel allowed."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase: `reading`, `rules` (their workers included) and `pricing`."""
    rules: tuple[RuleRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """The outcome of one run, best first."""

    now_ts: int
    window_s: int
    recommendations: tuple[Recommendation, ...]
    run: RunRecord = field(default_factory=RunRecord)


def advise(
    store: Store,
    sources: Iterable[Source],
    market: Market,
    settings: Settings,
    window_s: int,
    now_ts: int,
    progress: Progress = no_progress,
    *,
    dated: bool = False,
) -> Advice:
    """Run the rules of every source over the window ending at `now_ts`. `progress` is called with each phase.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then.
    Raises StoreError if the database cannot be read, BadInput if the setting for kernel tables names no file; a
    broken rule is a recommendation in state FAILED.
    """
    tables = settings.advisor_kernel_tables
    if tables and not Path(tables).is_file():
        raise BadInput(f"advisor.kernel_tables: {tables}: there is no such file")
    began = time.monotonic()
    gathered = present(store, market, window_s, now_ts, settings, progress, dated=dated)
    reading_s = time.monotonic() - began
    with KernelTables(tables) if tables else nullcontext() as opinion:
        limits = Limits.of_call(settings.advisor_rule_timeout)
        read = cache(partial(measured_over, store=store, gathered=gathered, progress=progress, dated=dated))
        recommendations, run = advice_of(sources, gathered, limits, opinion, progress, read)
    return Advice(now_ts, window_s, recommendations, replace(run, seconds={"reading": reading_s, **run.seconds}))


def advice_of(
    sources: Iterable[Source],
    gathered: Present,
    limits: Limits | None = None,
    opinion: Opinion | None = None,
    progress: Progress = no_progress,
    read: Callable[[int], Measured] | None = None,
) -> tuple[tuple[Recommendation, ...], RunRecord]:
    """Run the rules of every source over what was gathered; recommendations best first.

    `read` returns what was measured in another window, of so many seconds, for rules that look at one; without it they
    are given what was gathered. Prices, demand and forecasts are of what was gathered for every rule.
    """
    began = time.monotonic()
    known = measured(gathered)
    inputs = Inputs(gathered.fleet, gathered.context.market, known, gathered.window_s, read or (lambda _: known))
    plugins = run_plugins(tuple(sources), inputs, limits or Limits(), progress)
    ran = time.monotonic()
    rows: list[Recommendation] = []
    records: list[RuleRecord] = []
    pricer = _Pricer(gathered, opinion, inputs, progress, plugins)
    for plugin in plugins:
        for name, error in plugin.errors:
            rows.append(_failed_load(plugin, name, error, gathered.context.now_ts))
            records.append(_record(plugin, name, failed=error))
        for run in plugin.rules:
            started = time.monotonic()
            priced = list(pricer.rows(run))
            failed = next((each.reason for each in priced if each.state is State.FAILED), None)
            rows += priced
            pricing_s = time.monotonic() - started
            records.append(_record(plugin, run.rule.rule_id, run.seconds, pricing_s, failed))
    seconds = {"rules": ran - began, "pricing": time.monotonic() - ran}
    return tuple(sorted(rows, key=_rank)), RunRecord(seconds, tuple(records))


def _record(
    plugin: PluginRun, name: str, seconds: float | None = None, pricing_s: float = 0.0, failed: str | None = None
) -> RuleRecord:
    return RuleRecord(name, plugin.source.origin, plugin.confinement.label, seconds, pricing_s, plugin.output, failed)


def identity(rule_id: str, target: Target, life: int = 1) -> int:
    """Return the id of a recommendation: of its rule, its target and its life, whatever state it is in."""
    return stable_id("advice", rule_id, target.kind, target.key, life)


def _rank(each: Recommendation) -> tuple[object, ...]:
    order = list(State).index(each.state)
    best = each.best
    monies = (best.bankable, best.capacity) if best else (None, None)
    return (
        order,
        *(-(money[1] if money else 0) for money in monies),
        each.rule_id,
        natural_key(each.target),
        each.target_key,
    )


def _failed_load(plugin: PluginRun, name: str, error: str, now_ts: int) -> Recommendation:
    target = Target("load", "", plugin.source.origin)
    return Recommendation(
        recommendation_id=identity(name, target),
        rule_id=name,
        state=State.FAILED,
        title=f"{name} could not be loaded",
        target=target.label,
        target_kind=target.kind,
        target_key=target.key,
        reason=error,
        remedy="Mend or uninstall the plugin; the other rules ran without it.",
        output=plugin.output,
        created_ts=now_ts,
        updated_ts=now_ts,
    )


MAX_TOGETHER = 512
"""Changed deployments and services, of all proposals, from which no more are forecast together: progress is seen."""


class _Pricer:
    """Makes rows of what rules returned, and reports how many are done."""

    def __init__(
        self,
        gathered: Present,
        opinion: Opinion | None,
        inputs: Inputs,
        progress: Progress,
        plugins: Iterable[PluginRun],
    ) -> None:
        self._pricing = Pricing(gathered, replace(gathered.context, opinion=opinion), self._within_target)
        self._inputs = inputs
        self._progress = progress
        self._total = sum(len(run.calls) for plugin in plugins for run in plugin.rules)
        self._done = 0
        self._reported = 0.0

    def rows(self, run: RuleRun) -> Iterator[Recommendation]:
        """Yield the rows of one rule, target by target. What cannot be priced is a row too, whatever it raises."""
        for together in self._batches(run.rule.rule_id, run.calls):
            self._prepare(self._pricing.prepare, [each for _, each in together if isinstance(each, Proposed)])
            priced = []
            for call, proposed in together:
                priced.append((call, self._priced(proposed) if isinstance(proposed, Proposed) else proposed))
                self._done += 1
                self._within_target(0.0)
            self._prepare(self._pricing.prepare_shown, [each for _, each in priced if isinstance(each, Priced)])
            for call, each in priced:
                yield from self._rows(run.rule, call, each)
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
            for each in together if len(together) > 1 else ():
                self._prepare(forecast, [each])

    def _within_target(self, share: float) -> None:
        if (now := time.monotonic()) - self._reported >= TICK_S:
            self._reported = now
            self._progress("pricing", min(1.0, (self._done + share) / max(1, self._total)))

    def _rows(self, rule: RuleInfo, call: Call, priced: Priced | str | None) -> list[Recommendation]:
        own = self._pricing.target(call.target)
        if call.blocked is not None:
            series, remedy = call.blocked
            row = self._base(rule, call, own)
            return [replace(row, state=State.BLOCKED, reason=f"{series} was not measured", remedy=remedy)]
        failed = priced if isinstance(priced, str) else None
        if isinstance(priced, Priced):
            try:
                results = self._pricing.found(priced)
            except Exception as error:  # of this proposal: the others are priced all the same
                failed = _failure(error)
            else:
                return [self._row(rule, call, target, found) for target, found in results.items()]
        assert failed is not None
        remedy = "The rule itself is broken: report it to its author."
        return [replace(self._base(rule, call, own), state=State.FAILED, reason=failed, remedy=remedy)]

    def _row(self, rule: RuleInfo, call: Call, target: Target, found: Found) -> Recommendation:
        base = replace(self._base(rule, call, target), refusals=tuple(found.refusals), ignored=found.ignored)
        if not found.variants:
            return replace(base, reason="; ".join(dict.fromkeys(each.reason for each in found.refusals)))
        return replace(base, state=State.OPEN, title=found.variants[0].title, variants=tuple(found.variants))

    def _base(self, rule: RuleInfo, call: Call, target: Target) -> Recommendation:
        now_ts = self._pricing.context.now_ts
        inputs = self._inputs.over(rule.window_s)
        return Recommendation(
            recommendation_id=identity(rule.rule_id, target),
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
    ids = {each.deployment_id for each in deployments}
    return str(key) == target.key or (kind == "deployment" and key in ids)


def _name(subject: SubjectKey, gathered: Present) -> str:
    _, key = subject
    return key if isinstance(key, str) else gathered.names.get(key, str(key))


def _lines(prefix: str, name: str, evidence: Evidence) -> Iterable[EvidenceLine]:
    """Return the line of a series, or one for each earlier epoch."""
    if name == EPOCHS:
        return [_epoch_line(prefix, each) for each in evidence.peek_epochs()]
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
