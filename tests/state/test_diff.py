"""Fleets that no edit leads to have no difference."""

import json
import re
from dataclasses import replace
from hashlib import blake2b

import pytest

from pertoken.state.deployment import InvalidEdit, Placement
from pertoken.state.diff import Diff, diff, plain
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


def test_the_identity_of_a_difference_is_of_its_plain_values() -> None:
    spot = CHAT.on(Placement(purchase="spot", offer="offer-1")).but(weight_dtype="fp8", max_num_seqs=32).scaled_to(3)
    moved = FLEET.edit(spot).replace(CODE.deployments[0], CODE.deployments[0], CODE.deployments[0])
    for after in (FLEET.edit(spot), moved, moved.release(4), FLEET.edit(NOW.on_devices((40,)))):
        difference = diff(FLEET, after)
        identity = [change for change in difference.changes if change.field != "placement.offer"]
        fields = ("kind", "target", "field", "before", "after")
        expected = {
            "changes": [{name: plain(getattr(change, name)) for name in fields} for change in identity],
            **{name: plain(getattr(difference, name)) for name in ("added", "removed", "released")},
        }
        text = json.dumps(expected, sort_keys=True)
        assert difference.key == blake2b(text.encode(), digest_size=8, person=b"pertoken").hexdigest()


def test_an_empty_difference_has_the_identity_that_stored_ones_have() -> None:
    assert Diff().key == "422671b2c19814ff"


def test_replicas_that_change_alike_and_one_that_does_not_have_their_own_changes() -> None:
    first, second, third, fourth = CHAT.deployments
    mixed = replace(
        CHAT,
        deployments=(
            first.but(max_num_seqs=32),
            second.but(max_num_seqs=32).on_devices((40,)),
            third.but(kv_dtype="fp8").on(Placement(region="eu-west-1")),
            fourth.but(max_num_seqs=32),
        ),
    )
    changed = diff(FLEET, FLEET.edit(mixed))
    assert [changed.of("deployment", deployment.deployment_id) for deployment in CHAT.deployments] == [
        {"max_num_seqs": (64, 32)},
        {"max_num_seqs": (64, 32), "device_ids": ((11,), (40,))},
        {
            "kv_dtype": (None, "fp8"),
            "placement.region": ("us-east-1", "eu-west-1"),
            "device_ids": ((20,), ()),
        },
        {"max_num_seqs": (64, 32)},
    ]
