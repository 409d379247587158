"""Programs for which file modes hold even where root runs the tests."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_CAPBSET_DROP = 24
_MODES = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
_ALL = tuple(range(64))


def run_bound_by_modes(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments; file modes hold for it even where root runs the tests."""
    return _run_without(_MODES, arguments, cwd, environment)


def run_without_rights(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run Python without any capability: it reads what its user owns, and looks into no process that has one."""
    return _run_without(_ALL, arguments, None, environment)


def _run_without(
    capabilities: Sequence[int], arguments: Sequence[str], cwd: Path | None, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    def drop() -> None:
        libc = ctypes.CDLL(None)
        for capability in capabilities:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)

    return subprocess.run(
        [sys.executable, *arguments],
        preexec_fn=drop,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
