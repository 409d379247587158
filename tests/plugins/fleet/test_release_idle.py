from dataclasses import replace

from pertoken.evidence import Evidence
from pertoken.plugins.fleet.release_idle import release_idle
from pertoken.rule import Fleet, FleetEvidence
from tests.plugins.proposals import proposals, refusal
from tests.savings.fleets import evidence, fleet_of, host, replicas


def seen(fleet: Fleet, held: frozenset[int] = frozenset(), observed_h: float = 24) -> FleetEvidence:
    """Devices that nobody held but those of `held`."""
    return FleetEvidence(
        {
            ("device", device.device_id): evidence(held=float(device.device_id in held), observed_h=observed_h)
            for device in fleet.devices
        }
    )


def test_each_idle_host_is_a_proposal_of_its_own() -> None:
    fleet = fleet_of([], [host(host_id) for host_id in range(1, 6)])
    released = proposals(release_idle, fleet, seen(fleet))
    assert [{host.host_id for host in fleet.hosts} - {host.host_id for host in after.hosts} for after in released] == [
        {1},
        {2},
        {3},
        {4},
        {5},
    ]


def test_a_host_that_is_idle_in_part_names_what_would_have_to_move() -> None:
    fleet = replicas(1)
    large = replace(fleet, hosts=(host(1, 8),), devices=fleet_of([], [host(1, 8)]).devices)
    (refusal,) = proposals(release_idle, large, seen(large, frozenset({10, 11})))
    assert (refusal.code, refusal.about) == ("part-of-instance", large.hosts[0])
    assert refusal.reason == (
        "6 of 8 devices of gpu-1 are idle, but it can only be released as a whole: "
        "move Llama-3.3-70B to other devices first"
    )


def test_it_refuses_a_host_that_is_held_or_was_not_seen_for_long() -> None:
    fleet = replicas(1)
    assert refusal(release_idle, fleet, seen(fleet))[0] == "held"
    idle = fleet_of([], [host(1)])
    assert refusal(release_idle, idle, seen(idle, frozenset({10, 11})))[0] == "held"
    code, reason = refusal(release_idle, idle, seen(idle, observed_h=3))
    assert code == "observed-briefly" and "only 3.0 of 20 h" in reason


def test_it_refuses_a_device_with_unknown_processes() -> None:
    idle = fleet_of([], [host(1)])
    unknown = FleetEvidence({("device", device.device_id): Evidence({}) for device in idle.devices})
    refusals = proposals(release_idle, idle, unknown)
    assert {refusal.code for refusal in refusals} == {"holders-unknown"}
    assert "held was not measured" in refusals[0].reason


def test_it_refuses_a_host_of_cpus_and_an_empty_fleet() -> None:
    idle = fleet_of([], [host(1)])
    cpus = replace(idle, devices=tuple(replace(device, accelerator=None, kind="cpu") for device in idle.devices))
    assert {proposal.code for proposal in proposals(release_idle, cpus, seen(cpus))} == {"no-accelerator"}
    assert refusal(release_idle, Fleet(), seen(Fleet()))[0] == "no-devices"


def test_a_cpu_beside_idle_accelerators_does_not_keep_the_host() -> None:
    idle = fleet_of([], [host(1, 3)])
    *gpus, last = idle.devices
    mixed = replace(idle, devices=(*gpus, replace(last, accelerator=None, kind="cpu")))
    (after,) = proposals(release_idle, mixed, seen(mixed))
    assert after.hosts == ()
