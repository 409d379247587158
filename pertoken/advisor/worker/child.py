"""Processes of a worker: a supervisor, one process for each task, and one for each rule of a plugin.

    advisor ─ supervisor ─ keeper ─ plugin ─ rule, rule, ...
                                  └ plugin ─ ...

The supervisor creates namespaces, whose first process is the keeper; neither runs code of a plugin. The plugin process
is restricted by the kernel and by limits before it imports anything. Each rule runs in a fork of it, so that no rule
sees the changes of another; the rules that this program ships share a plugin process as long as none of them ends it.
When the keeper ends, all its descendants end. Every process exits with `os._exit`; its only open files are standard
input, output and the pipe to the advisor.
"""

import contextlib
import faulthandler
import gc
import importlib
import inspect
import io
import json
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn, Self

from pertoken.advisor.worker import confine
from pertoken.advisor.worker.inputs import Inputs, Limits, Source, SubjectKey, Target
from pertoken.advisor.worker.wire import encoded, storable, type_name
from pertoken.evidence import Evidence, NotMeasured
from pertoken.metrics import SERIES
from pertoken.rule import FleetEvidence, Rule
from pertoken.settings.rules import options_of

PIPE = 3
"""File descriptor on which a worker reports."""
Task = Callable[[Limits], None]
"""Work of one restricted process; it reports on the pipe."""
MAX_PROCESSES = 1024
"""Maximum processes and threads of a worker, if it has its own namespace in which they are counted."""


# -- the supervisor and the keeper ---------------------------------------------------------------------------------


def supervise(parent: int, tasks: Sequence[Task], limits: Limits, folder: str, pipe: int, output: int) -> NoReturn:
    """Run the tasks in a fork of the advisor, and end all their processes, however the advisor ends."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGCHLD})
        confine.end_with_parent(parent, signal.SIGTERM)
        _default_signals()
        gc.freeze()  # do not collect the advisor's objects: their finalizers must not run in this process
        _keep_files(pipe, output)
        confine.adopt_orphans()
        shared = confine.separate_processes()
        keeper = _fork(lambda: _keep(tasks, limits, folder, shared))
        while signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGCHLD:
            if os.waitpid(keeper, os.WNOHANG)[0]:
                break
        _end_descendants()
    finally:
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _keep(tasks: Sequence[Task], limits: Limits, folder: str, shared: str | None) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first to be killed when memory is short
    if shared is None:
        resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))
    for task in tasks:
        ended = _wait(_fork(partial(_restricted, task, limits, folder, shared)), limits.plugin_s, limits)
        send(PIPE, left=ended, output=_printed(limits))


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) or number in (signal.SIGALRM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)


def _keep_files(pipe: int, output: int) -> None:
    """Move the pipe and the output file to their fixed descriptors, and close all other files."""
    pipe, output, null = (
        os.dup(descriptor) if descriptor <= PIPE else descriptor
        for descriptor in (pipe, output, os.open(os.devnull, 0))
    )
    for have, want in ((null, 0), (output, 1), (output, 2), (pipe, PIPE)):
        os.dup2(have, want)
    for path in tuple(Path("/proc/self/fd").iterdir()):
        if int(path.name) > PIPE:
            with contextlib.suppress(OSError):  # the descriptor of the listing is already closed
                os.close(int(path.name))


def _end_descendants() -> None:
    """Kill every descendant: the kernel makes orphans children of the supervisor."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        with contextlib.suppress(OSError):
            for pid in children.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _fork(run: Callable[[], None]) -> int:
    """Return the process id of a child that only calls `run`, and ends with this process."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            confine.end_with_parent(parent)
            run()
            status = 0
        except BaseException as error:
            os.write(2, trace(error).encode())
        finally:
            os._exit(status)
    return pid


def _wait(pid: int, limit_s: float, limits: Limits) -> str | None:
    """Return how a child failed, None if it did not; a child that takes too long is killed with its process group."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    deadline = time.monotonic() + limit_s
    in_time = True
    while in_time and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        # Another thread of the plugin may receive the signal: check again soon in any case.
        signal.sigtimedwait({signal.SIGCHLD}, min(0.2, limit_s))
        in_time = time.monotonic() < deadline
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not in_time:
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not in_time:
        return f"took longer than {limit_s:g} s"
    if status == -signal.SIGALRM:
        return f"took longer than {limits.call_s:g} s"
    if status < 0:
        return f"was ended by {_signal(-status)}"
    return f"ended its process with status {status}" if status else None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# -- a task --------------------------------------------------------------------------------------------------------


