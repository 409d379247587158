from itertools import count

import pytest

from pertoken.window import figures
from pertoken.window.figures import ticking


def ticked(monkeypatch: pytest.MonkeyPatch, items: int, n: int, step_s: float) -> list[tuple[str, float]]:
    clock = count(0.0, step_s)
    monkeypatch.setattr(figures, "TICK_S", 4.0)
    monkeypatch.setattr("pertoken.window.figures.time.monotonic", lambda: next(clock))
    calls: list[tuple[str, float]] = []
    assert list(ticking(range(items), n, "reading", lambda *call: calls.append(call))) == list(range(items))
    return calls


def test_a_phase_is_named_before_its_first_item(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ticked(monkeypatch, 0, 0, 1.0) == [("reading", 0.0)]


def test_quick_items_are_reported_once_in_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = ticked(monkeypatch, 8, 8, 1.0)
    assert calls == [("reading", 0.0), ("reading", 0.5), ("reading", 1.0)]


def test_more_items_than_were_expected_never_pass_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [share for _, share in ticked(monkeypatch, 5, 2, 4.0)]
    assert shares == [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]
