"""Errors for a person: which limit was reached, and what the operating system refused."""

import errno
import os

import pytest

from pertoken.errors import BadInput, CorruptStore, StoreError, limit_reached, system_error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "too many open files"),
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
        (RuntimeError("can't start new thread"), "no new thread or process"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "no new thread or process"),
    ],
)
def test_a_limit_is_recognised_in_an_error_and_in_its_cause(error: Exception, text: str) -> None:
    wrapped = StoreError("the database cannot be opened")
    wrapped.__cause__ = error
    for raised in (error, wrapped):
        limit = limit_reached(raised)
        assert limit is not None and str(limit).startswith(text) and "raise the" in str(limit)


def test_a_handled_system_error_is_no_limit() -> None:
    with pytest.raises(StoreError) as caught:
        try:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        except BlockingIOError:
            raise StoreError("an agent already writes there") from None
    assert limit_reached(caught.value) is None


def test_a_refusal_of_the_system_is_one_line_with_the_next_step() -> None:
    refused = system_error(PermissionError(errno.EACCES, "Permission denied", "/srv/telemetry.db"))
    assert str(refused) == (
        f"/srv/telemetry.db: permission denied for this user (uid {os.geteuid()}); run as its owner or join its group"
    )
    assert system_error(BrokenPipeError(errno.EPIPE, "Broken pipe")) is None
    assert system_error(ValueError("not of the system")) is None


def test_a_wrong_input_and_a_damaged_database_differ_in_exit_status() -> None:
    assert (BadInput.exit_code, CorruptStore.exit_code) == (2, 1)
