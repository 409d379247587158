"""Workers from the advisor's side: start one for each distribution or file, and read, check and collect its reports.

`run_plugins` runs rules or only loads them; `run_job` runs any other job under the same restrictions.
"""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TypeVar

from pertoken.advisor.worker.child import (
    MAX_TRACE,
    Confinement,
    Inputs,
    PluginSource,
    RuleLimits,
    SubjectKey,
    Target,
    Task,
    do_job,
    load_and_run,
    run_together,
    supervise,
)
from pertoken.evidence import EPOCHS
from pertoken.metrics import SERIES
from pertoken.rule import MAX_WINDOW_S, MIN_WINDOW_S, PARAMETERS, SECTIONS
from pertoken.state.wire import MAX_TEXT, Json, storable
from pertoken.window.figures import Progress, no_progress

RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
HEARTBEAT_S = 1.0
"""Interval of progress reports while a rule runs, seconds."""
GRACE_S = 5.0
"""Time for a supervisor to end its descendants, seconds."""


SeriesRead = tuple[SubjectKey | None, tuple[str, ...]]
"""A subject (None: the target) and the names of its series that a rule read."""

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
    series: tuple[str, ...] | None = None
    """Series that it declares to read in its window; None: any."""

    @property
    def scope(self) -> str:
        """Scope of one call: `deployment`, `service` or `fleet`."""
        return "deployment" if "now" in self.needs else "service" if "service" in self.needs else "fleet"


@dataclass(frozen=True, slots=True)
class TargetResult:
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
    calls: list[TargetResult] = field(default_factory=list)
    seconds: float = 0.0
    done: bool = False
    """Whether it ran for all of its targets, or cannot."""


@dataclass
class PluginRun:
    """Result of one plugin."""

    source: PluginSource
    rules: list[RuleRun] = field(default_factory=list)
    disabled: list[RuleInfo] = field(default_factory=list)
    """Rules that a person switched off."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Names of the rules that do not run, with the traceback or how the process ended."""
    output: str = ""
    """Printed and logged output while it was loaded."""
    confinement: Confinement = _NOT_STARTED
    loaded: bool = False

    @property
    def known(self) -> tuple[RuleInfo, ...]:
        """All its rules, with those that a person switched off."""
        return *(run.rule for run in self.rules), *self.disabled


def run_plugins(
    sources: Sequence[PluginSource], inputs: Inputs | None, limits: RuleLimits, progress: Progress = no_progress
) -> tuple[PluginRun, ...]:
    """Load plugins and run the rules that have targets; without `inputs` they are only loaded.

    A rule with the id of an earlier one is an error of its plugin. Errors of plugins do not raise here.
    """
    runs: list[PluginRun] = []
    origins: dict[str, str] = {}
    for _, group in groupby(sources, key=lambda source: source.group):
        for plugin_run in _run_group(tuple(group), inputs, limits, progress):
            for twice in [rule.rule_id for rule in plugin_run.known if rule.rule_id in origins]:
                plugin_run.rules = [run for run in plugin_run.rules if run.rule.rule_id != twice]
                plugin_run.disabled = [rule for rule in plugin_run.disabled if rule.rule_id != twice]
                plugin_run.errors.append((twice, f"rule {twice!r} is already provided by {origins[twice]}"))
            origins |= {rule.rule_id: plugin_run.source.origin for rule in plugin_run.known}
            runs.append(plugin_run)
    return tuple(runs)


def _run_group(
    sources: tuple[PluginSource, ...], inputs: Inputs | None, limits: RuleLimits, progress: Progress
) -> tuple[PluginRun, ...]:
    """Run the plugins of one distribution.

    Rules of this program run together. If one of them ends its process, each runs in a process of its own instead.
    """
    together = all(source.is_built_in for source in sources)
    worker = Worker(sources, inputs, limits, progress, together=together)
    runs = worker.run()
    return Worker(sources, inputs, limits, progress, together=False).run() if together and worker.ended_early else runs


