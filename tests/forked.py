"""Commands in processes of their own, without a second start of Python."""

import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner

from pertoken.cli import main


def run_at_once(commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Run commands at the same time, each in a fork; return the exit code and output of each.

    A fork has all imported that a command needs, which takes a second of CPU in a process that is started for it.
    """
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(command, Path(folder) / str(n)) for n, command in enumerate(commands)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        return [(code, (Path(folder) / str(n)).read_text()) for n, code in enumerate(codes)]


def _fork(command: Sequence[str], output: Path) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of threads in this process: a command takes no lock of theirs
        pid = os.fork()
    if pid == 0:
        code = 70
        try:
            done = CliRunner().invoke(main, command)
            output.write_text(f"{done.output}{done.exception or ''}")
            code = done.exit_code
        finally:
            os._exit(code)
    return pid
