"""Ending with the process that started us, however it ends."""

import os
import sys
import threading
from collections.abc import Callable


def when_parent_ends(then: Callable[[], None]) -> None:
    """Call `then` from a thread once standard input ends: the kernel closes it even if the parent is killed."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        then()

    threading.Thread(target=wait, name="parent", daemon=True).start()
