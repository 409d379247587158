"""States as JSON: differences from the present, and texts that any database stores."""

import sqlite3
from contextlib import closing

import pytest

from pertoken.state.deployment import InvalidEdit
from pertoken.state.wire import sent_state, state_of, storable, type_name
from tests.advisor.hostile import FLEET, NOW, SERVICE


def test_a_state_is_sent_as_its_difference_and_read_again() -> None:
    for state in (NOW.but(tp=1), SERVICE.scaled_to(1), FLEET.release(9)):
        assert state_of(sent_state(state, FLEET), FLEET) == state


def test_a_field_that_no_record_has_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidEdit, match="deployment has no field 'tensor_parallel'"):
        state_of({"deployment": NOW.deployment_id, "set": {"tensor_parallel": 1}}, FLEET)


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain ü", "plain ü"), ("a\0b", "a\\x00b"), ("\ud800", "\\ud800"), ("[/b]\x1b", "[/b]\x1b")],
)
def test_a_text_is_escaped_only_where_a_database_would_refuse_it(text: str, stored: str) -> None:
    assert storable(text) == stored
    with closing(sqlite3.connect(":memory:")) as connection:
        assert connection.execute("SELECT ?", (storable(text),)).fetchone() == (stored,)


def test_the_name_of_a_type_runs_no_code_of_its_metaclass() -> None:
    class Hostile(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise SystemExit

    class Yielded(metaclass=Hostile):
        pass

    assert type_name(Yielded()) == "Yielded"
    assert type_name(3) == "int"