def _restricted(task: Task, limits: Limits, folder: str, shared: str | None) -> None:
    os.setpgid(0, 0)
    confined = confine.confine(folder)
    if confined.processes is not None and shared is not None:
        confined = confine.Confinement(confined.network, confined.files, f"{shared}; {confined.processes}")
    else:
        confined = confine.Confinement(confined.network, confined.files)
    send(PIPE, confined=[confined.network, confined.files, confined.processes])
    _limit(limits)
    sys.dont_write_bytecode = True
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(1, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
    )
    logging.root.handlers = [
        logging.StreamHandler()
    ]  # the advisor's handlers write to files that are closed in this process
    # The kernel ends a call that takes too long, even if it catches exceptions; its traceback is printed first.
    faulthandler.register(signal.SIGALRM, file=2, all_threads=False, chain=True)
    task(limits)


def do_job(job: Callable[[], Any], limits: Limits) -> None:
    """Report the result of a job as JSON, or its traceback."""
    try:
        with _timed(limits):
            message = {"done": job()}
    except BaseException as error:
        message = {"failed": plugin_trace(error)}
    send(PIPE, **message, output=_printed(limits))


# -- a plugin ------------------------------------------------------------------------------------------------------


def load_and_run(source: Source, inputs: Inputs | None, limits: Limits) -> None:
    """Load a plugin, report its rules, and run each rule that has targets in its own process."""
    for number, rule, of_targets in _due(_loaded(source, limits), inputs):
        send(PIPE, rule=number)
        began = time.monotonic()
        ended = _wait(_fork(partial(_rule, rule, of_targets, limits)), limits.rule_s, limits)
        send(PIPE, ended=ended, seconds=time.monotonic() - began, output=_printed(limits))


def run_together(sources: Sequence[Source], inputs: Inputs | None, limits: Limits) -> None:
    """Load plugins of this program, and run all of their rules in this process.

    A rule that takes too long ends the process. Measured for 29 rules of 1,000 deployments: 60 forks take 2.4 s of CPU,
    mostly for copies of memory pages that Python writes reference counts to, and each makes its series alone.
    """
    for n, source in enumerate(sources):
        if n:
            send(PIPE, left=None, output=_printed(limits))
        for number, rule, of_targets in _due(_loaded(source, limits), inputs):
            send(PIPE, rule=number)
            began = time.monotonic()
            with Batch(PIPE) as batch:
                for message in _messages(rule, of_targets, limits):
                    batch.send(**message)
                    if time.monotonic() - began > limits.rule_s:
                        raise TimeoutError(f"{rule.rule_id} took longer than {limits.rule_s:g} s")
            send(PIPE, ended=None, seconds=time.monotonic() - began, output=_printed(limits))


def _due(rules: Iterable[Rule], inputs: Inputs | None) -> Iterator[tuple[int, Rule, Inputs]]:
    """Yield the rules that have targets, each with its number and its inputs."""
    for number, rule in enumerate(rules):
        if inputs is not None and inputs.targets(rule.scope):
            yield number, rule, inputs


