from dataclasses import replace

from pertoken.evidence import Evidence
from pertoken.plugins.release_idle_device import release_idle_device
from pertoken.rule import Fleet
from tests.fleets import LLAMA_70B, device, fleet_of
from tests.plugins.proposals import proposals, refusal


def test_the_idle_devices_of_a_host_are_given_back_together() -> None:
    (found,) = proposals(release_idle_device, fleet=fleet_of(LLAMA_70B, idle=2))
    assert found.released == (3, 4)


def test_each_host_is_a_proposal_of_its_own() -> None:
    here, there = device(1, held=0), replace(device(2, held=0), host="gpu-2")
    found = proposals(release_idle_device, fleet=Fleet((), (here, there)))
    assert [each.released for each in found] == [(1,), (2,)]


def test_it_refuses_a_device_that_is_held_or_was_not_seen_for_long() -> None:
    assert "is held" in refusal(release_idle_device, fleet=fleet_of(LLAMA_70B))
    short = Fleet((), (device(1, held=0, observed_h=3),))
    assert "only 3.0 of 20 h" in refusal(release_idle_device, fleet=short)


def test_it_refuses_a_device_of_which_nobody_knows_who_holds_it() -> None:
    unknown = Fleet((), (replace(device(1), seen=Evidence({})),))
    assert "held was not measured" in refusal(release_idle_device, fleet=unknown)


def test_it_refuses_a_host_s_cpus_and_an_empty_fleet() -> None:
    cpu = Fleet((), (replace(device(1, held=0), name="AMD EPYC", accelerator=None),))
    assert "AMD EPYC is no accelerator" in refusal(release_idle_device, fleet=cpu)
    assert refusal(release_idle_device, fleet=Fleet()) == "no devices were seen"
