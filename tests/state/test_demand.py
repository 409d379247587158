"""Results and refusals of changes of a demand."""

from typing import Any

import pytest

from pertoken.provenance import Provenance
from pertoken.state.deployment import InvalidEdit
from pertoken.state.diff import diff
from pertoken.state.service import times, to
from tests.state.fleets import CHAT, FLEET


def test_demand_changes_are_relative_or_absolute_and_assumed() -> None:
    changed = CHAT.serving(output_len=times(0.7, "a trial"), response_cache_share=to(0.2)).demand
    assert changed.output_len is not None and changed.output_len.value == pytest.approx(140)
    assert changed.output_len.provenance is Provenance.ASSUMED and changed.output_len.source == "a trial"
    assert changed.response_cache_share is not None and changed.response_cache_share.value == 0.2
    busier = CHAT.serving(requests_per_s=times(1.5)).demand
    assert busier.requests_by_hour_of_week == (9.0,) * 168


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_len": 140}, r"use times\(x\), relative to the present, or to\(x\)"),
        ({"response_cache_share": times(0.5)}, "response_cache_share is unknown"),
        ({"tenants": to(1)}, "'tenants' is not a field of a demand that"),
        ({"cached_share": to(1.5)}, "use a share from 0 to 1"),
    ],
)
def test_a_demand_change_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEdit, match=message.removesuffix(" that")):
        CHAT.serving(**changes)


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), True, "2"])
def test_a_change_takes_finite_numbers_only(number: Any) -> None:
    for make in (times, to):
        with pytest.raises(InvalidEdit, match="use a finite number, 0 or more"):
            make(number)


def test_a_number_that_a_person_supplied_is_marked_and_is_the_same_change_as_the_guess() -> None:
    guess, supplied = (CHAT.serving(output_len=times(0.7, confirmed=literal)) for literal in (False, True))
    assert supplied.demand.output_len is not None and guess.demand.output_len is not None
    assert (supplied.demand.output_len.confirmed, guess.demand.output_len.confirmed) == (True, False)
    assert supplied.demand.output_len.provenance is Provenance.ASSUMED
    assert diff(FLEET, FLEET.edit(supplied)).key == diff(FLEET, FLEET.edit(guess)).key
