"""One advice run, in its order: load, read, shard, run the rules, price, merge and keep.

The rules are loaded first, in workers, since they declare the windows that are read. This process reads everything in
one transaction. Shards, which are forks of it, measure the load of their services, run rules for them, and price the
proposals; one more shard runs the rules over the fleet. The result does not depend on the number of shards.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import pickle
import select
import signal
import struct
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar

from pertoken.advisor.changes.title import AdviceTarget
from pertoken.advisor.configuration import claim, configuration_of
from pertoken.advisor.leaving import Departure, best_by_service, services_on
from pertoken.advisor.plan.what_if import WhatIf
from pertoken.advisor.present import Present, present
from pertoken.advisor.pricing import (
    PricedCall,
    PricedRun,
    Pricing,
    priced_runs,
)
from pertoken.advisor.proposals import proposal_of
from pertoken.advisor.worker.child import Inputs, PluginSource, RuleLimits, Shard, end_with_parent
from pertoken.advisor.worker.run import PluginRun, RuleInfo, RuleRun, ended, run_plugins
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.printable import natural_key
from pertoken.proof.detection import detect
from pertoken.proof.judging.judge import go_back, judge_changes, read_history
from pertoken.proof.judging.receipts import corrected_by_receipts, read_receipts
from pertoken.proof.recommendation import GO_BACK, LEAVE_HOST, Recommendation, Refusal, State, identity
from pertoken.proof.stored import keep, stored
from pertoken.proof.verdicts import read_verdicts
from pertoken.rule import EFFORTS, RISKS, Proposal, propose, subject_key
from pertoken.savings.saving import LIKELY, Saving
from pertoken.state.deployment import InvalidEdit
from pertoken.state.fleet import Fleet, Host
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository
from pertoken.window.figures import TICK_S, Progress, no_progress, ticking
from pertoken.window.reading import DAY, Window

MIN_SHARD = 100
"""Minimum deployments of a shard: a smaller one costs more in processes than it saves."""


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """Record of the run of one rule, or of a plugin that could not be loaded."""

    name: str
    """Id of the rule, or name of a plugin that could not be loaded."""
    origin: str
    """The distribution and version, or the file."""
    confinement: str
    """`confined`, or `not confined` with the reasons."""
    seconds: float | None = None
    """Run time in its worker, seconds; None if it did not run."""
    pricing_seconds: float = 0.0
    output: str = ""
    """Output and log of the plugin while it was loaded."""
    failed: str | None = None
    """First error of the rule; None if it had none."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Record of a run, with the parts that differ between equal runs: times, and restrictions by the kernel."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase: `reading`, `rules` (with their workers) and `pricing`."""
    rules: tuple[RuleRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """The outcome of one run, best first."""

    now_ts: int
    window_s: int
    recommendations: tuple[Recommendation, ...]
    run: RunRecord = field(default_factory=RunRecord)
    gathered: Present | None = field(default=None, compare=False, repr=False)
    """The fleet and evidence that the rules ran on."""


def advise(
    store: Store,
    sources: Iterable[PluginSource],
    market: Market,
    settings: Settings,
    window_s: int,
    now_ts: int,
    progress: Progress = no_progress,
    *,
    dated: bool = False,
    what_if: WhatIf | None = None,
    shards: int | None = None,
) -> Advice:
    """Run the rules of every source over the window ending at `now_ts`. `progress` is called with each phase.

    With `dated`, `now_ts` is a whole minute in the past and prices and settings are as of then. `what_if`
    replaces measured or configured values. `shards`: their number, by default one for each processor. A broken rule is
    a recommendation in state FAILED. Raises StoreError if the database cannot be read, BadInput if `what_if` names an
    unknown subject.
    """
    assumed = what_if or WhatIf()
    limits = RuleLimits.of_call(settings.advisor_rule_timeout)
    plugins = run_plugins(tuple(sources), None, limits, progress)
    began = time.monotonic()
    gathered = assumed.present(
        present(
            store,
            market,
            window_s,
            now_ts,
            settings,
            progress,
            dated=dated,
            assumed=assumed.prices,
            series_by_window=_series_by_window(plugins, window_s),
        )
    )
    reading_s = time.monotonic() - began
    recommendations, run = _advice(plugins, gathered, limits, progress, shards)
    run = replace(run, seconds={"reading": reading_s, **run.seconds})
    return Advice(now_ts, window_s, recommendations, run, gathered)


def advice_of(
    sources: Iterable[PluginSource],
    gathered: Present,
    limits: RuleLimits | None = None,
    progress: Progress = no_progress,
    shards: int | None = None,
) -> tuple[tuple[Recommendation, ...], RunRecord]:
    """Run the rules of every source over a gathered fleet; return recommendations, best first.

    A rule gets the window of the run where its own was not gathered.
    """
    limits = limits or RuleLimits()
    plugins = run_plugins(tuple(sources), None, limits, progress)
    return _advice(plugins, gathered, limits, progress, shards)


# -- read ----------------------------------------------------------------------------------------------------------
def _series_by_window(plugins: Sequence[PluginRun], window_s: int) -> dict[int, Collection[str] | None]:
    """Return the series that rules read in other windows than the run's, by length in seconds."""
    series: dict[int, Collection[str] | None] = {}
    for rule in (run.rule for plugin in plugins for run in plugin.rules):
        if rule.window_s is not None and rule.window_s != window_s:
            required = series.get(rule.window_s, ())
            series[rule.window_s] = None if required is None or rule.series is None else {*required, *rule.series}
    return dict(sorted(series.items()))


