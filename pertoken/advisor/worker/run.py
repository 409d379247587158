"""Run plugins in workers and collect what they return: one worker for each distribution, one file, or one folder."""

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pertoken.advisor.worker.child import supervise
from pertoken.advisor.worker.confine import Confinement
from pertoken.advisor.worker.inputs import Inputs, SubjectKey, Target
from pertoken.advisor.worker.limits import Limits
from pertoken.advisor.worker.messages import MAX_TRACE
from pertoken.advisor.worker.source import Source
from pertoken.advisor.worker.wire import MAX_TEXT, storable
from pertoken.metrics import SERIES
from pertoken.rule import PARAMETERS, SECTIONS
from pertoken.window.progress import Progress, no_progress

SeriesRead = tuple[SubjectKey | None, tuple[str, ...]]
"""A subject (None: the target itself) and the names of its series that a rule read."""

_RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NOT_STARTED = Confinement(*["its worker did not start"] * 3)

HEARTBEAT_S = 1.0
"""How often progress is reported while a rule runs."""
GRACE_S = 5.0
"""How long a supervisor may take to end what it started."""


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """What a rule says of itself."""

    rule_id: str
    title: str
    sections: Mapping[str, str]
    needs: tuple[str, ...]

    @property
    def scope(self) -> str:
        """What it runs once for: each `deployment`, each `service`, or the `fleet`."""
        return "deployment" if "now" in self.needs else "service" if "service" in self.needs else "fleet"


@dataclass(frozen=True, slots=True)
class Call:
    """What one rule returned for one target."""

    target: Target
    """As it is in the fleet that was gathered; None for a rule over the fleet."""
    yielded: str = "[]"
    """What it yielded, as JSON."""
    read: tuple[SeriesRead, ...] = ()
    blocked: tuple[str, str] | None = None
    """A series it read that was not measured, and what would measure it."""
    failed: str | None = None
    """Why it has no result: its traceback, or how its process ended."""
    output: str = ""
    """What it printed and logged."""
    ended: bool = False
    """Whether the rule is not run for further targets."""


@dataclass
class RuleRun:
    """What one rule did, target by target."""

    rule: RuleInfo
    calls: list[Call] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class PluginRun:
    """What came of one plugin."""

    source: Source
    rules: list[RuleRun] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)
    """What of it does not run: its name, and its traceback or how its process ended."""
    output: str = ""
    """What it printed and logged while it was loaded."""
    confinement: Confinement = _NOT_STARTED
    loaded: bool = False


def run_plugins(
    sources: Sequence[Source],
    inputs: Inputs | None,
    limits: Limits,
    progress: Progress = no_progress,
) -> tuple[PluginRun, ...]:
    """Load plugins and run their rules; without `inputs` they are only loaded.

    A rule with the id of an earlier one is an error of its plugin. Nothing that a plugin does raises here.
    """
    found: list[PluginRun] = []
    taken: dict[str, str] = {}
    for _, group in groupby(sources, key=lambda each: each.group):
        for each in _Worker(tuple(group), inputs, limits, progress).run():
            for twice in [run.rule.rule_id for run in each.rules if run.rule.rule_id in taken]:
                each.rules = [run for run in each.rules if run.rule.rule_id != twice]
                each.errors.append((twice, f"rule {twice!r} is already provided by {taken[twice]}"))
            taken |= {run.rule.rule_id: each.source.origin for run in each.rules}
            found.append(each)
    return tuple(found)


