"""Errors meant for a person: each message states what happened, to what, and what to do next."""

import errno
import os

from pertoken.printable import literal


class PertokenError(Exception):
    """An error that a person can correct. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class BadInput(PertokenError):
    """A setting, an option or a file was wrong."""

    exit_code = 2


class BadRecording(BadInput):
    """A file that somebody recorded is damaged, or no recording."""

    exit_code = 1


class LimitReached(PertokenError):
    """A limit of this process, or memory itself, was reached."""

    exit_code = 2


class SystemRefusal(PertokenError):
    """The operating system refused a file, a port or a device."""

    exit_code = 2


class StoreError(PertokenError):
    """The database is missing, of another version, in use, or cannot be read."""


class StoreInaccessible(StoreError):
    """The operating system refuses the database: rights, a path, a disk that is read-only."""

    exit_code = 2


CORRUPT_STATUS = 3
"""Exit status by which a child process of ours reports `CorruptStore`."""


class CorruptStore(StoreError):
    """The database is damaged: its pages cannot be read, or it is no database."""


class NewerStore(StoreError):
    """The database was written by a newer version of this program."""


class ImpossibleValues(CorruptStore):
    """Rows of a host's file hold values that nothing can have, so that they cannot be added up."""


class FullStore(StoreError):
    """There is no room for what was to be stored."""


_NO_MEMORY = ("cannot allocate memory", "failed to map segment")
_LOST_ERROR = ("without exception set", "without setting an exception")


def limit_reached(error: BaseException) -> LimitReached | None:
    """Return the reached limit behind an error, with its value and the next step; None if no limit is behind it."""
    import resource

    def now(limit: int, unit: str) -> str:
        soft, _ = resource.getrlimit(limit)
        return f"no limit of {unit}" if soft == resource.RLIM_INFINITY else f"{soft:,} {unit}"

    cause: BaseException | None = error
    while cause is not None:
        number, text = getattr(cause, "errno", None), str(cause)
        if number in (errno.EMFILE, errno.ENFILE) or "Too many open files" in text:
            return LimitReached(
                f"too many open files: this process may have {now(resource.RLIMIT_NOFILE, 'open')}; raise the limit "
                "(`ulimit -n 1024`, LimitNOFILE= of a service)"
            )
        no_memory = number == errno.ENOMEM or any(words in text.lower() for words in _NO_MEMORY)
        # An import that runs out of memory may lose its own MemoryError.
        lost = isinstance(cause, SystemError) and any(words in text for words in _LOST_ERROR)
        if isinstance(cause, MemoryError) or no_memory or lost:
            return LimitReached(
                f"out of memory: this process may use {now(resource.RLIMIT_AS, 'bytes of address space')}; raise the "
                "limit (`ulimit -v unlimited`, MemoryMax= of a service) or free memory"
            )
        if "can't start new thread" in text or (number == errno.EAGAIN and isinstance(cause, BlockingIOError)):
            return LimitReached(
                f"no new thread or process: the user may run {now(resource.RLIMIT_NPROC, 'of them')}, this process "
                f"may use {now(resource.RLIMIT_AS, 'bytes of address space')}; raise the limit "
                "(`ulimit -u`, `ulimit -v`)"
            )
        # What was handled and replaced (`from None`) is not the cause: a lock that is taken is no limit.
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


MIN_ADDRESS_BYTES = 56 * 2**20
"""Address space below which no command gets far. What Python does where it runs out of it while it loads modules is
anything from this error to an abort, so that it is not tried."""


def too_little_memory() -> LimitReached | None:
    """Return the error of a process whose limit of address space is too low for any command; None if it is not."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return limit_reached(MemoryError()) if soft != resource.RLIM_INFINITY and soft < MIN_ADDRESS_BYTES else None


_JOIN = "run as its owner or join its group"
_NEXT_STEPS = {
    errno.EACCES: _JOIN,
    errno.EPERM: _JOIN,
    errno.EADDRINUSE: "choose another port, or stop what listens there",
    errno.EADDRNOTAVAIL: "choose an address of this host",
    errno.ENOSPC: "free space on that disk, or choose another place",
    errno.EDQUOT: "free space in your quota, or choose another place",
    errno.EROFS: "that disk is mounted read-only: choose another place",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "name a folder",
    errno.ENOENT: "check the name",
    errno.EEXIST: "choose another name, or move that away",
    errno.ELOOP: "a symbolic link there points back to itself: correct the link",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "look at the disk (`dmesg`)",
    errno.ECONNREFUSED: "check that the server runs and its address",
}


def system_error(error: BaseException) -> SystemRefusal | None:
    """Return an error of the operating system as one line: its subject, what happened, the next step.

    None for other errors, and for a closed pipe, of which nobody is left to read.
    """
    if not isinstance(error, OSError) or error.errno is None or error.errno == errno.EPIPE:
        return None
    subject = f"{literal(_name(error.filename))}: " if error.filename is not None else ""
    reason = os.strerror(error.errno).lower()
    user = f" for this user (uid {os.geteuid()})" if error.errno in (errno.EACCES, errno.EPERM) else ""
    return SystemRefusal(f"{subject}{reason}{user}; {_NEXT_STEPS.get(error.errno, 'correct that and try again')}")


def _name(file: object) -> str:
    return os.fsdecode(file) if isinstance(file, str | bytes | os.PathLike) else str(file)
