"""Kernel restrictions of a rule's process: no other processes, no network, no files outside one folder.

Nothing here needs a privilege. Landlock restricts signals and which files are created, opened for writing, truncated,
renamed or removed; file modes and times remain changeable. seccomp refuses every new socket. A separate process
namespace ends all processes of a worker when the worker ends.
"""

import ctypes
import errno
import os
import platform
import signal
import struct
from dataclasses import dataclass
from pathlib import Path

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
    def confined(self) -> bool:
        """Whether rules had no network and could write only to a temporary folder."""
        return self.network is None and self.files is None

    @property
    def label(self) -> str:
        """`confined`, or `not confined` with the reasons."""
        reasons = [f"{what}: {why}" for what, why in (("network", self.network), ("files", self.files)) if why]
        return f"not confined ({'; '.join(reasons)})" if reasons else "confined"

    def and_also(self, other: "Confinement") -> "Confinement":
        """Return the confinement of two workers together: a restriction holds only if both have it."""
        return Confinement(self.network or other.network, self.files or other.files, self.processes or other.processes)


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
    known = _SYSCALLS.get(platform.machine())
    if known is None:
        return f"no filter of system calls for {platform.machine()}"
    arch, *refused = known
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
