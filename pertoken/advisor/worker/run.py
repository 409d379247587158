"""Run plugins in workers and collect their results: one worker for each distribution or file, two for many plugins."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from itertools import groupby

from pertoken.advisor.worker.inputs import Inputs
from pertoken.advisor.worker.limits import Limits
from pertoken.advisor.worker.process import HEARTBEAT_S
from pertoken.advisor.worker.reports import RULE_ID as RULE_ID
from pertoken.advisor.worker.reports import Worker
from pertoken.advisor.worker.results import Call as Call
from pertoken.advisor.worker.results import OptionValue as OptionValue
from pertoken.advisor.worker.results import PluginRun as PluginRun
from pertoken.advisor.worker.results import RuleInfo as RuleInfo
from pertoken.advisor.worker.results import RuleRun as RuleRun
from pertoken.advisor.worker.source import Source
from pertoken.window.progress import Progress, no_progress

MIN_DIVIDED = 8
"""Minimum plugins of a distribution for two workers to share them."""
MIN_DIVIDED_OVER = 2
"""The same for rules with their own window: one rule over a month takes longer than starting a worker."""

WORK = {
    "commit-capacity": 18.0,
    "move-accelerator": 10.0,
    "scale-to-zero": 9.0,
    "serverless-api": 4.0,
    "consolidate": 3.0,
    "disaggregate": 3.0,
    "quantize-kv": 3.0,
    "release-idle": 3.0,
    "batch-limit": 2.0,
    "speculative-decoding": 2.0,
    "stuck-engine": 6.0,
}
"""Measured CPU time of plugins of this program over that of any other, for 1,000 deployments. Two workers that took
turns in the order of names ended 0.6 s apart, of 2.3 s of CPU in all."""


def run_plugins(
    sources: Sequence[Source],
    inputs: Inputs | None,
    limits: Limits,
    progress: Progress = no_progress,
) -> tuple[PluginRun, ...]:
    """Load plugins and run their rules; without `inputs` they are only loaded.

    A rule with the id of an earlier one is an error of its plugin. A rule with its own window that is not ready runs
    after all others have run and that window is read: its plugin is loaded again. Errors of plugins do not raise here.
    Raises what `inputs.read` raises.
    """
    runs: list[PluginRun] = []
    taken: dict[str, str] = {}
    for _, group in groupby(sources, key=lambda source: source.group):
        for plugin_run in _run_group(tuple(group), inputs, limits, progress, MIN_DIVIDED):
            for twice in [rule.rule_id for rule in plugin_run.known if rule.rule_id in taken]:
                plugin_run.rules = [run for run in plugin_run.rules if run.rule.rule_id != twice]
                plugin_run.disabled = [rule for rule in plugin_run.disabled if rule.rule_id != twice]
                plugin_run.errors.append((twice, f"rule {twice!r} is already provided by {taken[twice]}"))
            taken |= {rule.rule_id: plugin_run.source.origin for rule in plugin_run.known}
            runs.append(plugin_run)
    if inputs is not None:
        later = {
            run.rule.window_s for plugin_run in runs for run in plugin_run.rules if not inputs.run(run.rule.window_s)
        }
        for window_s in sorted(filter(None, later | inputs.ready)):
            _run_over(inputs.over(window_s), runs, limits, progress)
    return tuple(runs)


def _run_group(
    sources: tuple[Source, ...],
    inputs: Inputs | None,
    limits: Limits,
    progress: Progress,
    min_divided: int,
) -> tuple[PluginRun, ...]:
    """Run the plugins of one distribution; in two workers if there are at least `min_divided`.

    Rules of this program run together. If one of them ends its process, each runs in a process of its own instead.
    """
    divided = partial(_divided, sources, inputs, limits, progress, min_divided)
    together = inputs is not None and all(source.own for source in sources)
    runs, whole = divided(together=together)
    return runs if whole or not together else divided(together=False)[0]


def _divided(
    sources: tuple[Source, ...],
    inputs: Inputs | None,
    limits: Limits,
    progress: Progress,
    min_divided: int,
    *,
    together: bool,
) -> tuple[tuple[PluginRun, ...], bool]:
    """Return the runs of some plugins, and whether no process of theirs ended early."""
    start = partial(Worker, inputs=inputs, limits=limits, together=together)
    if inputs is None or len(sources) < min_divided or len(os.sched_getaffinity(0)) < 2:
        workers = [start(sources, progress=progress)]
        workers[0].run()
    else:
        one, two = halves(sources)
        workers = [start(one, progress=progress), start(two, progress=no_progress)]
        _run_both(workers, progress)
    place = {id(source): number for number, source in enumerate(sources)}
    runs = sorted((run for worker in workers for run in worker.runs), key=lambda run: place[id(run.source)])
    return tuple(runs), not any(worker.ended_early for worker in workers)


def halves(sources: Sequence[Source]) -> tuple[tuple[Source, ...], tuple[Source, ...]]:
    """Return two parts of about equal work, each in the order of the sources; neither is empty."""
    work = {id(source): WORK.get(source.name, 1.0) if source.own else 1.0 for source in sources}
    load, of = [0.0, 0.0], dict[int, int]()
    for source in sorted(sources, key=lambda source: -work[id(source)]):
        of[id(source)] = lighter = load.index(min(load))
        load[lighter] += work[id(source)]
    one, two = (tuple(source for source in sources if of[id(source)] == half) for half in (0, 1))
    return one, two


def _run_both(workers: Sequence[Worker], progress: Progress) -> None:
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        for worker in workers:  # fork both before a thread starts
            worker.start(stack)
        other = pool.submit(workers[1].collect)
        workers[0].collect()
        while wait([other], HEARTBEAT_S).not_done:
            workers[1].show(progress)
        other.result()


def _run_over(inputs: Inputs, plugins: Sequence[PluginRun], limits: Limits, progress: Progress) -> None:
    """Run the rules with the window of these inputs that did not run; again after reading a part that they missed."""

    def due(plugin: PluginRun) -> list[RuleRun]:
        return [run for run in plugin.rules if inputs.suit(run.rule.window_s) and not run.done]

    for _, group in groupby(filter(due, plugins), key=lambda plugin_run: plugin_run.source.group):
        left = tuple(group)
        while left:
            for part in sorted({run.unread for plugin in left for run in due(plugin) if run.unread is not None}):
                inputs.window.parts[part]
            sources = tuple(plugin_run.source for plugin_run in left)
            again = _run_group(sources, inputs, limits, progress, MIN_DIVIDED_OVER)
            for plugin, other in zip(left, again, strict=True):
                for run in due(plugin):
                    _adopt(run, next((rule for rule in other.rules if rule.rule == run.rule), None), other, inputs)
            left = tuple(filter(due, left))


def _adopt(run: RuleRun, again: RuleRun | None, plugin: PluginRun, inputs: Inputs) -> None:
    """Copy the calls of a rule whose plugin was loaded again; fail if the plugin no longer has the rule."""
    if again is not None:
        run.calls, run.seconds, run.done, run.unread = again.calls, again.seconds, again.done, again.unread
        return
    reason = next((error for _, error in plugin.errors), "the rule differs when its file is loaded again")
    target = next(iter(inputs.targets(run.rule.scope)), None)
    run.calls, run.done = [Call(target, failed=reason, output=plugin.output, ended=True)], True
