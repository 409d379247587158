"""Run plugins in workers and collect their results: one worker for each distribution or file, two for many plugins."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, zip_longest
from typing import Any

from pertoken.advisor.worker.child import load_and_run
from pertoken.advisor.worker.confine import Confinement
from pertoken.advisor.worker.inputs import Inputs, SubjectKey, Target
from pertoken.advisor.worker.limits import Limits
from pertoken.advisor.worker.messages import MAX_TRACE
from pertoken.advisor.worker.process import HEARTBEAT_S, TooMuch, lines, started
from pertoken.advisor.worker.source import Source
from pertoken.advisor.worker.texts import storable
from pertoken.advisor.worker.wire import MAX_TEXT
from pertoken.evidence import EPOCHS
from pertoken.metrics import SERIES
from pertoken.rule import MAX_WINDOW_S, MIN_WINDOW_S, PARAMETERS, SECTIONS
from pertoken.window.parts import PARTS
from pertoken.window.progress import Progress, no_progress

SeriesRead = tuple[SubjectKey | None, tuple[str, ...]]
"""A subject (None: the target) and the names of its series that a rule read."""

MIN_DIVIDED = 8
"""Minimum plugins of a distribution for two workers to share them."""
MIN_DIVIDED_OVER = 2
"""The same for rules with their own window: one rule over a month takes longer than starting a worker."""
RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NOT_STARTED = Confinement(*["its worker did not start"] * 3)


@dataclass(frozen=True, slots=True)
class OptionValue:
    """One option of a rule as text: its value, default, allowed values and meaning."""

    name: str
    value: str
    default: str
    domain: str
    meaning: str


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """Description of a rule as plain values."""

    rule_id: str
    title: str
    sections: Mapping[str, str]
    needs: tuple[str, ...]
    body: str = ""
    """Text of its docstring between the title and the sections."""
    options: tuple[OptionValue, ...] = ()
    window_s: int | None = None
    """Length of its window, seconds; None: the window of the run."""

    @property
    def scope(self) -> str:
        """Scope of one call: `deployment`, `service` or `fleet`."""
        return "deployment" if "now" in self.needs else "service" if "service" in self.needs else "fleet"


@dataclass(frozen=True, slots=True)
class Call:
    """Result of one rule for one target."""

    target: Target
    """Target in the gathered fleet; None for a rule over the fleet."""
    yielded: str = "[]"
    """Yielded values as JSON."""
    read: tuple[SeriesRead, ...] = ()
    blocked: tuple[str, str] | None = None
    """A series that it read and that was not measured, and how to measure it."""
    failed: str | None = None
    """Why it has no result: its traceback, or how its process ended."""
    output: str = ""
    """Printed and logged output."""
    ended: bool = False
    """Whether the rule is not run for further targets."""


@dataclass
class RuleRun:
    """Calls of one rule, by target."""

    rule: RuleInfo
    calls: list[Call] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class PluginRun:
    """Result of one plugin."""

    source: Source
    rules: list[RuleRun] = field(default_factory=list)
    disabled: list[RuleInfo] = field(default_factory=list)
    """Rules that a person switched off."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Names of the rules that do not run, with the traceback or how the process ended."""
    output: str = ""
    """Printed and logged output while it was loaded."""
    confinement: Confinement = _NOT_STARTED
    loaded: bool = False
    unread: set[str] = field(default_factory=set)
    """Parts of the window that its rules read and that must be loaded before they run again."""

    @property
    def known(self) -> tuple[RuleInfo, ...]:
        """All its rules, with those that a person switched off."""
        return *(run.rule for run in self.rules), *self.disabled


