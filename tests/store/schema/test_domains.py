"""Domains of stored values: what is replaced, by what, and why."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.store.schema import telemetry as t
from pertoken.store.schema.domains import DOMAINS, MAX_JSON, CheckedValue, JsonObject, Text, Whole

KNOBS, FACTS, LINKS = (
    DOMAINS[table][column] for table, column in (("epoch", "knobs"), ("deployment", "model_facts"), ("device", "links"))
)
DIGITS = "9" * 5_000


def test_each_domain_is_of_a_column_of_its_table() -> None:
    for table, columns in DOMAINS.items():
        stored = t.metadata.tables[f"telemetry.{table}"].c
        assert set(columns) <= set(stored.keys())
        for name, domain in columns.items():
            required = getattr(domain, "required", False)
            assert required or stored[name].nullable, f"{table}.{name} may not become NULL"


def test_a_number_outside_its_range_becomes_the_nearest_if_it_is_required_and_else_unknown() -> None:
    assert Whole(1, 10).check(10) == CheckedValue(10)
    assert Whole(1, 10).check(11) == CheckedValue(None, "must be a whole number from 1 to 10")
    assert Whole(1, 10, required=True).check(11).value == 10
    assert Whole(1, 10, required=True).check("x").value == 1
    assert Whole(0, 1).check(True).reason is not None


def test_a_text_is_one_printable_line_of_limited_length() -> None:
    assert Text(5).check("abcde") == CheckedValue("abcde")
    assert Text(5).check("abcdef") == CheckedValue("abcde", "is longer than 5 characters")
    assert Text(20).check("a\x1b[2Jb").value == "a\\x1b[2Jb"
    assert Text(4).check("\x1b\x1b").value == "\\x1…"
    assert Text(20).check("\u202e\ue000").value == "\\u202e\\ue000"
    assert Text(20).check(" ") == CheckedValue(None)
    assert Text(20, required=True).check("") == CheckedValue("?", "is empty")
    assert Text(20, required=True).check(b"x").value == "?"
    assert Text(words=("spot",)).check("x") == CheckedValue(None, "must be one of spot")


@pytest.mark.parametrize(
    ("text", "left", "reason"),
    [
        ('{"tp": 2, "new": "x"}', {"tp": 2, "new": "x"}, None),
        (f'{{"tp": {DIGITS}, "pp": 2}}', {"pp": 2}, "tp has a number that is too large"),
        ('{"tp": 0}', {}, "tp must be a whole number from 1 to 1024 ranks"),
        ('{"tp": 1e999}', {}, "tp has a number that is too large"),
        ('{"x": NaN}', {}, "x has a number that is too large"),
        ('{"x": {"a": 1}}', {}, "x must be a short text or a number"),
        ('{"x": "\\u001b"}', {}, "x must be a short text or a number"),
        ('{"x": "\\ud800"}', {}, "x must be a short text or a number"),
        ('{"kv_dtype": "of_a_newer_engine"}', {"kv_dtype": "of_a_newer_engine"}, None),
        ("[1]", {}, "must be a JSON object of at most 256 members"),
        ("{", {}, "is no JSON that can be read"),
        ('{"a":' + "[" * 40_000 + "]" * 40_000 + "}", {}, "is no JSON that can be read"),
        (" " * MAX_JSON + "{}", {}, "is longer than 100,000 characters"),
    ],
)
def test_a_knob_that_is_not_possible_is_left_out_and_the_others_stay(text: str, left: Any, reason: str | None) -> None:
    checked = KNOBS.check(text)
    assert json.loads(str(checked.value)) == left
    assert checked.reason == reason


def test_a_fact_of_a_model_without_size_and_a_link_to_no_uuid_are_left_out() -> None:
    assert json.loads(str(FACTS.check('{"params_total": 0, "n_layers": 8, "n_experts": 0}').value)) == {
        "n_layers": 8,
        "n_experts": 0,
    }
    assert json.loads(str(LINKS.check('{"nvlink": ["a"], "network": [1]}').value)) == {"nvlink": ["a"]}
    assert FACTS.check("null").value is None
    assert json.loads(str(FACTS.check(f'{{"unknown": {DIGITS}}}').value)) == {}


@given(st.text() | st.integers() | st.binary() | st.floats() | st.from_regex(r'\{"(tp|nvlink|n_layers)": .*\}'))
def test_a_replacement_is_within_its_domain(value: Any) -> None:
    for columns in DOMAINS.values():
        for domain in columns.values():
            replaced = domain.check(value).value
            if replaced is None:
                continue
            assert domain.check(replaced) == CheckedValue(replaced) or replaced == "?"
            if isinstance(domain, Text):
                assert isinstance(replaced, str) and replaced.isprintable() and len(replaced) <= domain.max_chars
            if isinstance(domain, JsonObject):
                assert isinstance(json.loads(str(replaced)), dict)
