"""Texts that a database takes, and names of types that run no code."""

import sqlite3
from contextlib import closing

import pytest

from pertoken.advisor.worker.texts import storable, type_name


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
