"""Programs for which file modes hold even where root runs the tests."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


def _drop() -> None:
    libc = ctypes.CDLL(None)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def run_bound_by_modes(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments; file modes hold for it even where root runs the tests."""
    return subprocess.run(
        [sys.executable, *arguments],
        preexec_fn=_drop,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
