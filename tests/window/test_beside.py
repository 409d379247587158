"""A part of a window that a thread reads."""

from threading import Event

import pytest

from pertoken.window.beside import Beside
from pertoken.window.progress import Progress


def test_a_part_is_read_meanwhile_and_its_progress_is_seen_by_whoever_waits_for_it() -> None:
    go_on, seen = Event(), list[tuple[str, float]]()

    def read(progress: Progress) -> str:
        progress("reading histograms", 0.5)
        assert go_on.wait(30)
        return "histograms"

    def show(phase: str, share: float) -> None:
        seen.append((phase, share))
        go_on.set()

    with Beside(read) as histograms:
        assert histograms.result(show) == "histograms"
    assert ("reading histograms", 0.5) in seen


def test_a_failed_read_raises_where_the_value_is_used() -> None:
    def read(progress: Progress) -> str:
        raise LookupError("no such part")

    with Beside(read) as part, pytest.raises(LookupError, match="no such part"):
        part.result(lambda phase, share: None)