class _Worker:
    """One worker: the processes of one group of plugins, and what they have reported so far."""

    def __init__(self, sources: tuple[Source, ...], inputs: Inputs | None, limits: Limits, progress: Progress) -> None:
        self._runs = tuple(PluginRun(each) for each in sources)
        self._inputs = inputs
        self._limits = limits
        self._progress = progress
        self._step = f"loading {sources[0].name}"
        self._at = 0
        """Index of the plugin whose turn it is."""
        self._rule: RuleRun | None = None
        """The rule that runs."""

    def run(self) -> tuple[PluginRun, ...]:
        """Start the worker, read to its end, and return what came of each plugin."""
        reason = "ended its worker"
        try:
            with _started([each.source for each in self._runs], self._inputs, self._limits) as pipe:
                for line in self._lines(pipe):
                    self._take(json.loads(line))
        except _TooMuch as error:
            reason = str(error)
        except OSError as error:
            reason = f"had no worker ({error})"
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            reason = "returned what is no message"
        for each in self._runs[self._at :]:  # those that it did not come to, or did not end
            self._leave(each, reason)
        return self._runs

    def _lines(self, pipe: int) -> Iterator[bytes]:
        limits = self._limits
        began = time.monotonic()
        deadline = began + limits.plugin_s * len(self._runs) + GRACE_S
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        rest, returned = b"", 0
        while True:
            now = time.monotonic()
            step = f"{self._step}: {now - began:.0f} s" if now - began >= HEARTBEAT_S else self._step
            self._progress(step, self._share())
            if now > deadline:
                raise _TooMuch(f"took longer than {limits.plugin_s:g} s")
            if not poll.poll(HEARTBEAT_S * 1000):
                continue
            part = os.read(pipe, 2**20)
            if not part:
                return
            returned += len(part)
            *lines, rest = (rest + part).split(b"\n")
            if returned > limits.returned_bytes or len(rest) > 4 * limits.call_bytes:
                raise _TooMuch(f"returned more than {limits.returned_bytes:,} bytes")
            yield from filter(None, lines)

    def _share(self) -> float:
        """Return for how much of its targets the rule that runs has returned."""
        targets = () if self._rule is None else self._targets(self._rule)
        return len(self._rule.calls) / len(targets) if self._rule is not None and targets else 0.0

    def _take(self, message: dict[str, Any]) -> None:
        plugin = self._runs[self._at]
        match message:
            case {"confined": [network, files, processes]}:
                plugin.confinement = Confinement(*(each and _text(each) for each in (network, files, processes)))
                self._step = f"loading {plugin.source.name}"
            case {"rules": rules, "errors": errors, "output": output}:
                plugin.rules = [RuleRun(_rule_info(each)) for each in rules]
                plugin.errors = [(_text(name), _text(why, MAX_TRACE)) for name, why in errors]
                plugin.output, plugin.loaded = _text(output), True
            case {"rule": int(number)}:
                self._rule = plugin.rules[number]
                self._step = f"running {self._rule.rule.rule_id}"
            case {"call": dict(call)} if self._rule is not None:
                self._rule.calls.append(_call(self._targets(self._rule)[len(self._rule.calls)], call))
            case {"ended": reason, "seconds": seconds, "output": output} if self._rule is not None:
                self._rule.seconds = float(seconds)
                self._cut(self._rule, _text(reason or "ended its process"), _text(output))
                self._rule = None
            case {"left": reason, "output": output}:
                self._leave(plugin, _text(reason or "ended its process"), _text(output))
                self._at += 1
                self._rule = None
            case _:
                raise ValueError("no message, or one out of turn")

    def _targets(self, run: RuleRun) -> tuple[Target, ...]:
        return () if self._inputs is None else self._inputs.targets(run.rule.scope)

    def _leave(self, plugin: PluginRun, reason: str, output: str = "") -> None:
        """Note that no more comes of a plugin."""
        if not plugin.loaded:
            plugin.errors.append((plugin.source.name, f"the plugin {reason} before it was loaded"))
            plugin.output = output
        for each in plugin.rules:
            self._cut(each, reason, output if each is self._rule else "")

    def _cut(self, run: RuleRun, reason: str, output: str) -> None:
        """Note that no more comes of a rule, which is an error of the target that it did not return for."""
        targets = self._targets(run)
        left = len(targets) - len(run.calls)
        if left and not (run.calls and run.calls[-1].ended):
            more = f"; it was not run for {left - 1} more of {len(targets)} targets" if left > 1 else ""
            run.calls.append(
                Call(targets[len(run.calls)], failed=f"the rule {reason}{more}", output=output, ended=True)
            )


class _TooMuch(Exception):
    """A worker took or returned more than it may."""


@contextlib.contextmanager
def _started(sources: Sequence[Source], inputs: Inputs | None, limits: Limits) -> Iterator[int]:
    """Yield the pipe on which a new worker reports; at the end nothing of the worker is left."""
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
                # In a process with threads a child must not wait for a lock that another thread had. This one opens no
                # file or database of its parent, Python makes the locks of its own runtime anew, and a child that
                # hangs all the same is ended.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                supervise(parent, sources, inputs, limits, folder, writer, output)
        stack.callback(_end, pid, reader)
        yield reader


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, reader: int) -> None:
    """End a worker; it closes its pipe when nothing of it is left."""
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
    with contextlib.suppress(ChildProcessError):  # whoever started us may have children reaped at once
        os.waitpid(pid, 0)


def _text(value: Any, limit: int = MAX_TEXT) -> str:
    if type(value) is not str:
        raise ValueError("a text is none")
    return storable(value[-limit:])


def _rule_info(sent: Any) -> RuleInfo:
    rule_id, title, needs = _text(sent["rule_id"]), _text(sent["title"]), sent["needs"]
    sections = {name: _text(sent["sections"][name]) for name in SECTIONS}
    if not _RULE_ID.fullmatch(rule_id) or not set(needs) <= set(PARAMETERS):
        raise ValueError("a rule that no decorator made")
    return RuleInfo(rule_id, title, sections, tuple(needs))


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
        return Call(target, failed="what the rule returned is no result: it changed what it was given")


def _subject(sent: Any) -> SubjectKey:
    kind, key = sent
    if type(key) not in (int, str):
        raise ValueError("no subject")
    return _text(kind), key


def _series(name: Any) -> str:
    if name not in SERIES:
        raise ValueError("no series")
    return str(name)
