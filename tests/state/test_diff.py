"""Fleets that no edit leads to have no difference."""

import re
from dataclasses import replace

import pytest

from pertoken.state.diff import diff
from pertoken.state.errors import InvalidEdit
from pertoken.state.placement import Placement
from tests.state.fleets import CHAT, CODE, FLEET, NOW


def test_a_fleet_that_no_edit_leads_to_is_refused() -> None:
    for impossible, message in (
        (replace(FLEET, services=FLEET.services[:1]), "other services than the fleet: code"),
        (replace(FLEET, devices=FLEET.devices[1:]), "other devices on hosts that stay than the fleet"),
        (replace(FLEET, hosts=(*FLEET.hosts, replace(FLEET.hosts[0], host_id=9))), "hosts that the fleet has not"),
    ):
        with pytest.raises(InvalidEdit, match=re.escape(message)):
            diff(FLEET, impossible)


def test_cost_and_promise_of_a_change_are_no_part_of_its_identity() -> None:
    plain = diff(FLEET, FLEET.edit(NOW.but(tp=2)))
    promised = diff(FLEET, FLEET.edit(NOW.but(tp=2).expecting(1, 2, 3, "a paper")))
    assert plain.key == promised.key
    offers = [Placement(accelerator="H200 SXM", offer=offer) for offer in ("a", "b")]
    first, second = (diff(FLEET, FLEET.edit(CODE.on(offer))).key for offer in offers)
    assert first == second


def test_a_proposal_that_equals_the_present_has_an_empty_difference() -> None:
    assert not diff(FLEET, FLEET.edit(NOW.but(tp=1)))
    assert not diff(FLEET, FLEET.edit(CHAT.on(Placement(region="us-east-1"))))
    assert not diff(FLEET, FLEET)
