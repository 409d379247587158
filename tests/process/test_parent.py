"""A child that ends with its parent, however that ends."""

import subprocess
import sys

CHILD = "import threading; from pertoken.process import when_parent_ends; ended = threading.Event()"
WAIT = "when_parent_ends(ended.set); print('ready', flush=True); ended.wait(); print('ended', flush=True)"


def test_a_child_reacts_to_the_end_of_its_standard_input_and_not_to_data_on_it() -> None:
    command = [sys.executable, "-c", f"{CHILD}; {WAIT}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("still here\n")
        child.stdin.flush()
        assert child.poll() is None
        child.stdin.close()
        assert child.stdout.readline() == "ended\n"
        assert child.wait(timeout=30) == 0
