"""A real terminal: a shell in tmux, on a server of its own."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TMUX = shutil.which("tmux")
"""Path of tmux; None if it is not installed. `.ci/run` installs it if it can."""
DEADLINE_S = 120.0
PROMPT = "ready>"


class Terminal:
    """One window with a shell."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        """Run a tmux command and return its output."""
        assert TMUX is not None
        command = [TMUX, "-S", str(self._socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def text(self) -> str:
        """Return the window as lines."""
        return self.tmux("capture-pane", "-p", "-t", "screens")

    def type(self, text: str) -> None:
        """Type a line into the shell and return."""
        self.tmux("send-keys", "-t", "screens", "-l", text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Press keys, by their names in tmux."""
        self.tmux("send-keys", "-t", "screens", *keys)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window."""
        self.tmux("resize-window", "-t", "screens", "-x", str(columns), "-y", str(lines))

    def value(self, name: str) -> str:
        """Return a tmux variable of this window, such as `alternate_on`."""
        return self.tmux("display-message", "-p", "-t", "screens", f"#{{{name}}}").strip()

    def until(self, *texts: str, deadline_s: float = DEADLINE_S) -> str:
        """Wait until the window contains all texts and return it; on failure show the window."""
        return self.until_it(lambda shown: all(text in shown for text in texts), str(texts), deadline_s)

    def until_gone(self, text: str) -> str:
        """Wait until a text is not in the window any more."""
        return self.until_it(lambda shown: text not in shown, f"the end of {text!r}")

    def until_it(self, condition: Callable[[str], bool], what: str, deadline_s: float = DEADLINE_S) -> str:
        """Wait until the text of the window meets a condition."""
        deadline = time.monotonic() + deadline_s
        while not condition(shown := self.text()):
            assert time.monotonic() < deadline, f"{what} did not come about:\n{shown}"
            time.sleep(0.15)
        return shown


@contextmanager
def terminal(folder: Path, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    """Open a window with an interactive shell in a folder."""
    terminal = Terminal(folder / "tmux")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("TMUX", "COLUMNS", "LINES"))}
    shell = shlex.join(["env", f"PS1={PROMPT} ", "ENV=", "sh", "-i"])
    assert TMUX is not None
    start = [TMUX, "-S", str(folder / "tmux"), "-f", "/dev/null", "new-session", "-d", "-s", "screens"]
    subprocess.run([*start, "-x", str(columns), "-y", str(lines), shell], check=True, cwd=folder, env=keep)
    try:
        terminal.resize(columns, lines)
        terminal.until(PROMPT)
        yield terminal
    finally:
        terminal.tmux("kill-server")


def pertoken(*arguments: str) -> str:
    """Return a command line that runs this pertoken."""
    return shlex.join([sys.executable, "-P", "-m", "pertoken", *arguments])
