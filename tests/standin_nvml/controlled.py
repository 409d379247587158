"""The stand-in of a whole other process: it reads what it pretends to be from a file, and again when that changes."""

import os
import time
from pathlib import Path

from tests.standin_nvml.library import Library
from tests.standin_nvml.machine import Machine

VARIABLE = "PERTOKEN_STANDIN_NVML"
"""Names the control file: the `repr` of a `Machine`. Write it again (and whole: rename it there) to change a fault."""


CLOCK = "PERTOKEN_STANDIN_CLOCK"
"""`monotonic`: GPUs live by the time since boot, which nobody steps; else by the wall clock."""


class Controlled(Library):
    """A `Library` of the machine in the control file, on the clock of the host."""

    def __init__(self) -> None:
        self._control = Path(os.environ[VARIABLE])
        self._read_ns = 0
        super().__init__(self._fresh(), time.monotonic if os.environ.get(CLOCK) == "monotonic" else time.time)

    @property
    def machine(self) -> Machine:
        if self._control.stat().st_mtime_ns != self._read_ns:
            self._machine = self._fresh()
        return self._machine

    @machine.setter
    def machine(self, machine: Machine) -> None:
        self._machine = machine

    def _fresh(self) -> Machine:
        self._read_ns = self._control.stat().st_mtime_ns
        return Machine.from_text(self._control.read_text())