def _loaded(source: Source, limits: Limits) -> Sequence[Rule]:
    """Load a plugin and report its rules, or why it cannot be loaded; return the rules to run."""
    try:
        with _timed(limits):
            loaded = tuple(source.load())
            rules = [rule for module in loaded for rule in module.rules]
            errors = [[module.name, module.error] for module in loaded if module.error is not None]
            described = [_described(rule) for rule in rules]
            disabled = [_described(rule) for module in loaded for rule in module.disabled]
    except BaseException as error:
        send(PIPE, rules=[], disabled=[], errors=[[source.name, plugin_trace(error)]], output=_printed(limits))
        return ()
    send(PIPE, rules=described, disabled=disabled, errors=errors, output=_printed(limits))
    return rules


def _limit(limits: Limits) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    memory = pages * resource.getpagesize() + limits.memory_bytes
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, limits.output_bytes),
        (resource.RLIMIT_CPU, int(limits.plugin_s) + 1),  # of all threads: the limit of wall time is lower
        (resource.RLIMIT_CORE, 0),
    ):
        value = min(value, *(bound for bound in resource.getrlimit(limit) if bound != resource.RLIM_INFINITY), value)
        resource.setrlimit(limit, (value, value))


@contextlib.contextmanager
def _timed(limits: Limits) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, limits.call_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _described(rule: Rule) -> dict[str, Any]:
    declared = () if rule.options is None else options_of(type(rule.options))
    return {
        "rule_id": rule.rule_id,
        "title": rule.title,
        "sections": rule.sections,
        "needs": list(rule.needs),
        "window_s": rule.window_s,
        "series": None if rule.series is None else list(rule.series),
        "body": (inspect.getdoc(rule.function) or "").partition("\n")[2].partition("## ")[0].strip(),
        "options": [
            [
                option.name,
                *map(_option_text, (getattr(rule.options, option.name), option.default)),
                option.domain,
                option.meaning,
            ]
            for option in declared
        ],
    }


def _option_text(value: object) -> str:
    return "not set" if value is None else str(value)


def _printed(limits: Limits) -> str:
    """Return the output since the last call, only the end if it is long; of a traceback, only the plugin's part."""
    size = os.fstat(1).st_size
    if size == 0:
        return ""
    text = os.pread(1, 4 * limits.kept_chars, max(0, size - 4 * limits.kept_chars)).decode("utf-8", "backslashreplace")
    text = text.partition(f'  File "{__file__}"')[0]  # the most recent calls are first
    os.ftruncate(1, 0)
    os.lseek(1, 0, os.SEEK_SET)
    return text[-limits.kept_chars :]


# -- a rule --------------------------------------------------------------------------------------------------------


def _rule(rule: Rule, inputs: Inputs, limits: Limits) -> None:
    os.setpgid(0, 0)
    for message in _messages(rule, inputs, limits):
        send(PIPE, **message)


def _messages(rule: Rule, inputs: Inputs, limits: Limits) -> Iterator[dict[str, Any]]:
    """Run a rule for each of its targets, and yield what to report."""
    for target in inputs.targets(rule.scope):
        yield {"call": _call(rule, target, inputs, limits) | {"output": _printed(limits)}}


def _call(rule: Rule, target: Target, inputs: Inputs, limits: Limits) -> dict[str, Any]:
    """Run a rule for one target; return its yielded values or its error, and the series that it read."""
    seen = inputs.seen(target, rule.window_s)
    given = {"seen": seen, "now": target, "service": target, "fleet": inputs.fleet, "market": inputs.market}
    message: dict[str, Any] = {}
    try:
        with _timed(limits):
            message["yielded"] = _yielded(rule(**{name: given[name] for name in rule.needs}), inputs, limits)
    except BaseException as error:
        blocked = _blocked(error)  # its row has no traceback: one of a thousand errors takes 0.2 s to make
        message = {"failed": plugin_trace(error)} if blocked is None else {"blocked": blocked}
    try:
        message["read"] = _read(seen)
    except BaseException as error:  # it modified its evidence
        message = {"failed": plugin_trace(error), "read": []}
    return message