# -- shard ---------------------------------------------------------------------------------------------------------
def shards_of(fleet: Fleet, count: int) -> tuple[Shard, ...]:
    """Return a shard for the rules over the fleet and `count` shards of about as many deployments each.

    A count of 1 is one shard of everything.
    """
    if count <= 1:
        return (Shard(),)
    names: list[set[str]] = [set() for _ in range(count)]
    sizes = [0] * count
    for service in sorted(fleet.services, key=lambda service: (-len(service.deployments), service.name)):
        smallest = sizes.index(min(sizes))
        names[smallest].add(service.name)
        sizes[smallest] += len(service.deployments)
    return Shard(frozenset(), fleet=True), *(Shard(frozenset(shard), fleet=False) for shard in names if shard)


def _advice(
    plugins: Sequence[PluginRun],
    gathered: Present,
    limits: RuleLimits,
    progress: Progress,
    shards: int | None,
) -> tuple[tuple[Recommendation, ...], RunRecord]:
    began = time.monotonic()
    count = min(processors(), len(gathered.fleet.deployments) // MIN_SHARD) if shards is None else shards
    works = [partial(_of_shard, plugins, gathered, shard, limits) for shard in shards_of(gathered.fleet, count)]
    priced = in_forks(works, progress)
    recommendations, records = _merged(plugins, priced, gathered)
    rules = chain.from_iterable(chain.from_iterable(priced))
    together = leave_hosts((leaving for rule in rules for leaving in rule.departures), gathered)
    pricing_s = sum(record.pricing_seconds for record in records) / len(works)
    seconds = {"rules": time.monotonic() - began - pricing_s, "pricing": pricing_s}
    return tuple(sorted((*recommendations, *together), key=rank)), RunRecord(seconds, records)


def _of_shard(
    plugins: Sequence[PluginRun],
    gathered: Present,
    shard: Shard,
    limits: RuleLimits,
    progress: Progress,
) -> list[list[PricedRun]]:
    """Measure the load of the targets of a shard, run the rules for them, and price the proposals.

    Return each rule of each plugin.
    """
    inputs = Inputs(gathered.fleet, gathered.context.market, gathered.measured, gathered.windows, shard)
    _measure(gathered, inputs, progress)
    runs = _run_rules(plugins, inputs, limits, progress)
    priced = iter(priced_runs([*chain.from_iterable(runs)], inputs, gathered, progress))
    return [[next(priced) for _ in runs_of_plugin] for runs_of_plugin in runs]


def _measure(gathered: Present, inputs: Inputs, progress: Progress) -> None:
    """Measure the load and the arrivals of the deployments and services of a shard, with the series of most rules.

    Rules run in forks of this process: series computed here are computed once for all of them.
    """
    subjects = [subject_key(target) for scope in ("deployment", "service") for target in inputs.targets(scope)]
    for subject in ticking(subjects, len(subjects), "measuring loads", progress):
        if subject in inputs.measured:
            gathered.context.forecasts.measure(inputs.measured[subject])


# -- rules ---------------------------------------------------------------------------------------------------------
def _run_rules(
    plugins: Sequence[PluginRun], inputs: Inputs, limits: RuleLimits, progress: Progress
) -> list[list[RuleRun]]:
    """Run the loaded rules for the targets of a shard; return each rule of each plugin."""
    is_due = [any(inputs.targets(run.rule.scope) for run in plugin.rules) for plugin in plugins]
    sources = [plugin.source for plugin, due in zip(plugins, is_due, strict=True) if due]
    again = iter(run_plugins(sources, inputs, limits, progress))
    results = [next(again) if due else plugin for plugin, due in zip(plugins, is_due, strict=True)]
    return [
        [_run_of(run.rule, result, inputs) for run in plugin.rules]
        for plugin, result in zip(plugins, results, strict=True)
    ]


def _run_of(rule: RuleInfo, plugin: PluginRun, inputs: Inputs) -> RuleRun:
    """Return the run of a rule, failed if its plugin has no such rule when it is loaded again."""
    targets = inputs.targets(rule.scope)
    same = next((run for run in plugin.rules if run.rule == rule), None)
    if not targets:
        return RuleRun(rule)
    if same is not None:
        return same
    reason = next((error for _, error in plugin.errors), "the rule differs when its file is loaded again")
    return RuleRun(rule, [ended(rule, targets[0], reason, inputs, plugin.output)])


# -- merge ---------------------------------------------------------------------------------------------------------
def _merged(
    plugins: Sequence[PluginRun], shards: Sequence[list[list[PricedRun]]], gathered: Present
) -> tuple[tuple[Recommendation, ...], tuple[RuleRecord, ...]]:
    rows: list[Recommendation] = []
    records: list[RuleRecord] = []
    for plugin, of_plugin in zip(plugins, zip(*shards, strict=True), strict=True):
        for name, error in plugin.errors:
            rows.append(_failed_load(plugin, name, error, gathered.context.now_ts))
            records.append(_record(plugin, name, failed=error))
        for run, of_rule in zip(plugin.rules, zip(*of_plugin, strict=True), strict=True):
            rows_of_rule = [row for call in _until_ended(of_rule) for row in call.rows]
            failed = next((row.reason for row in rows_of_rule if row.state is State.FAILED), None)
            seconds, pricing_s = (
                sum(getattr(priced, name) for priced in of_rule) for name in ("seconds", "pricing_seconds")
            )
            rows += rows_of_rule
            records.append(_record(plugin, run.rule.rule_id, seconds, pricing_s, failed))
    return tuple(_restart_first(rows, gathered.fleet)), tuple(records)


def _restart_first(rows: Sequence[Recommendation], fleet: Fleet) -> Iterator[Recommendation]:
    """Yield recommendations; refuse changes of services where every replica has to be restarted first."""
    restarts = [
        (int(edit.target), row)
        for row in rows
        for edit in (row.best.edits if row.best is not None else ())
        if edit.field == "restart"
    ]
    restarted = {deployment_id for deployment_id, _ in restarts}
    down = {
        f"service:{service.name}"
        for service in fleet.services
        if service.deployments and all(replica.deployment_id in restarted for replica in service.deployments)
    }
    first = {row.recommendation_id for _, row in restarts}
    for row in rows:
        if row.state is not State.OPEN or row.recommendation_id in first or not (hit := sorted(row.targets & down)):
            yield row
            continue
        reason = f"{hit[0].partition(':')[2]} is down: restart it first"
        refusals = (*row.refusals, Refusal("down", reason))
        yield replace(
            row, state=State.REFUSED, title=row.reason or row.title, reason=reason, variants=(), refusals=refusals
        )


def _until_ended(shards: Iterable[PricedRun]) -> Iterator[PricedCall]:
    """Yield the calls of a rule in the order of its targets, up to the first that ended it, as in a single shard."""
    for call in sorted(chain.from_iterable(shard.calls for shard in shards), key=lambda call: call.position):
        yield call
        if call.ended:
            return


def _record(
    plugin: PluginRun, name: str, seconds: float | None = None, pricing_s: float = 0.0, failed: str | None = None
) -> RuleRecord:
    return RuleRecord(name, plugin.source.origin, plugin.confinement.label, seconds, pricing_s, plugin.output, failed)


def rank(recommendation: Recommendation) -> tuple[object, ...]:
    """Return the sort key of a recommendation: by state, then the largest sure saving first.

    Recommendations without a saving are sorted by the bill that falls if confirmed, then by least risk and effort,
    then by capacity if confirmed.
    """
    order = list(State).index(recommendation.state)
    best = recommendation.best
    unpriced = (0, 0, 0)
    if best and best.saving is None:
        capacity = (best.if_confirmed or Saving()).capacity[LIKELY]
        unpriced = RISKS.index(best.risk), EFFORTS.index(best.effort), -capacity
    return (
        order,
        tuple(-dollars for dollars in recommendation.rank),
        *unpriced,
        recommendation.rule_id,
        natural_key(recommendation.target),
        recommendation.target_key,
    )


def _failed_load(plugin: PluginRun, name: str, error: str, now_ts: int) -> Recommendation:
    target = AdviceTarget("load", "", plugin.source.origin)
    return Recommendation(
        recommendation_id=identity(name, target.kind, target.key),
        rule_id=name,
        state=State.FAILED,
        title=f"{name} could not be loaded",
        target=target.label,
        target_kind=target.kind,
        target_key=target.key,
        reason=error,
        remedy="Fix or uninstall the plugin; the other rules ran without it.",
        output=plugin.output,
        created_ts=now_ts,
        updated_ts=now_ts,
    )


# -- hosts that several services leave together ---------------------------------------------------------------------
def leave_hosts(departures: Iterable[Departure], gathered: Present) -> list[Recommendation]:
    """Return open advice for each host that saves money if all of its services leave together."""
    best, present = best_by_service(departures), gathered.fleet
    services_by_host = {host: names for host in present.hosts if len(names := services_on(present, host)) > 1}
    rows, combined = [], set[frozenset[str]]()
    for host, names in services_by_host.items():
        if names in combined or not names <= best.keys():
            continue
        combined.add(names)
        rows += _rows([best[name] for name in sorted(names)], host, gathered)
    return rows


def _rows(parts: Iterable[Departure], host: Host, gathered: Present) -> list[Recommendation]:
    """Return the open recommendation to leave a host; none if it saves nothing or is refused."""
    pricing = Pricing(gathered)
    try:
        proposal = _together(parts, host, gathered.fleet)
    except InvalidEdit:  # two services move one deployment to different places
        return []
    proposed = pricing.valid(LEAVE_HOST, proposal)
    pricing.prepare([proposed])
    (priced,) = pricing.priced([proposed])
    if isinstance(priced, Exception):
        raise priced
    pricing.prepare_shown([priced])
    return [
        Recommendation(
            recommendation_id=identity(LEAVE_HOST, target.kind, target.key),
            rule_id=LEAVE_HOST,
            state=State.OPEN,
            title=outcome.variants[0].title,
            target=target.label,
            target_kind=target.kind,
            target_key=target.key,
            variants=tuple(outcome.variants),
            window_s=gathered.window_s,
            created_ts=gathered.context.now_ts,
            updated_ts=gathered.context.now_ts,
        )
        for target, outcome in pricing.outcomes(priced).items()
        if outcome.variants and not outcome.variants[0].pays_more
    ]


def _together(parts: Iterable[Departure], host: Host, present: Fleet) -> Proposal:
    """Return the proposal of all parts, which releases the host. Raises InvalidEdit if they contradict each other."""
    proposals = [proposal_of(json.loads(part.proposal), present) for part in parts]
    after = present
    for part in proposals:
        after = after.edit(part.state)
    return propose(
        after.release(host),
        risk=max((proposal.risk or "availability" for proposal in proposals), key=RISKS.index),
        effort="high",
        requires=dict.fromkeys(rule_id for proposal in proposals for rule_id in proposal.requires),
        excludes=dict.fromkeys(rule_id for proposal in proposals for rule_id in proposal.excludes),
        against=dict.fromkeys(sentence for proposal in proposals for sentence in proposal.against),
    )


# -- keep ----------------------------------------------------------------------------------------------------------
def keep_advice(
    store: Store,
    target: AdviceRepository,
    advice: Advice,
    market: Market,
    settings: Settings,
    who: str,
    *,
    adopt: bool = False,
) -> tuple[Advice, str | None]:
    """Store the advice of a run; return the standing advice, and a line to report if it belongs to other settings now.

    Changes are detected before proposals are stored, so that an applied one is not proposed again. Raises BadInput for
    the advice of another configuration unless `adopt`, StoreError if a database cannot be read or written.
    """
    changed = claim(target, configuration_of(settings), advice.now_ts, who, adopt=adopt)
    with store.hold("telemetry") as held:  # and not advice, which is written meanwhile
        with held.read("advice") as connection:
            history = read_history(connection)
        detect(held, history, target, market, settings, advice.now_ts)
        with held.read("advice") as connection:
            history = read_history(connection)
        judge_changes(held, history, target, settings, advice.now_ts)
        proposals = _proven(held, advice.recommendations, advice.now_ts)
    standing = keep(
        target, proposals, {GO_BACK, LEAVE_HOST, *(rule.name for rule in advice.run.rules)}, advice.now_ts, who
    )
    return replace(advice, recommendations=tuple(sorted(standing, key=rank))), changed


def _proven(store: Store, proposals: Sequence[Recommendation], now_ts: int) -> tuple[Recommendation, ...]:
    """Return proposals corrected by the savings that their rules realised so far, and proposals to undo changes."""
    with store.read("advice") as connection:
        verdicts = read_verdicts(connection)
        if not verdicts:  # no change was ever judged
            return tuple(proposals)
        receipts = read_receipts(connection)
        rows = {row.recommendation_id: row for row in stored(connection)}
    with store.read() as connection:
        inventory = Window(connection, now_ts - DAY, now_ts).inventory
    worse = go_back(verdicts, receipts, rows, inventory, now_ts)
    return (*corrected_by_receipts(store, proposals, now_ts), *worse)


# -- forks ------------------------------------------------------------------------------------------------------------
T = TypeVar("T")
Work = Callable[[Progress], T]
"""Work of this program on values in memory. It reports its progress, opens no files and returns a picklable value."""
_STEP = struct.Struct("d120s")
"""Share of a phase that is done, and its name."""


def processors() -> int:
    """Return how many forks can run at once; 1 where another thread runs, since a fork may copy its locks."""
    return len(os.sched_getaffinity(0)) if threading.active_count() == 1 else 1


def in_forks(works: Sequence[Work[T]], progress: Progress) -> list[T]:
    """Return the results of works, each done in a fork of its own.

    Where a fork ends without a result, its work is done in this process, which raises its errors.
    """
    with ExitStack() as stack:
        forks = [stack.enter_context(Fork(work)) for work in works]
        return [fork.result(progress) for fork in forks]


class Fork(Generic[T]):
    """Work in a forked process; leaving the context ends the process."""

    def __init__(self, work: Work[T]) -> None:
        """Start `work`."""
        self._work = work
        self._step = mmap.mmap(-1, _STEP.size)
        self._result = os.memfd_create("result")
        self._reader, writer = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries are idle
            self._pid = os.fork()
        if self._pid == 0:
            self._run(parent, writer)
        os.close(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._reader)
        os.close(self._result)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # the parent may ignore SIGCHLD, which reaps children at once
            os.waitpid(self._pid, 0)

    def result(self, progress: Progress) -> T:
        """Wait for the result, and report the progress of the work meanwhile."""
        ended = select.poll()  # `select` refuses descriptors from 1,024 on
        ended.register(self._reader, select.POLLIN)
        while not ended.poll(1000 * TICK_S):
            share, phase = _STEP.unpack_from(self._step)
            if text := phase.rstrip(b"\0").decode(errors="replace"):
                progress(text, share)
        if not os.read(self._reader, 1):
            return self._work(progress)
        with os.fdopen(os.dup(self._result), "rb") as file:
            file.seek(0)
            result: T = pickle.load(file)
        return result

    def _run(self, parent: int, writer: int) -> NoReturn:
        try:
            end_with_parent(parent)
            os.close(self._reader)
            gc.freeze()  # finalizers of the parent's objects, such as connections, must not run in this process
            with os.fdopen(os.dup(self._result), "wb") as file:
                pickle.dump(self._work(self._note), file)
            os.write(writer, b"\1")
        finally:
            os._exit(0)

    def _note(self, phase: str, share: float) -> None:
        _STEP.pack_into(self._step, 0, share, phase.encode())
