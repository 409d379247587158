"""Processes of a worker: a supervisor, one process for each task, and one for each rule of a plugin.

    advisor ─ supervisor ─ keeper ─ plugin ─ rule, rule, ...
                                  └ plugin ─ ...

The supervisor creates namespaces with the keeper as their first process; neither runs code of a plugin. The plugin
process is restricted by the kernel and by limits before it imports anything. Each rule runs in a fork of it, so that no
rule sees the changes of another; the rules that this program ships share a plugin process as long as none of them ends
it. When the keeper ends, all its descendants end. Every process exits with `os._exit`; its only open files are standard
input, output and the pipe to the advisor.
"""

import contextlib
import ctypes
import errno
import faulthandler
import gc
import importlib
import inspect
import io
import json
import logging
import os
import platform
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import NoReturn, Self

from pertoken.advisor.proposals import encoded
from pertoken.catalog.market import Market
from pertoken.evidence import Evidence, NotMeasured
from pertoken.metrics import SERIES
from pertoken.rule import FleetEvidence, Rule, subject_key
from pertoken.settings.values import options_of
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.state.wire import Json, storable, type_name

SubjectKey = tuple[str, int | str]
"""Kind and id of a subject of evidence: `("host", 7)`."""

Measured = Mapping[SubjectKey, Evidence]
"""Evidence of one window, by subject."""

Target = Deployment | Service | None
"""Target of a call; None is the fleet."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part of the targets of an advice run, which one process takes from reading their load to pricing."""

    services: frozenset[str] | None = None
    """Names of the services; their deployments are targets, too. None: all."""
    fleet: bool = True
    """Whether rules over the fleet run."""


