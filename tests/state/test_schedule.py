import pytest

from pertoken.state.deployment import InvalidEdit
from pertoken.state.service import Schedule


def test_an_hour_is_of_the_week_and_stated_once() -> None:
    with pytest.raises(InvalidEdit, match="hour 168 is not an hour of the week"):
        Schedule(off=frozenset({168}))
    with pytest.raises(InvalidEdit, match="either off or asleep"):
        Schedule(off=frozenset({1}), asleep=frozenset({1}))
