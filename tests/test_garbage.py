"""The search for cycles rests during a run, and looks at loaded objects only once."""

import gc
import subprocess
import sys

import pytest

from pertoken.garbage import paused

SETTLED = "import gc; from pertoken.garbage import LEFT_OVER, settle; settle()"
RESUMED = "import gc; gc.disable(); from pertoken.garbage import resume; resume()"


def printed(*statements: str) -> str:
    done = subprocess.run([sys.executable, "-c", ";".join(statements)], capture_output=True, text=True, check=True)
    return done.stdout


def test_no_cycles_are_searched_until_the_run_has_ended_however_it_ends() -> None:
    assert gc.isenabled()
    with pytest.raises(LookupError), paused():
        assert not gc.isenabled()
        raise LookupError
    assert gc.isenabled()


def test_a_search_that_was_off_stays_off() -> None:
    with paused():
        with paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_loaded_objects_are_never_collected_and_new_ones_seldom() -> None:
    shown = printed(SETTLED, "print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] == LEFT_OVER)")
    assert shown == "True True\n"


def test_objects_loaded_after_the_start_are_excluded_only_where_the_start_was() -> None:
    later = "from pertoken.garbage import exclude_loaded; kept = [[] for _ in range(5000)]; n = gc.get_freeze_count()"
    added = f"{later}; exclude_loaded(); print(gc.get_freeze_count() - n >= 5000)"
    assert printed(RESUMED, added) == "True\n"
    assert printed("import gc", added) == "False\n"


def test_garbage_collection_resumes_after_the_start_and_skips_loaded_modules() -> None:
    assert printed(RESUMED, "print(gc.get_freeze_count() > 1000, gc.isenabled())") == "True True\n"
    assert printed("import gc; from pertoken.garbage import resume; resume(); print(gc.get_freeze_count())") == "0\n"