@dataclass(frozen=True)
class Inputs:
    """The present fleet with its evidence, and the targets for which rules run."""

    fleet: Fleet
    market: Market
    measured: Measured
    """Evidence of the window of the run."""
    windows: Mapping[int, Measured] = field(default_factory=dict)
    """Evidence of windows of rules, by length in seconds. Other rules get the window of the run."""
    shard: Shard = field(default_factory=Shard)

    def over(self, window_s: int | None) -> Measured:
        """Return the evidence of the window of a rule; None: the window of the run."""
        return self.measured if window_s is None else self.windows.get(window_s, self.measured)

    def targets(self, scope: str) -> tuple[Target, ...]:
        """Return the targets of a rule with this scope (`deployment`, `service` or `fleet`), in call order."""
        return self._targets[scope]

    def position(self, target: Target) -> int:
        """Return the position of a target in its scope across all shards."""
        return 0 if target is None else self._positions[subject_key(target)]

    def count(self, scope: str) -> int:
        """Return the number of targets of a scope in all shards."""
        return len(self._all_targets[scope])

    @cached_property
    def _all_targets(self) -> Mapping[str, tuple[Target, ...]]:
        return {"deployment": self.fleet.deployments, "service": self.fleet.services, "fleet": (None,)}

    @cached_property
    def _targets(self) -> Mapping[str, tuple[Target, ...]]:
        return {scope: tuple(filter(self._has, targets)) for scope, targets in self._all_targets.items()}

    @cached_property
    def _positions(self) -> Mapping[SubjectKey, int]:
        subjects = (self.fleet.deployments, self.fleet.services)
        return {subject_key(target): position for targets in subjects for position, target in enumerate(targets)}

    def _has(self, target: Target) -> bool:
        """Return whether a target is in the shard: a deployment is where the first of its services is."""
        if target is None:
            return self.shard.fleet
        if self.shard.services is None:
            return True
        name = target.name if isinstance(target, Service) else self.fleet.listed_by[target.deployment_id][0]
        return name in self.shard.services

    def seen(self, target: Target, window_s: int | None) -> Evidence | FleetEvidence:
        """Return fresh evidence of a target in the window of a rule, with no series marked as read."""
        measured = self.over(window_s)
        if target is None:
            return FleetEvidence(measured)
        evidence = measured.get(subject_key(target))
        return Evidence({}) if evidence is None else evidence.fresh()


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """Limits of rules; each applies to one process, which runs one rule."""

    call_s: float = 10.0
    """Wall time of one rule for one target, and of loading a plugin."""
    rule_s: float = 60.0
    """Wall time of one rule for all its targets."""
    plugin_s: float = 300.0
    """Wall time of a plugin with all its rules, and CPU time of each of its processes."""
    memory_bytes: int = 2 * 2**30
    """Address space in addition to the advisor's."""
    output_bytes: int = 2**20
    """Bytes printed for one target, and of each file in the temporary folder."""
    kept_chars: int = 4000
    """Characters of printed output to keep, from its end."""
    proposals: int = 1000
    """Proposals and refusals for one target."""
    call_bytes: int = 4 * 2**20
    """Bytes returned by a rule for one target."""
    returned_bytes: int = 64 * 2**20
    """Bytes returned by all rules of a worker."""

    @classmethod
    def of_call(cls, call_s: float) -> "RuleLimits":
        """Return limits in proportion to the maximum duration of one call."""
        return cls(call_s=call_s, rule_s=6 * call_s, plugin_s=30 * call_s)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rules of one plugin, or why they were not loaded."""

    name: str
    """Name of the plugin, or the id of a rule with invalid options."""
    rules: tuple[Rule, ...] = ()
    """Rules to run, with their configured options."""
    error: str | None = None
    """Traceback of a failed load, or one line on why it was not loaded."""
    disabled: tuple[Rule, ...] = ()
    """Rules that a person switched off by id; they were loaded with the others of the plugin."""


@dataclass(frozen=True, slots=True)
class PluginSource:
    """A plugin that was not imported yet."""

    name: str
    origin: str
    """The distribution and version, or the file."""
    group: str
    """The distribution or the file: consecutive sources with the same group share a worker."""
    load: Callable[[], Iterable[Loaded]]
    """Import it in a worker; any error is an error of the plugin."""
    is_built_in: bool = False
    """Whether it is code of this program, which the conformity suite tests: its rules change nothing of each other."""


PIPE = 3
"""File descriptor on which a worker reports."""
Task = Callable[[RuleLimits], None]
"""Work of one restricted process; it reports on the pipe."""
MAX_PROCESSES = 1024
"""Maximum processes and threads of a worker, if it has its own namespace in which they are counted."""


# -- restrictions by the kernel --------------------------------------------------------------------------------------

_LIBC = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38

_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000

_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES = _WRITE_FILE | _TRUNCATE | sum(1 << bit for bit in range(4, 14))
"""Writing, removing, creating files of every kind, linking, renaming, truncating."""
_SCOPED = 3
"""Abstract Unix sockets and signals."""

_SYSCALLS = {
    # (AUDIT_ARCH, socket, io_uring_setup, ptrace, process_vm_writev, pidfd_getfd)
    "x86_64": (0xC000_003E, 41, 425, 101, 311, 438),
    "aarch64": (0xC000_00B7, 198, 425, 117, 271, 438),
}


@dataclass(frozen=True, slots=True)
class Confinement:
    """Restrictions of rules: None for each that the kernel granted, else the reason why it did not."""

    network: str | None = None
    """Why a rule could open sockets; None where it could not."""
    files: str | None = None
    """Why a rule could change files outside its temporary folder; None where it could not."""
    processes: str | None = None
    """Why a process that a rule starts could outlive it or signal others; None where it could not."""

    @property
    def label(self) -> str:
        """`confined` without network and with a temporary folder only, else `not confined` with the reasons."""
        reasons = [f"{what}: {why}" for what, why in (("network", self.network), ("files", self.files)) if why]
        return f"not confined ({'; '.join(reasons)})" if reasons else "confined"


def end_with_parent(parent: int, by: int = signal.SIGKILL) -> None:
    """Request a signal to this process when the process that forked it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() not in (parent, 0):  # the parent has already ended; 0 is a parent outside this namespace
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def separate_processes() -> str | None:
    """Give the next children of this process their own process, network and IPC namespaces; return why not."""
    uid, gid = os.geteuid(), os.getegid()
    if _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC) != 0:
        return f"no user namespace ({_error()})"
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        return f"no user namespace ({error.strerror})"
    return None


