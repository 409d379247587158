"""Reports of one worker: its messages, each checked, as results of plugins."""

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from pertoken.advisor.worker.child import load_and_run, run_together
from pertoken.advisor.worker.confine import Confinement
from pertoken.advisor.worker.inputs import Inputs, SubjectKey, Target
from pertoken.advisor.worker.limits import Limits
from pertoken.advisor.worker.messages import MAX_TRACE
from pertoken.advisor.worker.process import HEARTBEAT_S, TooMuch, lines, started
from pertoken.advisor.worker.results import Call, OptionValue, PluginRun, RuleInfo, RuleRun
from pertoken.advisor.worker.source import Source
from pertoken.advisor.worker.texts import storable
from pertoken.advisor.worker.wire import MAX_TEXT
from pertoken.evidence import EPOCHS
from pertoken.metrics import SERIES
from pertoken.rule import MAX_WINDOW_S, MIN_WINDOW_S, PARAMETERS, SECTIONS
from pertoken.window.parts import PARTS
from pertoken.window.progress import Progress

RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Worker:
    """One worker: the processes of one group of plugins, and their reports so far."""

    def __init__(
        self,
        sources: tuple[Source, ...],
        inputs: Inputs | None,
        limits: Limits,
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
        self._at = 0
        """Index of the current plugin."""
        self._rule: RuleRun | None = None
        """The running rule."""
        self._pipe: int | None = None
        self._no_worker = ""
        """Why the worker did not start."""
        self.ended_early = False
        """Whether a plugin ended before all of its rules had run."""

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
        sources = tuple(run.source for run in self._runs)
        tasks = (
            [partial(run_together, sources, self._inputs)]
            if self._together
            else [partial(load_and_run, source, self._inputs) for source in sources]
        )
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
            self.ended_early = True
            self._leave(run, reason)
        for run in self._runs[1:] if self._together else ():
            run.confinement = self._runs[0].confinement

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
            case {"unread": str(part)} if self._rule is not None and part in self._unread_parts(self._rule):
                self._rule.unread = part
            case {"ended": reason, "seconds": seconds, "output": output} if self._rule is not None:
                self._rule.seconds = float(seconds)
                self._cut(self._rule, _text(reason or "ended its process"), _text(output))
                self._rule.done = self._rule.unread is None
                self._rule = None
            case {"left": reason, "output": output}:
                self.ended_early |= reason is not None
                self._leave(plugin, _text(reason or "ended its process"), _text(output))
                self._at += 1
                self._rule = None
            case _:
                raise ValueError("an invalid message, or one out of order")

    def _targets(self, run: RuleRun) -> tuple[Target, ...]:
        return () if self._inputs is None else self._inputs.targets(run.rule.scope)

    def _unread_parts(self, run: RuleRun) -> frozenset[str]:
        if self._inputs is None or not self._inputs.run(run.rule.window_s):
            return frozenset()
        return frozenset(PARTS) - self._inputs.over(run.rule.window_s).window.parts.names

    def _leave(self, plugin: PluginRun, reason: str, output: str = "") -> None:
        """Record that a plugin ended early."""
        if not plugin.loaded:
            plugin.errors.append((plugin.source.name, f"the plugin {reason} before it was loaded"))
            plugin.output = output
        for rule in plugin.rules:
            if not rule.done and self._inputs is not None and self._inputs.run(rule.rule.window_s):
                self._cut(rule, reason, output if rule is self._rule else "")
                rule.done = rule.unread is None

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
