"""Garbage collection of the agent's processes."""

import subprocess
import sys

SETTLED = """
import gc
from pertoken.process import MAX_NEW_OBJECTS, settle
settle()
print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] == MAX_NEW_OBJECTS, gc.isenabled())
"""


def test_loaded_objects_are_never_collected_and_new_ones_seldom() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLED], capture_output=True, text=True, check=True)
    assert done.stdout == "True True True\n"
