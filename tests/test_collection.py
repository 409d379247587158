"""The search for cycles rests during a run, and only then."""

import gc

import pytest

from pertoken.collection import paused


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