def confine(folder: str) -> Confinement:
    """Restrict this process and its children: no new sockets, and no changes to files outside `folder`."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return Confinement(_error(), _error(), _error())
    files, signals = _landlock(folder)
    return Confinement(_no_sockets(), files, signals)


def _landlock(folder: str) -> tuple[str | None, str | None]:
    """Return why files, and why signals, are not restricted; None if they are."""
    version = _LIBC.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 3:
        reason = f"no Landlock ({_error()})" if version < 0 else f"Landlock of version {version}, which is too old"
        return reason, reason
    scoped = version >= 6
    attributes = struct.pack("=QQQ", _CHANGES, 0, _SCOPED) if scoped else struct.pack("=Q", _CHANGES)
    ruleset = _LIBC.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return f"no Landlock ({_error()})", f"no Landlock ({_error()})"
    try:
        for path, allowed in ((folder, _CHANGES), (os.devnull, _WRITE_FILE | _TRUNCATE)):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", allowed, opened)
            added = _LIBC.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, ctypes.c_uint32(0))
            os.close(opened)
            if added != 0:
                return f"Landlock: {_error()}", f"Landlock: {_error()}"
        if _LIBC.syscall(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0)) != 0:
            return f"Landlock: {_error()}", f"Landlock: {_error()}"
    finally:
        os.close(ruleset)
    return None, None if scoped else f"Landlock of version {version} does not restrict signals"


def _no_sockets() -> str | None:
    """Refuse new sockets of every family, and system calls that access another process; return why not."""
    syscalls = _SYSCALLS.get(platform.machine())
    if syscalls is None:
        return f"no filter of system calls for {platform.machine()}"
    arch, *refused = syscalls
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06  # opcodes of classic BPF
    allow, refuse = 0x7FFF_0000, 0x0005_0000 | errno.EPERM
    deny = 4 + len(refused) + 1  # index of the last instruction
    program = [(load, 0, 0, 4), (equal, 0, deny - 2, arch), (load, 0, 0, 0), (at_least, deny - 4, 0, 0x4000_0000)]
    program += [(equal, deny - index - 1, 0, number) for index, number in enumerate(refused, start=4)]
    program += [(end, 0, 0, allow), (end, 0, 0, refuse)]
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(packed)
    filtered = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    done = _LIBC.prctl(_PR_SET_SECCOMP, 2, filtered, 0, 0)
    return None if done == 0 else f"no filter of system calls ({_error()})"


def _error() -> str:
    return os.strerror(ctypes.get_errno())


# -- the supervisor and the keeper ---------------------------------------------------------------------------------


def supervise(parent: int, tasks: Sequence[Task], limits: RuleLimits, folder: str, pipe: int, output: int) -> NoReturn:
    """Run the tasks in a fork of the advisor, and end all their processes, however the advisor ends."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGCHLD})
        end_with_parent(parent, signal.SIGTERM)
        _default_signals()
        gc.freeze()  # do not collect the advisor's objects: their finalizers must not run in this process
        _keep_files(pipe, output)
        adopt_orphans()
        shared = separate_processes()
        keeper = _fork(lambda: _keep(tasks, limits, folder, shared))
        while signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGCHLD:
            if os.waitpid(keeper, os.WNOHANG)[0]:
                break
        _end_descendants()
    finally:
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _keep(tasks: Sequence[Task], limits: RuleLimits, folder: str, shared: str | None) -> None:
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
            end_with_parent(parent)
            run()
            status = 0
        except BaseException as error:
            os.write(2, trace(error).encode())
        finally:
            os._exit(status)
    return pid


