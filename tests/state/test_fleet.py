"""Edits of a whole fleet: what is released, replaced and shared."""

from dataclasses import replace

import pytest

from pertoken.state.deployment import InvalidEdit
from pertoken.state.fleet import Device, Fleet, Partition, deployments_unlike, services_unlike
from pertoken.state.service import Demand, Service
from tests.state.fleets import CHAT, CODE, FLEET, LARGE, NOW, fleet


def test_a_host_that_is_held_cannot_be_released() -> None:
    with pytest.raises(InvalidEdit, match="host-1 is held by llama-70b: move these first"):
        FLEET.release(1)
    with pytest.raises(InvalidEdit, match="host 9 is not part of this fleet"):
        FLEET.release(9)
    assert [device.device_id for device in FLEET.release(4).devices if device.host_id == 4] == []


def test_a_second_engine_does_not_take_the_devices_of_the_first() -> None:
    split = FLEET.replace(NOW, NOW.but(role="prefill"), NOW.but(role="decode"))
    first, second = split.deployment(100), split.deployment(1)
    assert (first.device_ids, second.device_ids) == ((10,), ())
    assert second in split.service("chat").deployments


def test_a_replica_that_nothing_replaces_is_a_matter_of_their_number() -> None:
    with pytest.raises(InvalidEdit, match=r"nothing replaces .*: use scaled_to\(n\) for fewer replicas"):
        FLEET.replace(NOW)


def test_a_deployment_edited_twice_must_be_named_as_the_fleet_has_it() -> None:
    with pytest.raises(InvalidEdit, match="was edited before it was named"):
        FLEET.replace(NOW.but(tp=2), NOW.but(tp=4))


def test_a_deployment_that_serves_two_services_changes_in_both() -> None:
    shared = replace(NOW, serves=(("chat", None), ("code", None)))
    both = Fleet((Service("chat", (shared,)), Service("code", (shared,))))
    assert both.edit(shared.but(tp=2)).service("code").deployments[0].tp == 2
    assert both.edit(both.service("code").but(tp=2)).service("chat").deployments[0].tp == 2
    with pytest.raises(InvalidEdit, match="differs between the services it serves"):
        Fleet((Service("chat", (shared,)), Service("code", (shared.but(tp=2),))))


def test_values_can_be_keys() -> None:
    assert hash(FLEET) == hash(fleet()) and fleet() == FLEET
    assert Demand() == Demand() and LARGE.known is False


def test_an_edit_shares_what_it_leaves_as_it_is() -> None:
    edited = FLEET.edit(NOW.but(tp=2))
    assert [service.name for service in services_unlike(edited, FLEET)] == ["chat"]
    assert deployments_unlike(edited, FLEET) == (NOW.but(tp=2),)
    split, merged = FLEET.replace(NOW, NOW, NOW), FLEET.merge(CHAT.deployments[:2], NOW)
    assert all([service.name for service in services_unlike(fleet, FLEET)] == ["chat"] for fleet in (split, merged))
    assert services_unlike(FLEET, FLEET) == () == deployments_unlike(FLEET.release(4), FLEET)


def test_an_edit_knows_what_it_changed_as_a_comparison_finds_it() -> None:
    shared = replace(CODE.deployments[0], serves=(("code", None), ("chat", None)))
    chat = replace(CHAT, deployments=(*CHAT.deployments, shared))
    fleet = replace(FLEET, services=(chat, replace(CODE, deployments=(shared,))))
    for edited in (shared.but(max_num_seqs=8), fleet.service("code").but(max_num_seqs=8), chat.resized(), chat):
        after = fleet.edit(edited)
        compared = [now for now in after.services if now is not fleet.service(now.name)]
        assert list(services_unlike(after, fleet)) == compared
        assert [service.name for service in after.services] == ["chat", "code"]


def test_a_deployment_of_two_services_differs_once() -> None:
    shared = replace(NOW, serves=(("chat", None), ("code", None)))
    both = Fleet((Service("chat", (shared,)), Service("code", (shared,))))
    assert deployments_unlike(both.edit(shared.but(tp=2)), both) == (shared.but(tp=2),)
    assert both.listed_by[shared.deployment_id] == ["chat", "code"]


def test_the_slowest_link_of_a_deployment_is_that_of_its_worst_pair() -> None:
    def device(device_id: int, host_id: int, *links: tuple[int, str]) -> Device:
        return Device(
            device_id, f"GPU {device_id}", host_id, links=links, partitions=(Partition(100 + device_id, "x"),)
        )

    linked = Fleet(
        devices=(
            device(1, 1, (2, "nvlink"), (3, "pcie_host")),
            device(2, 1, (1, "nvlink"), (3, "cross_socket")),
            device(3, 1, (1, "pcie_host"), (2, "cross_socket")),
            device(4, 1),
            device(5, 2),
        )
    )
    assert linked.slowest_link((1, 2)) == "nvlink"
    assert linked.slowest_link((1, 2, 3)) == "cross_socket"
    assert linked.slowest_link((1, 2, 5)) == "network"
    assert linked.slowest_link((101, 3)) == "pcie_host"
    assert linked.slowest_link((1, 101)) is linked.slowest_link((1,)) is linked.slowest_link((1, 4)) is None
    with pytest.raises(InvalidEdit, match="device 9 is not part"):
        linked.slowest_link((1, 9))
