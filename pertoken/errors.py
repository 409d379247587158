"""Errors meant for a person: each message says what happened, to what, and what to do next."""

import errno


class PertokenError(Exception):
    """Something the person can mend. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class BadInput(PertokenError):
    """A setting, an option or a file was wrong."""

    exit_code = 2


class LimitReached(PertokenError):
    """A limit of this process, or memory itself, was reached."""

    exit_code = 2


class StoreError(PertokenError):
    """The database is missing, of another version, in use, or cannot be read."""


CORRUPT_STATUS = 3
"""Exit status by which a child process of ours reports `CorruptStore`."""


class CorruptStore(StoreError):
    """The database is damaged: its pages cannot be read, or it is no database."""


class FullStore(StoreError):
    """There is no room for what was to be stored."""


def limit_reached(error: BaseException) -> LimitReached | None:
    """The limit of this process that an error is about, with its value and what to do; None if it is about none."""
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
        no_memory = (
            number == errno.ENOMEM or "cannot allocate memory" in text.lower() or "failed to map segment" in text
        )
        if isinstance(cause, MemoryError) or no_memory:
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
