from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pertoken.reports.alerts import AlertEventKind, AlertState, Phase, advance


def run(steps: Sequence[bool | None], for_s: float = 120) -> list[AlertEventKind]:
    state: AlertState | None = None
    events = []
    for n, holds in enumerate(steps):
        state, event = advance(state, holds, 60 * n, for_s)
        events += [event] if event else []
    return events


def test_it_fires_once_it_held_long_enough_and_resolves_once_it_did_not() -> None:
    assert run([True, True]) == []
    assert run([True, True, True, True, True]) == [AlertEventKind.FIRED]
    assert run([True] * 3 + [False] * 2) == [AlertEventKind.FIRED]
    assert run([True] * 3 + [False] * 5) == [AlertEventKind.FIRED, AlertEventKind.RESOLVED]


def test_a_flicker_neither_fires_nor_resolves() -> None:
    assert run([True, True, False, True, True, False]) == []
    assert run([True] * 3 + [False, True, False, True]) == [AlertEventKind.FIRED]


def test_an_unknown_figure_moves_nothing() -> None:
    assert advance(None, None, 0, 0) == (None, None)
    firing = AlertState(Phase.FIRING, 0, 0)
    assert advance(firing, None, 10_000, 0) == (firing, None)


@given(st.lists(st.sampled_from([True, False, None]), max_size=60), st.sampled_from([0, 60, 300]))
def test_it_never_fires_twice_without_resolving(steps: list[bool | None], for_s: float) -> None:
    events = run(steps, for_s)
    assert events == [AlertEventKind.FIRED if n % 2 == 0 else AlertEventKind.RESOLVED for n in range(len(events))]