class Worker:
    """One worker: the processes of one group of plugins, and their reports so far."""

    def __init__(
        self,
        sources: tuple[PluginSource, ...],
        inputs: Inputs | None,
        limits: RuleLimits,
        progress: Progress,
        *,
        together: bool,
    ) -> None:
        """With `together`, the rules of all sources run in one process."""
        self._runs = tuple(PluginRun(source) for source in sources)
        self._inputs = inputs
        self._limits = limits
        self._progress = progress
        self._together = together
        self._step = f"loading {sources[0].name}"
        self._index = 0
        """Index of the current plugin."""
        self._rule: RuleRun | None = None
        """The running rule."""
        self.ended_early = False
        """Whether a plugin ended before all of its rules had run."""

    def run(self) -> tuple[PluginRun, ...]:
        """Start the worker, read its output to the end, and return the result of each plugin."""
        reason = "ended its worker"
        try:
            with started(self._tasks(), self._limits) as pipe:
                for line in lines(pipe, self._limits, len(self._runs), self._beat):
                    self._take(json.loads(line))
        except TooMuch as error:
            reason = str(error)
        except OSError as error:
            reason = f"had no worker ({error})"
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            reason = "returned an invalid message"
        for run in self._runs[self._index :]:  # plugins that did not start or did not finish
            self.ended_early = True
            self._leave(run, reason)
        for run in self._runs[1:] if self._together else ():
            run.confinement = self._runs[0].confinement
        return self._runs

    def _tasks(self) -> Sequence[Task]:
        sources = tuple(run.source for run in self._runs)
        if self._together:
            return [partial(run_together, sources, self._inputs)]
        return [partial(load_and_run, source, self._inputs) for source in sources]

    def _beat(self, seconds: float) -> None:
        step = f"{self._step}: {seconds:.0f} s" if seconds >= HEARTBEAT_S else self._step
        self._progress(step, self._share())

    def _share(self) -> float:
        """Return the share of the running rule's targets that are done."""
        targets = () if self._rule is None else self._targets(self._rule)
        return len(self._rule.calls) / len(targets) if self._rule is not None and targets else 0.0

    def _take(self, message: Json) -> None:
        plugin = self._runs[self._index]
        match message:
            case {"confined": [_, _, _] as reasons}:
                plugin.confinement = Confinement(*(None if reason is None else _text(reason) for reason in reasons))
                self._step = f"loading {plugin.source.name}"
            case {"rules": list(rules), "disabled": list(disabled), "errors": list(errors), "output": output}:
                plugin.rules = [RuleRun(_rule_info(rule)) for rule in rules]
                plugin.disabled = [_rule_info(rule) for rule in disabled]
                plugin.errors = [(_text(name), _text(why, MAX_TRACE)) for name, why in errors]
                plugin.output, plugin.loaded = _text(output), True
            case {"rule": int(number)}:
                self._rule = plugin.rules[number]
                self._step = f"running {self._rule.rule.rule_id}"
            case {"call": dict(call)} if self._rule is not None:
                self._rule.calls.append(_call(self._targets(self._rule)[len(self._rule.calls)], call))
            case {"ended": reason, "seconds": float(seconds), "output": output} if self._rule is not None:
                self._rule.seconds = seconds
                self._cut(self._rule, _text(reason or "ended its process"), _text(output))
                self._rule.done = True
                self._rule = None
            case {"left": reason, "output": output}:
                self.ended_early |= reason is not None
                self._leave(plugin, _text(reason or "ended its process"), _text(output))
                self._index += 1
                self._rule = None
            case _:
                raise ValueError("an invalid message, or one out of order")

    def _targets(self, run: RuleRun) -> tuple[Target, ...]:
        return () if self._inputs is None else self._inputs.targets(run.rule.scope)

    def _leave(self, plugin: PluginRun, reason: str, output: str = "") -> None:
        if not plugin.loaded:
            plugin.errors.append((plugin.source.name, f"the plugin {reason} before it was loaded"))
            plugin.output = output
        for rule in plugin.rules:
            if not rule.done and self._targets(rule):
                self._cut(rule, reason, output if rule is self._rule else "")
                rule.done = True

    def _cut(self, run: RuleRun, reason: str, output: str) -> None:
        """Record that a rule ended early, as an error of the target that it was running for."""
        targets = self._targets(run)
        if len(run.calls) < len(targets) and not (run.calls and run.calls[-1].ended):
            assert self._inputs is not None  # else no rule has a target
            target = targets[len(run.calls)]
            run.calls.append(ended(run.rule, target, f"the rule {reason}", self._inputs, output))


def ended(rule: RuleInfo, target: Target, reason: str, inputs: Inputs, output: str = "") -> TargetResult:
    """Return the call of a rule that ended early at a target, so that it is not run for those after it."""
    count = inputs.count(rule.scope)
    after = count - inputs.position(target) - 1
    more = f"; it was not run for {after} more of {count} targets" if after else ""
    return TargetResult(target, failed=f"{reason}{more}", output=output, ended=True)


T = TypeVar("T")


def _checked(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"no {kind.__name__}")
    return value


def _text(value: object, limit: int = MAX_TEXT) -> str:
    return storable(_checked(value, str)[-limit:])


def _rule_info(sent: Json) -> RuleInfo:
    rule_id, title, needs = _text(sent["rule_id"]), _text(sent["title"]), _checked(sent["needs"], list)
    sections, options = _checked(sent["sections"], dict), _checked(sent["options"], list)
    window_s = None if sent["window_s"] is None else _checked(sent["window_s"], int)
    series = None if sent["series"] is None else _checked(sent["series"], list)
    in_range = window_s is None or MIN_WINDOW_S <= window_s <= MAX_WINDOW_S
    inputs_known = set(needs) <= set(PARAMETERS) and set(series or ()) <= set(SERIES)
    if not RULE_ID.fullmatch(rule_id) or not inputs_known or not in_range:
        raise ValueError("a rule that was not made by the decorator")
    return RuleInfo(
        rule_id,
        title,
        {name: _text(sections[name]) for name in SECTIONS},
        tuple(needs),
        _text(sent["body"]),
        tuple(OptionValue(*map(_text, option)) for option in options),
        window_s,
        None if series is None else tuple(map(_text, series)),
    )