def _yielded(yielded: Any, inputs: Inputs, limits: Limits) -> str:
    sent: list[str] = []
    size = 0
    for record in () if yielded is None else yielded:
        if len(sent) == limits.proposals:
            raise ValueError(f"it made more than {limits.proposals} proposals")
        sent.append(json.dumps(encoded(record, inputs.fleet)))
        size += len(sent[-1])
        if size > limits.call_bytes:
            raise ValueError(f"it returned more than {limits.call_bytes:,} bytes for one target")
    return f"[{','.join(sent)}]"


def _blocked(error: BaseException) -> list[str] | None:
    """Return the series that was not measured and how to measure it; None for any other error."""
    try:
        return [error.series, error.remedy] if isinstance(error, NotMeasured) and error.series in SERIES else None
    except BaseException:  # attributes of a subclass may run any code
        return None


def _read(seen: Evidence | FleetEvidence) -> list[tuple[SubjectKey | None, list[str]]]:
    """Return the names of the series that were read, by subject; None stands for the target."""
    if isinstance(seen, FleetEvidence):
        return [(subject, list(evidence.read)) for subject, evidence in seen.read]
    return [(None, list(seen.read))] if seen.read else []


# -- messages: one JSON object per line, and tracebacks as text ------------------------------------------------------

_PROGRAM = Path(__file__).parents[2]
_IMPORTER = Path(importlib.__file__).parent
MAX_TRACE = 20_000
"""Characters of a traceback to keep, from its end."""


BATCH_S = 0.1
"""Time for which messages of a batch are kept, seconds."""


def send(pipe: int, **message: Any) -> None:
    """Write one message."""
    _write(pipe, _line(message))


class Batch:
    """Messages that are written together: each write wakes the advisor, which then takes the time of a rule."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lines: list[bytes] = []
        self._written = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()

    def send(self, **message: Any) -> None:
        """Write one message with those that follow it within `BATCH_S`."""
        self._lines.append(_line(message))
        if time.monotonic() - self._written >= BATCH_S:
            self._flush()

    def _flush(self) -> None:
        _write(self._pipe, b"".join(self._lines))
        self._lines.clear()
        self._written = time.monotonic()


def _line(message: dict[str, Any]) -> bytes:
    """Return a message as a line that begins with a line break, in case a process ended in the middle of another."""
    return f"\n{json.dumps(message)}\n".encode()


def _write(pipe: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]


def trace(error: BaseException) -> str:
    """Return a traceback as text that can be stored."""
    return _text(error, traceback.TracebackException.from_exception)


def plugin_trace(error: BaseException) -> str:
    """Return the traceback of a plugin's error as text that can be stored: only the plugin's calls, then the error.

    Calls of this program are left out, because they do not help the plugin's author.
    """
    return _text(error, _of_plugin)


def _of_plugin(error: BaseException) -> traceback.TracebackException:
    failure = traceback.TracebackException.from_exception(error)
    seen: list[traceback.TracebackException | None] = [failure]
    while seen:
        error_in_chain = seen.pop()
        if error_in_chain is not None:
            error_in_chain.stack = _calls_of_plugin(error_in_chain.stack)
            seen += [error_in_chain.__cause__, error_in_chain.__context__, *(error_in_chain.exceptions or ())]
    return failure


def _calls_of_plugin(stack: traceback.StackSummary) -> Any:
    """Return the calls outside this program and Python's import; None if there are none."""
    own = [frame for frame in stack if not _is_around(frame.filename)]
    return traceback.StackSummary.from_list(own) if own else None


@lru_cache
def _is_around(name: str) -> bool:
    file = Path(name)
    if name.startswith("<frozen importlib") or file.is_relative_to(_IMPORTER):
        return True
    return file.is_relative_to(_PROGRAM) and not file.is_relative_to(_PROGRAM / "plugins")


def _text(error: BaseException, made: Callable[[BaseException], traceback.TracebackException]) -> str:
    try:
        text = "".join(made(error).format()).strip()
    except BaseException:  # an error that cannot be formatted, for example because its methods fail
        text = f"{type_name(error)} (its traceback cannot be formatted)"
    return storable(text[-MAX_TRACE:])
