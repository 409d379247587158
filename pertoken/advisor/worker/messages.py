"""What a worker reports, one JSON object a line, and the texts of what went wrong."""

import json
import os
import traceback
from typing import Any

from pertoken.advisor.worker.wire import storable, type_name

MAX_TRACE = 20_000
"""Characters of a traceback that are kept, its last ones."""


def send(pipe: int, **message: Any) -> None:
    """Write one message. It begins with a line break, for a process that ended in the middle of another message."""
    _write(pipe, f"\n{json.dumps(message)}\n".encode())


def _write(pipe: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]


def trace(error: BaseException) -> str:
    """Return a traceback as text that can be stored."""
    try:
        text = "".join(traceback.format_exception(error)).strip()
    except BaseException:  # an error that cannot be shown, such as one whose own methods fail
        text = f"{type_name(error)} (its traceback cannot be formatted)"
    return storable(text[-MAX_TRACE:])