def _call(target: Target, sent: Json) -> TargetResult:
    try:
        output, failed, blocked = _text(sent["output"]), sent.get("failed"), sent.get("blocked")
        read = tuple(
            (None if subject is None else _subject(subject), tuple(map(_series, names)))
            for subject, names in _checked(sent["read"], list)
        )
        if blocked is not None:
            series, remedy = _checked(blocked, list)
            return TargetResult(target, read=read, blocked=(_series(series), _text(remedy)), output=output)
        if failed is not None:
            return TargetResult(target, read=read, failed=_text(failed, MAX_TRACE), output=output)
        return TargetResult(target, _checked(sent["yielded"], str), read, output=output)
    except (ValueError, LookupError, TypeError):
        return TargetResult(target, failed="the rule returned an invalid result: it changed its inputs")


def _subject(sent: object) -> SubjectKey:
    kind, key = _checked(sent, list)
    return _text(kind), _checked(key, str) if isinstance(key, str) else _checked(key, int)


def _series(name: object) -> str:
    if name not in SERIES and name != EPOCHS:
        raise ValueError("no series")
    return str(name)


# -- processes -----------------------------------------------------------------------------------------------------


class TooMuch(Exception):
    """A worker exceeded its time or the size of its output."""


@contextlib.contextmanager
def started(tasks: Sequence[Task], limits: RuleLimits) -> Iterator[int]:
    """Yield the pipe on which a new worker reports; end all its processes on exit."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="pertoken-rules-")
        stack.callback(_remove, folder)
        reader, writer = os.pipe()
        stack.callback(os.close, reader)
        with contextlib.ExitStack() as given:
            given.callback(os.close, writer)
            output = os.memfd_create("output")
            given.callback(os.close, output)
            parent = os.getpid()
            with warnings.catch_warnings():
                # In a process with threads a child must not wait for a lock of another thread. This child uses no file
                # or database of its parent, Python resets the locks of its runtime after a fork, and a child that
                # still hangs is killed.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                supervise(parent, tasks, limits, folder, writer, output)
        stack.callback(_end, pid, reader)
        yield reader


def lines(pipe: int, limits: RuleLimits, tasks: int, beat: Callable[[float], None]) -> Iterator[bytes]:
    """Yield the lines that a worker reports; call `beat` with the elapsed seconds at least every `HEARTBEAT_S`.

    Raises TooMuch if the worker exceeds its time or the size of its output.
    """
    began = time.monotonic()
    limit_s = limits.plugin_s * tasks + GRACE_S
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    rest, returned = b"", 0
    while True:
        beat(seconds := time.monotonic() - began)
        if seconds > limit_s:
            raise TooMuch(f"took longer than {limits.plugin_s:g} s")
        if not poll.poll(HEARTBEAT_S * 1000):
            continue
        part = os.read(pipe, 2**20)
        if not part:
            return
        returned += len(part)
        *complete, rest = (rest + part).split(b"\n")
        if returned > limits.returned_bytes or len(rest) > 4 * limits.call_bytes:
            raise TooMuch(f"returned more than {limits.returned_bytes:,} bytes")
        yield from filter(None, complete)


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, reader: int) -> None:
    """End a worker; its pipe closes when its last process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while (left_s := deadline - time.monotonic()) > 0:
        if poll.poll(left_s * 1000) and not os.read(reader, 2**20):
            break
    else:
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # the parent may ignore SIGCHLD, which reaps children at once
        os.waitpid(pid, 0)


# -- another job ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRun:
    """Result of a job."""

    returned: object = None
    """Decoded JSON; untrusted, because the job may have run code of a plugin."""
    failed: str | None = None
    """Why it has no result: its traceback, or how its process ended."""
    output: str = ""
    """Printed output; only the end if it is long."""


def run_job(job: Callable[[], object], limits: RuleLimits) -> JobRun:
    """Run a job that returns JSON values, for at most `limits.call_s`. Nothing that the job does raises here."""
    reason, output = "ended its process", ""
    try:
        with started([partial(do_job, job)], limits) as pipe:
            for line in lines(pipe, limits, 1, lambda _: None):
                match json.loads(line):
                    case {"done": returned, "output": str(output)}:
                        return JobRun(returned, output=storable(output))
                    case {"failed": str(failed), "output": str(output)}:
                        return JobRun(failed=storable(failed[-MAX_TRACE:]), output=storable(output))
                    case {"left": str(reason), "output": str(output)}:
                        break
    except TooMuch as error:
        reason = str(error)
    except OSError as error:
        reason = f"had no worker ({error})"
    except (ValueError, RecursionError):
        reason = "returned an invalid message"
    return JobRun(failed=f"it {storable(reason)}", output=storable(output))
