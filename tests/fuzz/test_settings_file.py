"""Settings: the file, the environment, each value of each key."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.config import Settings, load, template
from pertoken.errors import BadInput
from tests.examples import examples
from tests.fuzz.damage import DEEP, TEXTS, damaged, read_or_refused

WHOLE = "\n".join(line.removeprefix("# ") if " = " in line else line for line in template().splitlines())
NOTHING = {"HOME": "/nonexistent"}


def read(folder: Path, body: bytes) -> bool:
    file = folder / "pertoken.toml"
    file.write_bytes(body)
    return read_or_refused(lambda: load(file, NOTHING), BadInput)


def test_the_template_with_damaged_bytes_is_read_or_refused(tmp_path: Path) -> None:
    assert read(tmp_path, template().encode())
    outcomes = [read(tmp_path, body) for source in (template(), WHOLE) for body in damaged(source.encode(), source, 60)]
    assert True in outcomes and False in outcomes


@pytest.mark.parametrize("opening", ["[", "{a=", "a.", '"""'])
def test_a_file_nested_without_end_is_refused(tmp_path: Path, opening: str) -> None:
    assert not read(tmp_path, b"db = " + opening.encode() * DEEP)


def test_a_file_too_large_to_be_settings_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "pertoken.toml").open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(BadInput, match="larger than"):
        load(tmp_path / "pertoken.toml", NOTHING)


@pytest.mark.parametrize("key", Settings.table(), ids=lambda key: key.name)
def test_any_value_of_a_key_is_taken_or_refused(tmp_path: Path, key: Any) -> None:
    nested = "[" * DEEP
    for text in (*TEXTS, nested, "[{}]", "[{a=1}]", "{a={}}", "[[1]]", "{}", "1979-05-27", "nan", "[1,", "true"):
        if "\0" not in text:
            read_or_refused(lambda text=text: load(None, {**NOTHING, key.environment: text}), BadInput)  # type: ignore[misc]


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.dates(), st.times())
tables = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner))


@settings(max_examples=examples(60))
@given(key=st.sampled_from(Settings.table()), value=tables)
def test_a_value_of_any_type_is_taken_or_refused(key: Any, value: Any) -> None:
    """As TOML gives them, and as a program would."""
    try:
        key.parse(value)
    except ValueError:
        return