def run_plugins(
    sources: Sequence[Source],
    inputs: Inputs | None,
    limits: Limits,
    progress: Progress = no_progress,
) -> tuple[PluginRun, ...]:
    """Load plugins and run their rules; without `inputs` they are only loaded.

    A rule with the id of an earlier one is an error of its plugin. A rule with its own window runs after all others
    have run and that window is read: its plugin is loaded again. Errors of plugins do not raise here. Raises what
    `inputs.read` raises.
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
        own = {
            run.rule.window_s for plugin_run in runs for run in plugin_run.rules if not inputs.suit(run.rule.window_s)
        }
        for window_s in sorted(filter(None, own)):
            _run_over(inputs.over(window_s), runs, limits, progress)
    return tuple(runs)


def _run_group(
    sources: tuple[Source, ...],
    inputs: Inputs | None,
    limits: Limits,
    progress: Progress,
    min_divided: int,
) -> tuple[PluginRun, ...]:
    """Run the plugins of one distribution; in two workers if there are at least `min_divided`."""
    if inputs is None or len(sources) < min_divided or len(os.sched_getaffinity(0)) < 2:
        return _Worker(sources, inputs, limits, progress).run()
    halves = [_Worker(sources[0::2], inputs, limits, progress), _Worker(sources[1::2], inputs, limits, no_progress)]
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        for half in halves:  # fork both before a thread starts
            half.start(stack)
        other = pool.submit(halves[1].collect)
        halves[0].collect()
        while wait([other], HEARTBEAT_S).not_done:
            halves[1].show(progress)
        other.result()
    runs = list(chain.from_iterable(zip_longest(*(half.runs for half in halves))))
    return tuple(run for run in runs if run is not None)


def _run_over(inputs: Inputs, plugins: Sequence[PluginRun], limits: Limits, progress: Progress) -> None:
    """Run the rules with the window of these inputs; run a rule again after reading a missing part of the window."""
    due = [plugin for plugin in plugins if any(inputs.suit(run.rule.window_s) for run in plugin.rules)]
    for _, group in groupby(due, key=lambda plugin_run: plugin_run.source.group):
        left = tuple(group)
        while left:
            sources = tuple(plugin_run.source for plugin_run in left)
            again = _run_group(sources, inputs, limits, progress, MIN_DIVIDED_OVER)
            for plugin, other in zip(left, again, strict=True):
                for run in plugin.rules if not other.unread else ():
                    if inputs.suit(run.rule.window_s):
                        _adopt(run, next((rule for rule in other.rules if rule.rule == run.rule), None), other, inputs)
            for part in sorted({part for plugin_run in again for part in plugin_run.unread}):
                inputs.window.parts[part]
            left = tuple(plugin for plugin, other in zip(left, again, strict=True) if other.unread)


def _adopt(run: RuleRun, again: RuleRun | None, plugin: PluginRun, inputs: Inputs) -> None:
    """Copy the calls of a rule whose plugin was loaded again; fail if the plugin no longer has the rule."""
    if again is not None:
        run.calls, run.seconds = again.calls, again.seconds
        return
    reason = next((error for _, error in plugin.errors), "the rule differs when its file is loaded again")
    target = next(iter(inputs.targets(run.rule.scope)), None)
    run.calls = [Call(target, failed=reason, output=plugin.output, ended=True)]


class _Worker:
    """One worker: the processes of one group of plugins, and their reports so far."""

    def __init__(self, sources: tuple[Source, ...], inputs: Inputs | None, limits: Limits, progress: Progress) -> None:
        self._runs = tuple(PluginRun(source) for source in sources)
        self._inputs = inputs
        self._limits = limits
        self._progress = progress
        self._step = f"loading {sources[0].name}"
        self._at = 0
        """Index of the current plugin."""
        self._rule: RuleRun | None = None
        """The running rule."""
        self._pipe: int | None = None
        self._no_worker = ""
        """Why the worker did not start."""

    @property
    def runs(self) -> tuple[PluginRun, ...]:
        """Results of all plugins so far."""
        return self._runs

    def run(self) -> tuple[PluginRun, ...]:
        """Start the worker, read its output to the end, and return the result of each plugin."""
        with ExitStack() as stack:
            self.start(stack)
            self.collect()
        return self._runs

    def start(self, stack: ExitStack) -> None:
        """Start the worker; it ends with the stack."""
        tasks = [partial(load_and_run, run.source, self._inputs) for run in self._runs]
        try:
            self._pipe = stack.enter_context(started(tasks, self._limits))
        except OSError as error:
            self._no_worker = f"had no worker ({error})"

    def collect(self) -> None:
        """Read the output of the worker to its end."""
        reason = "ended its worker"
        try:
            if self._pipe is not None:
                for line in lines(self._pipe, self._limits, len(self._runs), self._beat):
                    self._take(json.loads(line))
            else:
                reason = self._no_worker
        except TooMuch as error:
            reason = str(error)
        except OSError as error:
            reason = f"had no worker ({error})"
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            reason = "returned an invalid message"
        for run in self._runs[self._at :]:  # plugins that did not start or did not finish
            self._leave(run, reason)

    def show(self, progress: Progress) -> None:
        """Report the running rule, and the share of its targets that are done."""
        progress(self._step, self._share())

    def _beat(self, seconds: float) -> None:
        step = f"{self._step}: {seconds:.0f} s" if seconds >= HEARTBEAT_S else self._step
        self._progress(step, self._share())

    def _share(self) -> float:
        """Return the share of the running rule's targets that are done."""
        targets = () if self._rule is None else self._targets(self._rule)
        return len(self._rule.calls) / len(targets) if self._rule is not None and targets else 0.0

    def _take(self, message: dict[str, Any]) -> None:
        plugin = self._runs[self._at]
        match message:
            case {"confined": [network, files, processes]}:
                plugin.confinement = Confinement(*(text and _text(text) for text in (network, files, processes)))
                self._step = f"loading {plugin.source.name}"
            case {"rules": rules, "disabled": disabled, "errors": errors, "output": output}:
                plugin.rules = [RuleRun(_rule_info(rule)) for rule in rules]
                plugin.disabled = [_rule_info(rule) for rule in disabled]
                plugin.errors = [(_text(name), _text(why, MAX_TRACE)) for name, why in errors]
                plugin.output, plugin.loaded = _text(output), True
            case {"rule": int(number)}:
                self._rule = plugin.rules[number]
                self._step = f"running {self._rule.rule.rule_id}"
            case {"call": dict(call)} if self._rule is not None:
                self._rule.calls.append(_call(self._targets(self._rule)[len(self._rule.calls)], call))
            case {"unread": str(part)} if part in self._unread_parts():
                plugin.unread.add(part)
            case {"ended": reason, "seconds": seconds, "output": output} if self._rule is not None:
                self._rule.seconds = float(seconds)
                self._cut(self._rule, _text(reason or "ended its process"), _text(output))
                self._rule = None
            case {"left": reason, "output": output}:
                self._leave(plugin, _text(reason or "ended its process"), _text(output))
                self._at += 1
                self._rule = None
            case _:
                raise ValueError("an invalid message, or one out of order")

    def _targets(self, run: RuleRun) -> tuple[Target, ...]:
        return () if self._inputs is None else self._inputs.targets(run.rule.scope)

    def _unread_parts(self) -> frozenset[str]:
        return frozenset() if self._inputs is None else frozenset(PARTS) - self._inputs.window.parts.names

    def _leave(self, plugin: PluginRun, reason: str, output: str = "") -> None:
        """Record that a plugin ended early."""
        if not plugin.loaded:
            plugin.errors.append((plugin.source.name, f"the plugin {reason} before it was loaded"))
            plugin.output = output
        for rule in plugin.rules:
            if self._inputs is not None and self._inputs.suit(rule.rule.window_s):
                self._cut(rule, reason, output if rule is self._rule else "")

    def _cut(self, run: RuleRun, reason: str, output: str) -> None:
        """Record that a rule ended early, as an error of the target that it was running for."""
        targets = self._targets(run)
        left = len(targets) - len(run.calls)
        if left and not (run.calls and run.calls[-1].ended):
            more = f"; it was not run for {left - 1} more of {len(targets)} targets" if left > 1 else ""
            run.calls.append(
                Call(targets[len(run.calls)], failed=f"the rule {reason}{more}", output=output, ended=True)
            )


