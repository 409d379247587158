"""The check of what hosts ship, by its functions on a server."""

import json

import pytest

from pertoken.store.central.functions import rules
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema.domains import DOMAINS, MAX_JSON
from tests.fleet.servers import scalar

DIGITS = "9" * 5_000


def test_each_column_with_a_domain_has_a_rule_but_for_times_that_are_clamped() -> None:
    by_table = json.loads(rules())
    for table, columns in DOMAINS.items():
        assert set(columns) - set(by_table[table]) <= {"first_ts", "last_ts"}


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{"tp": 2, "kv_dtype": "fp8"}', '{"tp": 2, "kv_dtype": "fp8"}'),
        ('{"tp": 0, "pp": 2}', '{"pp": 2}'),
        ('{"tp": "x", "pp": 2}', '{"pp": 2}'),
        ('{"tp": null}', '{"tp": null}'),
        (f'{{"tp": {DIGITS}}}', None),
        (f'{{"x": [{DIGITS}]}}', None),
        ('{"x": 1e999}', None),
        ('{"x": "\\u0000"}', None),
        ("[1]", None),
        ("{", None),
        (" " * MAX_JSON + "{}", None),
        ('{"a":' + "[" * 900 + "]" * 900 + "}", None),
    ],
)
def test_knobs_are_stored_without_numbers_that_they_cannot_have(
    server: StoreLocation, text: str, stored: str | None
) -> None:
    assert scalar(server, "SELECT fleet.possible_knobs(:text)", text=text) == stored