def _wait(pid: int, limit_s: float, limits: RuleLimits) -> str | None:
    """Return how a child failed, None if it did not; a child that takes too long is killed with its process group."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    deadline = time.monotonic() + limit_s
    in_time = True
    while in_time and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        # Another thread of the plugin may receive the signal: check again soon in any case.
        signal.sigtimedwait({signal.SIGCHLD}, min(0.2, limit_s))
        in_time = time.monotonic() < deadline
    signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
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


def _restricted(task: Task, limits: RuleLimits, folder: str, shared: str | None) -> None:
    os.setpgid(0, 0)
    confined = confine(folder)
    processes = f"{shared}; {confined.processes}" if shared is not None and confined.processes is not None else None
    send(PIPE, confined=[confined.network, confined.files, processes])
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


def do_job(job: Callable[[], object], limits: RuleLimits) -> None:
    """Report the result of a job as JSON, or its traceback."""
    try:
        with _timed(limits):
            message = {"done": job()}
    except BaseException as error:
        message = {"failed": plugin_trace(error)}
    send(PIPE, **message, output=_printed(limits))


# -- a plugin ------------------------------------------------------------------------------------------------------


def load_and_run(source: PluginSource, inputs: Inputs | None, limits: RuleLimits) -> None:
    """Load a plugin, report its rules, and run each rule that has targets in its own process."""
    for number, rule, of_targets in _due(_loaded(source, limits), inputs):
        send(PIPE, rule=number)
        began = time.monotonic()
        ended = _wait(_fork(partial(_rule, rule, of_targets, limits)), limits.rule_s, limits)
        send(PIPE, ended=ended, seconds=time.monotonic() - began, output=_printed(limits))


def run_together(sources: Sequence[PluginSource], inputs: Inputs | None, limits: RuleLimits) -> None:
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
            with MessageBatch(PIPE) as batch:
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


def _loaded(source: PluginSource, limits: RuleLimits) -> Sequence[Rule]:
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


def _limit(limits: RuleLimits) -> None:
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
def _timed(limits: RuleLimits) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, limits.call_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _described(rule: Rule) -> Json:
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
                *(
                    "not set" if value is None else str(value)
                    for value in (getattr(rule.options, option.name), option.default)
                ),
                option.domain,
                option.meaning,
            ]
            for option in declared
        ],
    }


def _printed(limits: RuleLimits) -> str:
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


def _rule(rule: Rule, inputs: Inputs, limits: RuleLimits) -> None:
    os.setpgid(0, 0)
    for message in _messages(rule, inputs, limits):
        send(PIPE, **message)


def _messages(rule: Rule, inputs: Inputs, limits: RuleLimits) -> Iterator[Json]:
    """Run a rule for each of its targets, and yield the reports."""
    for target in inputs.targets(rule.scope):
        yield {"call": _call(rule, target, inputs, limits) | {"output": _printed(limits)}}


def _call(rule: Rule, target: Target, inputs: Inputs, limits: RuleLimits) -> Json:
    """Run a rule for one target; return its yielded values or its error, and the series that it read."""
    seen = inputs.seen(target, rule.window_s)
    given = {"seen": seen, "now": target, "service": target, "fleet": inputs.fleet, "market": inputs.market}
    message: Json = {}
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


def _yielded(yielded: Iterable[object] | None, inputs: Inputs, limits: RuleLimits) -> str:
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


def send(pipe: int, **message: object) -> None:
    """Write one message."""
    _write(pipe, _line(message))


class MessageBatch:
    """Messages that are written together: each write wakes the advisor, which then takes the time of a rule."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lines: list[bytes] = []
        self._written = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()

    def send(self, **message: object) -> None:
        """Write one message with those that follow it within `BATCH_S`."""
        self._lines.append(_line(message))
        if time.monotonic() - self._written >= BATCH_S:
            self._flush()

    def _flush(self) -> None:
        _write(self._pipe, b"".join(self._lines))
        self._lines.clear()
        self._written = time.monotonic()


def _line(message: Json) -> bytes:
    """Return a message as a line that begins with a line break, in case a process ended in the middle of another."""
    return f"\n{json.dumps(message)}\n".encode()


def _write(pipe: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(pipe, remaining) :]


def trace(error: BaseException) -> str:
    """Return a traceback as text that can be stored."""
    return _trace(error, traceback.TracebackException.from_exception)


def plugin_trace(error: BaseException) -> str:
    """Return the traceback of a plugin's error as text that can be stored: only the plugin's calls, then the error.

    Calls of this program are left out, because they do not help the plugin's author.
    """
    return _trace(error, _of_plugin)


def _of_plugin(error: BaseException) -> traceback.TracebackException:
    failure = traceback.TracebackException.from_exception(error)
    seen: list[traceback.TracebackException | None] = [failure]
    while seen:
        error_in_chain = seen.pop()
        if error_in_chain is not None:
            calls = [call for call in error_in_chain.stack if not _is_around(call.filename)]
            stack = traceback.StackSummary.from_list(calls) if calls else None  # None: no header
            error_in_chain.stack = stack  # type: ignore[assignment]
            seen += [error_in_chain.__cause__, error_in_chain.__context__, *(error_in_chain.exceptions or ())]
    return failure


@lru_cache
def _is_around(name: str) -> bool:
    file = Path(name)
    if name.startswith("<frozen importlib") or file.is_relative_to(_IMPORTER):
        return True
    return file.is_relative_to(_PROGRAM) and not file.is_relative_to(_PROGRAM / "plugins")


def _trace(error: BaseException, made: Callable[[BaseException], traceback.TracebackException]) -> str:
    try:
        text = "".join(made(error).format()).strip()
    except BaseException:  # an error that cannot be formatted, for example because its methods fail
        text = f"{type_name(error)} (its traceback cannot be formatted)"
    return storable(text[-MAX_TRACE:])
