"""One advice run: read the window, run every rule, price the proposals, and keep those that save something."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pertoken.advisor.ahead import reading_ahead, windows_of
from pertoken.advisor.loads import measure_loads
from pertoken.advisor.nature import Target
from pertoken.advisor.plan.what_if import WhatIf
from pertoken.advisor.present import Present, present
from pertoken.advisor.rows import priced_runs
from pertoken.advisor.windows import measured, measured_over
from pertoken.advisor.worker.inputs import Inputs, MeasuredWindow
from pertoken.advisor.worker.limits import Limits
from pertoken.advisor.worker.run import PluginRun, run_plugins
from pertoken.advisor.worker.source import Source
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.forecast.second_opinion.opinion import KernelTables, Opinion
from pertoken.printable import natural_key
from pertoken.proof.recommendation import Recommendation, State, identity
from pertoken.rule import EFFORTS, RISKS
from pertoken.store.connect.open import Store
from pertoken.window.progress import Progress, no_progress
from pertoken.window.reading import NOTHING_ELSEWHERE


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
    sources: Iterable[Source],
    market: Market,
    settings: Settings,
    window_s: int,
    now_ts: int,
    progress: Progress = no_progress,
    *,
    dated: bool = False,
    what_if: WhatIf | None = None,
) -> Advice:
    """Run the rules of every source over the window ending at `now_ts`. `progress` is called with each phase.

    With `dated`, `now_ts` is a whole minute in the past and prices and settings are those of that time. `what_if`
    replaces measured or configured values. Raises StoreError if the database cannot be read, BadInput if the setting
    for kernel tables names no file or `what_if` names an unknown subject. A broken rule is a recommendation in state
    FAILED.
    """
    tables = settings.advisor_kernel_tables
    if tables and not Path(tables).is_file():
        raise BadInput(f"advisor.kernel_tables: {tables}: there is no such file")
    return _advise(store, sources, market, settings, window_s, now_ts, progress, dated, what_if or WhatIf())


def _advise(
    store: Store,
    sources: Iterable[Source],
    market: Market,
    settings: Settings,
    window_s: int,
    now_ts: int,
    progress: Progress,
    dated: bool,
    asked: WhatIf,
) -> Advice:
    tables = settings.advisor_kernel_tables
    began = time.monotonic()
    sources = tuple(sources)
    ready = windows_of(sources) - {window_s}
    with reading_ahead(store, window_s, ready, now_ts, dated=dated) as ahead:
        gathered = asked.present(
            present(
                store,
                market,
                window_s,
                now_ts,
                settings,
                progress,
                dated=dated,
                assumed=asked.prices,
                elsewhere=ahead.get(window_s, NOTHING_ELSEWHERE),
            )
        )

        @cache
        def read(seconds: int) -> MeasuredWindow:
            elsewhere = ahead.get(seconds, NOTHING_ELSEWHERE)
            window = measured_over(seconds, store, gathered, progress, dated=dated, elsewhere=elsewhere)
            return replace(window, measured=asked.measured(window.measured))

        reading_s = time.monotonic() - began
        with KernelTables(tables) if tables else nullcontext() as opinion:
            limits = Limits.of_call(settings.advisor_rule_timeout)
            recommendations, run = advice_of(sources, gathered, limits, opinion, progress, read, ready)
    run = replace(run, seconds={"reading": reading_s, **run.seconds})
    return Advice(now_ts, window_s, recommendations, run, gathered)


def advice_of(
    sources: Iterable[Source],
    gathered: Present,
    limits: Limits | None = None,
    opinion: Opinion | None = None,
    progress: Progress = no_progress,
    read: Callable[[int], MeasuredWindow] | None = None,
    ready: frozenset[int] = frozenset(),
) -> tuple[tuple[Recommendation, ...], RunRecord]:
    """Run the rules of every source over a gathered fleet; return recommendations, best first.

    `read` returns the measurements of a window of the given length in seconds, for rules with a window of their own;
    without it these rules get the gathered window. Those of `ready` lengths are read before the rules run. Prices,
    demand and forecasts use the gathered window for every rule.
    """
    began = time.monotonic()
    known = MeasuredWindow(measured(gathered))
    measure_loads(gathered.context, progress)
    over = read or (lambda _: known)
    inputs = Inputs(gathered.fleet, gathered.context.market, known, gathered.window_s, over, ready=ready)
    for window_s in sorted(ready):  # after the loads: a fork reads meanwhile
        inputs.over(window_s)
    plugins = run_plugins(tuple(sources), inputs, limits or Limits(), progress)
    ran = time.monotonic()
    rows: list[Recommendation] = []
    records: list[RuleRecord] = []
    runs = iter(priced_runs([run for plugin in plugins for run in plugin.rules], gathered, opinion, inputs, progress))
    for plugin in plugins:
        for name, error in plugin.errors:
            rows.append(_failed_load(plugin, name, error, gathered.context.now_ts))
            records.append(_record(plugin, name, failed=error))
        for run in plugin.rules:
            priced = next(runs)
            own = [row for rows in priced.rows for row in rows]
            failed = next((row.reason for row in own if row.state is State.FAILED), None)
            rows += own
            records.append(_record(plugin, run.rule.rule_id, run.seconds, priced.seconds, failed))
    seconds = {"rules": ran - began, "pricing": time.monotonic() - ran}
    return tuple(sorted(rows, key=rank)), RunRecord(seconds, tuple(records))


def _record(
    plugin: PluginRun, name: str, seconds: float | None = None, pricing_s: float = 0.0, failed: str | None = None
) -> RuleRecord:
    return RuleRecord(name, plugin.source.origin, plugin.confinement.label, seconds, pricing_s, plugin.output, failed)


def rank(recommendation: Recommendation) -> tuple[object, ...]:
    """Return the sort key of a recommendation: by state, then the largest saving first.

    Recommendations without a saving are sorted by their saving if confirmed, then by least risk, then by least effort.
    """
    order = list(State).index(recommendation.state)
    best = recommendation.best
    worth = best.rank if best else (0,) * 4
    unpriced = (RISKS.index(best.risk), EFFORTS.index(best.effort)) if best and best.saving is None else (0, 0)
    return (
        order,
        *(-dollars for dollars in worth),
        *unpriced,
        recommendation.rule_id,
        natural_key(recommendation.target),
        recommendation.target_key,
    )


def _failed_load(plugin: PluginRun, name: str, error: str, now_ts: int) -> Recommendation:
    target = Target("load", "", plugin.source.origin)
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