def _text(value: Any, limit: int = MAX_TEXT) -> str:
    if type(value) is not str:
        raise ValueError("a text is missing")
    return storable(value[-limit:])


def _rule_info(sent: Any) -> RuleInfo:
    rule_id, title, needs = _text(sent["rule_id"]), _text(sent["title"]), sent["needs"]
    sections = {name: _text(sent["sections"][name]) for name in SECTIONS}
    window_s = sent["window_s"]
    in_range = window_s is None or (type(window_s) is int and MIN_WINDOW_S <= window_s <= MAX_WINDOW_S)
    if not RULE_ID.fullmatch(rule_id) or not set(needs) <= set(PARAMETERS) or not in_range:
        raise ValueError("a rule that was not made by the decorator")
    options = tuple(OptionValue(*map(_text, option)) for option in sent["options"])
    return RuleInfo(rule_id, title, sections, tuple(needs), _text(sent["body"]), options, window_s)


def _call(target: Target, sent: Mapping[str, Any]) -> Call:
    try:
        output, failed, blocked = _text(sent["output"]), sent.get("failed"), sent.get("blocked")
        read = tuple(
            (None if subject is None else _subject(subject), tuple(map(_series, names)))
            for subject, names in sent["read"]
        )
        if blocked is not None and blocked[0] in SERIES:
            return Call(target, read=read, blocked=(_series(blocked[0]), _text(blocked[1])), output=output)
        if failed is not None:
            return Call(target, read=read, failed=_text(failed, MAX_TRACE), output=output)
        return Call(target, sent["yielded"], read, output=output)
    except (ValueError, LookupError, TypeError):
        return Call(target, failed="the rule returned an invalid result: it changed its inputs")


def _subject(sent: Any) -> SubjectKey:
    kind, key = sent
    if type(key) not in (int, str):
        raise ValueError("no subject")
    return _text(kind), key


def _series(name: Any) -> str:
    if name not in SERIES and name != EPOCHS:
        raise ValueError("no series")
    return str(name)
