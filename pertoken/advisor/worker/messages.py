"""Messages of a worker, one JSON object per line, and tracebacks as text."""

import importlib
import json
import os
import time
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from pertoken.advisor.worker.texts import storable, type_name

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
