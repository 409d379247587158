"""The wall clock of the processes under test: the machine's, plus an offset that can be stepped at any time."""

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
VARIABLE = "ADVERSARY_CLOCK"
"""Names the file of the offset; see `stepped_clock.c`."""
_NS = 1_000_000_000


@dataclass
class SteppedClock:
    """A clock for child processes, compiled into `folder`. Python programs, their children and SQLite follow it."""

    folder: Path
    steps: list[tuple[float, float]] = field(default_factory=list)
    """(monotonic seconds, offset in seconds from then on)."""

    def __post_init__(self) -> None:
        """Raise CalledProcessError if C fails."""
        assert COMPILER is not None
        source, self._library = Path(__file__).with_name("stepped_clock.c"), self.folder / "stepped_clock.so"
        flags = ("-O2", "-shared", "-fPIC", "-Wall", "-Werror")
        subprocess.run([COMPILER, *flags, "-o", self._library, source, "-ldl"], check=True)
        self._file = self.folder / "offset"
        self._file.write_bytes(bytes(8))
        self.set(0.0)

    @property
    def offset_s(self) -> float:
        """What is added to the machine's clock now."""
        return self.steps[-1][1]

    def set(self, offset_s: float) -> None:
        """Show the machine's clock plus this offset."""
        # Written in place: processes have this file mapped.
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", round(offset_s * _NS)))
        self.steps.append((time.monotonic(), offset_s))

    def step(self, by_s: float) -> None:
        """Step it, forwards or back."""
        self.set(self.offset_s + by_s)

    def now_s(self) -> float:
        """Return what the processes see as Unix time."""
        return time.time() + self.offset_s

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the environment of a process that sees this clock."""
        preload = os.pathsep.join(filter(None, (str(self._library), base.get("LD_PRELOAD"))))
        return dict(base) | {"LD_PRELOAD": preload, VARIABLE: str(self._file)}
