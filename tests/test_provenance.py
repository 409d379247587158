"""Provenance of numbers."""

import pytest

from pertoken.provenance import Provenance, worst


def test_a_combination_is_as_uncertain_as_its_worst_part() -> None:
    assert worst([Provenance.COUNTER, Provenance.BOUND, Provenance.LISTED]) is Provenance.BOUND
    assert worst([Provenance.COUNTER]).label == "counter"


def test_a_value_of_nothing_has_no_origin() -> None:
    with pytest.raises(ValueError):
        worst([])


def test_stored_numbers_keep_their_meaning() -> None:
    assert [provenance.name for provenance in sorted(Provenance)] == [
        "COUNTER",
        "INTEGRAL",
        "REPORTED",
        "FORECAST",
        "LISTED",
        "ASSUMED",
        "BOUND",
    ]
