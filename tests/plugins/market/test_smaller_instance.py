from dataclasses import replace
from typing import Any

import pytest

from pertoken.evidence import Evidence
from pertoken.plugins.market.smaller_instance import Options, smaller_instance
from pertoken.rule import Commitment, Deployment, Fleet, Placement, Proposal, Service
from tests.plugins.proposals import proposals, refusal, yielded
from tests.savings.fleets import fleet_of, host, llama, low_batch

GIB = 2**30
P5 = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")


def partly_used(replicas: int = 2, ranks: int = 1, placement: Placement = P5, **fields: Any) -> Fleet:
    """Return a fleet of one host of eight devices with replicas of some ranks each."""
    large = host(1, 8, placement)
    deployments = tuple(
        llama(number, large.device_ids[number * ranks : (number + 1) * ranks], placement=placement, **fields)
        for number in range(replicas)
    )
    return fleet_of([Service("chat", deployments)], [large])


def seen(memory_gib: float = 100, cpus: float = 6) -> Evidence:
    return low_batch(host_memory_used=memory_gib * GIB, host_cpus_used=cpus)


def proposed(fleet: Fleet, measured: Evidence | None = None) -> list[tuple[str | None, int | None]]:
    """Return instance type and number of devices of each proposal."""
    states = [state for state in proposals(smaller_instance, fleet, measured or seen()) if isinstance(state, Service)]
    return [
        (service.deployments[0].placement.instance_type, service.deployments[0].placement.devices_per_instance)
        for service in states
    ]


def against(fleet: Fleet, measured: Evidence) -> tuple[str, ...]:
    (proposal,) = yielded(smaller_instance, fleet, measured)
    assert isinstance(proposal, Proposal)
    return proposal.against


def test_two_of_eight_devices_move_to_instances_of_one_device() -> None:
    assert proposed(partly_used()) == [("p5.4xlarge", 1)]


def test_only_the_instance_changes() -> None:
    (service,) = proposals(smaller_instance, partly_used(), seen())
    changed = service.deployments[0].placement
    assert replace(changed, instance_type=P5.instance_type, devices_per_instance=8) == P5


def test_one_proposal_is_made_for_each_number_of_devices_that_holds_a_replica() -> None:
    placement = Placement("gcp", "us-central1", "a2-highgpu-8g", "A100 40GB SXM4", 8, "spot")
    kinds = proposed(partly_used(1, 2, placement))
    assert [devices for _, devices in kinds] == [2, 4]


def test_a_type_with_as_many_devices_and_fewer_cpus_is_smaller() -> None:
    placement = Placement("aws", "us-east-1", "g6e.16xlarge", "L40S", 1, "on_demand")
    one = host(1, 1, placement)
    fleet = fleet_of([Service("chat", (llama(1, one.device_ids, placement=placement),))], [one])
    assert proposed(fleet, seen(20, 2)) == [("g6e.xlarge", 1)]
    assert proposed(fleet, seen(40, 2)) == [("g6e.2xlarge", 1)], "32 GiB do not hold 40"


def test_memory_and_busy_cpus_are_compared_with_the_smaller_instance() -> None:
    code, reason = refusal(smaller_instance, partly_used(), seen(memory_gib=450))
    assert code == "host-too-small"
    assert reason == "p5.4xlarge has 256 GiB of memory, 225 GiB are in use (80% may be)"
    code, reason = refusal(smaller_instance, partly_used(), seen(cpus=30))
    assert (code, reason) == ("host-too-small", "p5.4xlarge has 16 CPUs, 15.0 are busy (80% may be)")


def test_the_headroom_is_an_option() -> None:
    wide = smaller_instance.configured({"headroom": 0.05})
    assert len(proposals(wide, partly_used(), seen(memory_gib=450))) == 1
    assert Options().headroom == 0.2


def test_an_amount_that_was_not_measured_stands_against_the_proposal() -> None:
    disk = "the disk that it uses is not measured: check that weights, images and logs fit on p5.4xlarge"
    assert against(partly_used(), seen()) == (disk,)
    assert against(partly_used(), low_batch()) == (
        disk,
        "host memory was not measured: check that less than 256 GiB is in use",
        "busy CPUs were not measured: check that fewer than 16 are",
    )


def test_a_size_that_is_not_known_stands_against_the_proposal() -> None:
    placement = Placement("lambda", "any", "gpu_8x_h100_sxm5", "H100 SXM5", 8, "on_demand")
    (first, *_) = yielded(smaller_instance, partly_used(placement=placement), seen())
    assert first.against == (
        "the CPUs, memory and disk of gpu_1x_h100_sxm5 are not in the catalog: compare them with what its hosts use",
    )


def test_ranks_of_a_replica_stay_on_one_instance() -> None:
    code, reason = refusal(smaller_instance, partly_used(1, 2))
    assert code == "no-smaller-instance"
    assert reason == (
        "aws lists 0 instances in us-east-1 that are smaller than p5.48xlarge and hold a replica on 2 devices, "
        "1 with fewer than the 2 of a replica"
    )


@pytest.mark.parametrize(
    ("fleet", "code"),
    [
        (partly_used(placement=replace(P5, purchase="owned")), "committed"),
        (partly_used(placement=replace(P5, purchase="reserved")), "committed"),
        (partly_used(placement=replace(P5, region=None)), "instance-unknown"),
        (partly_used(placement=replace(P5, instance_type=None)), "instance-unknown"),
        (partly_used(placement=replace(P5, instance_type="p5.4xlarge", devices_per_instance=1)), "no-smaller-instance"),
    ],
)
def test_it_refuses_what_is_paid_anyway_unknown_or_the_smallest(fleet: Fleet, code: str) -> None:
    assert refusal(smaller_instance, fleet, seen())[0] == code


def test_committed_instances_are_left_alone() -> None:
    commitment = Commitment("aws", "us-east-1", "p5.48xlarge", 1, 30_000_000_000, end_ts=2_000_000_000)
    fleet = replace(partly_used(), commitments=(commitment,))
    assert refusal(smaller_instance, fleet, seen())[0] == "committed"


def test_replicas_that_differ_or_span_hosts_are_refused() -> None:
    fleet = partly_used()
    (service,) = fleet.services
    first, second = service.deployments
    mixed = replace(service, deployments=(first, replace(second, placement=replace(P5, purchase="spot"))))
    assert refusal(smaller_instance, replace(fleet, services=(mixed,)), seen())[0] == "replicas-differ"
    spread: Deployment = llama(1, (10, 20), placement=P5)
    two = fleet_of([Service("chat", (spread,))], [host(1, 8, P5), host(2, 8, P5)])
    assert refusal(smaller_instance, two, seen())[0] == "several-hosts"
    unseen = fleet_of([Service("chat", (llama(1, (99,), placement=P5),))], [host(1, 8, P5)])
    assert refusal(smaller_instance, unseen, seen())[0] == "several-hosts"
