"""The collector of a process that does the same small work for months."""

import subprocess
import sys

COUNT = "import gc; from pertoken.agent.garbage import LEFT_OVER, settle; settle()"
SHOW = "print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] == LEFT_OVER)"


def test_what_is_loaded_is_never_searched_again_and_new_objects_seldom() -> None:
    done = subprocess.run([sys.executable, "-c", f"{COUNT}; {SHOW}"], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
