"""The stand-in as a real shared library: `libnvidia-ml.so.1`, found by LD_LIBRARY_PATH in a whole Python process.

Its C is a list of exported symbols that jump to the functions of the one stand-in in Python; a symbol that the
machine's driver is `without` is not exported at all, so that `dlsym` fails as it does on an old driver.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.standin_nvml import environment
from tests.standin_nvml.controlled import Controlled
from tests.standin_nvml.library import exported
from tests.standin_nvml.machine import Machine

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
_HEAD = """
extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int);
extern int PyRun_SimpleString(const char *);
extern int snprintf(char *, unsigned long, const char *, ...);
typedef long (*function)(long, long, long, long, long, long);
static function table[%d];
__attribute__((constructor)) static void fill(void) {
    char text[200];
    int state = PyGILState_Ensure();
    snprintf(text, sizeof text, "from tests.standin_nvml.shared import fill; fill(%%ld)", (long)table);
    PyRun_SimpleString(text);
    PyGILState_Release(state);
}
"""
_SYMBOL = """
int %s(long a, long b, long c, long d, long e, long f) { return (int)table[%d](a, b, c, d, e, f); }
"""


def compiled(machine: Machine, folder: Path) -> dict[str, str]:
    """Compile the library of `machine` into `folder`; the environment in which a Python process finds it.

    `folder / "machine"` describes the machine; `set_machine` changes it. Raises CalledProcessError if C fails.
    """
    assert COMPILER is not None
    names = exported()
    source = _HEAD % len(names) + "".join(
        _SYMBOL % (name, n) for n, name in enumerate(names) if name not in machine.without
    )
    (folder / "nvml.c").write_text(source)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-w", "-o", library, folder / "nvml.c"], check=True)
    given = environment(machine, control=folder / "machine")
    given["PYTHONPATH"] = _without_site(given)
    return given | {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))}


def fill(address: int) -> None:
    """Called by the library as it is loaded: the addresses of its functions."""
    global _library
    names = exported()
    _library = Controlled()
    table = (ctypes.c_void_p * len(names)).from_address(address)
    for n, name in enumerate(names):
        if name not in _library.machine.without:
            table[n] = ctypes.cast(getattr(_library, name), ctypes.c_void_p).value


_library: Controlled | None = None
"""Kept: its functions must outlive this call."""


def _without_site(given: Mapping[str, str]) -> str:
    site = str(Path(__file__).parent / "site")
    return os.pathsep.join(path for path in given["PYTHONPATH"].split(os.pathsep) if path != site)
