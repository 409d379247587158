"""Title, commands and undo of each lever, from the difference of two fleets alone."""

import re
from dataclasses import replace

import pytest

from pertoken.advisor.changes.commands import Addresses, DeviceAddress, commands
from pertoken.advisor.changes.title import PricingChoices, change_lines, target_of, title, touches
from pertoken.state.deployment import Workload
from pertoken.state.diff import diff
from pertoken.testing import deployment, fleet, service
from tests.advisor.builders import FLEET, LEVERS, after
from tests.state.levers import H200

WHERE = Addresses(
    {deployment.deployment_id: host.name for host in FLEET.hosts for deployment in FLEET.deployments_on(host)},
    {device.device_id: DeviceAddress(f"GPU-{device.device_id}", "nvidia") for device in FLEET.devices},
)


@pytest.mark.parametrize("lever", LEVERS)
def test_each_lever_has_a_title_its_changes_commands_and_undo(lever: str) -> None:
    difference = diff(FLEET, after(lever))
    step = commands(difference, FLEET, WHERE, PricingChoices())
    assert title(difference, FLEET, PricingChoices())
    assert change_lines(difference, FLEET, PricingChoices())
    assert step.apply and step.undo
    assert all(line.strip() and "None" not in line for line in (*step.apply, *step.undo))
    assert touches(difference, FLEET)
    assert target_of(difference, FLEET).kind in ("service", "host", "fleet")


def test_choices_of_pricing_are_in_title_and_commands() -> None:
    difference = diff(FLEET, after("quantize weights"))
    chosen = PricingChoices({"chat": (4, 2)}, ("host-2",), priced=True)
    assert title(difference, FLEET, chosen) == "weights bf16 → fp8 on 4 replicas; 4 → 2 replicas"
    step = commands(difference, FLEET, WHERE, chosen)
    flag, check, *rest = step.apply
    assert flag == "llama-70b on host-1, host-2: set --quantization fp8"
    assert check.startswith("curl --fail "), "servers with the new flag serve before any of them is stopped"
    assert rest[:4] == [
        "Scale chat from 4 to 2 replicas.",
        "Drain host-2 (p5.48xlarge).",
        "on host-2: nvidia-smi --query-compute-apps=pid --format=csv,noheader  # go on only if it prints nothing",
        "Give host-2 back with its 2 devices.",
    ]
    assert [line.split()[:3] for line in rest[4:]] == [
        ["INSTANCE=$(aws", "ec2", "describe-instances"],
        ["aws", "ec2", "terminate-instances"],
    ]
    assert step.undo[0] == "Order host-2 (p5.48xlarge) again."
    assert step.undo[1].startswith("aws ec2 run-instances --region us-east-1 --instance-type p5.48xlarge ")
    assert step.undo[2:] == (
        "Scale chat to 4 replicas again.",
        "llama-70b on host-1, host-2: remove --quantization",
    )
    stays = PricingChoices(priced=True)
    assert title(difference, FLEET, stays) == "weights bf16 → fp8 on 4 replicas"
    assert not any("Scale" in line for line in commands(difference, FLEET, WHERE, stays).apply)


def test_a_move_starts_the_new_number_of_servers_and_its_undo_orders_a_host_once() -> None:
    difference = diff(FLEET, FLEET.edit(FLEET.service("chat").on(H200).resized()))
    hosts = tuple(dict.fromkeys(host.name for host in FLEET.hosts if FLEET.deployments_on(host)[:1]))[:2]
    step = commands(difference, FLEET, WHERE, PricingChoices({"chat": (4, 2)}, hosts, priced=True))
    assert [line for line in step.apply if ": start 2 servers on H200 SXM" in line]
    assert "Scale chat from 4 to 2 replicas." in step.apply
    assert [line for line in step.undo if ": start 4 servers on H100" in line]
    assert len([line for line in step.undo if " run-instances " in line]) == len(hosts)


def test_device_knobs_are_nvidia_smi_commands_with_undo() -> None:
    cap = commands(diff(FLEET, after("power cap")), FLEET, WHERE, PricingChoices())
    assert cap.apply == ("on host-1: nvidia-smi -i GPU-10 -pl 450",)
    assert cap.undo == ("on host-1: set the power cap to the default that `nvidia-smi -q -d POWER` shows",)
    clock = commands(diff(FLEET, after("SM clock")), FLEET, WHERE, PricingChoices())
    assert clock.apply == ("on host-1: nvidia-smi -i GPU-10 -lgc 1200,1200",)
    assert clock.undo == ("on host-1: nvidia-smi -i GPU-10 -rgc",)
    capped = FLEET.edit(FLEET.deployment(100).but(power_cap_w=700))
    lowered = diff(capped, capped.edit(capped.deployment(100).but(power_cap_w=450)))
    assert commands(lowered, capped, WHERE, PricingChoices()).undo == ("on host-1: nvidia-smi -i GPU-10 -pl 700",)
    other = replace(WHERE, devices={10: DeviceAddress("0000:01:00.0", "amd")})
    assert "vendor's tool" in commands(lowered, capped, other, PricingChoices()).apply[0]


def test_a_device_is_divided_and_made_whole_by_nvidia_smi() -> None:
    step = commands(diff(FLEET, after("MIG")), FLEET, WHERE, PricingChoices())
    assert step.apply == (
        "on host-4: nvidia-smi -i GPU-40 -mig 1",
        "on host-4: nvidia-smi mig -i GPU-40 -cgi 3g.40gb,3g.40gb -C",
    )
    assert step.undo[-1] == "on host-4: nvidia-smi -i GPU-40 -mig 0"


def test_a_change_of_one_deployment_needs_no_name_before_its_commands() -> None:
    alone = FLEET.edit(FLEET.service("code").but(max_num_seqs=256))
    assert commands(diff(FLEET, alone), FLEET, WHERE, PricingChoices()).apply == ("set --max-num-seqs 256",)


def test_a_device_is_divided_after_what_runs_on_it_was_stopped() -> None:
    fleet_of_two = fleet(service("a", deployment("Llama-3.1-8B")), service("b", deployment("Qwen3-1.7B")))
    one, other = fleet_of_two.deployments
    divided = fleet_of_two.replace(one, one.on_devices(other.device_ids)).partition(10, "3g.40gb", "1g.10gb")
    first, second = (partition.partition_id for partition in divided.device(10).partitions)
    sliced = divided.replace(divided.deployment(1), one.on_devices((first,)))
    sliced = sliced.replace(other, other.on_devices((second,))).release(2)
    where = Addresses({1: "gpu-1", 2: "gpu-2"}, {10: DeviceAddress("GPU-10", "nvidia")})
    stop, mode, divide, *moves = commands(diff(fleet_of_two, sliced), fleet_of_two, where, PricingChoices()).apply
    assert stop.startswith("on gpu-1: stop meta-llama/Llama-3.1-8B")
    assert mode == "on gpu-1: nvidia-smi -i GPU-10 -mig 1"
    assert divide == "on gpu-1: nvidia-smi mig -i GPU-10 -cgi 3g.40gb,1g.10gb -C"
    assert "or it is not served meanwhile" in stop
    assert all("its new MIG instance (its UUID is in `nvidia-smi -L`)" in line for line in moves[:2])


def test_a_merge_changes_the_server_that_stays_and_drains_the_other() -> None:
    fleet_of_two = fleet(service("a", deployment()), service("b", deployment()))
    one, other = fleet_of_two.deployments
    merged = fleet_of_two.merge((one, other), one.but(lora_adapters=("law",))).release(2)
    where = Addresses({1: "gpu-1", 2: "gpu-2"}, {10: DeviceAddress("GPU-10", "nvidia")})
    step = commands(diff(fleet_of_two, merged), fleet_of_two, where, PricingChoices())
    restart, check, route, stop, drain, unused, give, *_ = step.apply
    assert "--enable-lora" in restart and "for each of law" in restart and "serve under the names of a, b" in restart
    assert check.startswith("curl ") and route == "Route all requests for a, b to it."
    assert stop == "Stop meta-llama/Llama-3.1-8B on gpu-2 (other devices)."
    assert "no process" in unused and drain.startswith("Drain gpu-2") and give.startswith("Give gpu-2 back")
    target = target_of(diff(fleet_of_two, merged), fleet_of_two)
    assert (target.kind, target.label) == ("host", "gpu-2"), "each pair is a row of its own"
    assert len(step.undo) >= 3


ENDS = re.compile(r"(?i)(?:^|: )(?:stop|give)\b|terminate|\bdelete\b|^Scale .* from 4 to|^INSTANCE=")
"""What a line that stops or gives back begins with, or holds."""


@pytest.mark.parametrize("lever", LEVERS)
def test_lines_that_stop_or_give_back_come_last_and_after_a_check(lever: str) -> None:
    difference = diff(FLEET, after(lever))
    step = commands(difference, FLEET, WHERE, PricingChoices(released=("host-4",)))
    for lines in (step.apply, step.undo):
        first = next((place for place, line in enumerate(lines) if ENDS.search(line)), len(lines))
        starts = [place for place, line in enumerate(lines) if re.search(r"(?i)(?:^|: )start\b", line)]
        checks = [
            place
            for place, line in enumerate(lines)
            if line.startswith("curl ") or re.search("check that|go on only", line.lower())
        ]
        assert first == len(lines) or min(checks) < first
        assert not starts or max(starts) < first, "nothing starts after something was stopped"
    assert "terminate-instances" in step.apply[-1]


def test_flags_of_a_server_elsewhere_stand_in_the_line_that_starts_it() -> None:
    moved = FLEET.edit(FLEET.service("chat").on(H200).but(tp=2, kv_dtype="fp8"))
    step = commands(diff(FLEET, moved), FLEET, WHERE, PricingChoices())
    (start,) = (line for line in step.apply if "start" in line)
    assert "on H200 SXM" in start and "--tensor-parallel-size 2" in start and "--kv-cache-dtype fp8" in start
    assert not any(line.partition(": ")[2].startswith("set ") for line in (*step.apply, *step.undo))
    (again,) = (line for line in step.undo if "start" in line and "again" in line and "host:port" not in line)
    assert "--tensor-parallel-size 1" in again


def test_pods_that_move_get_no_patch_of_the_present_pods() -> None:
    moved = FLEET.edit(FLEET.service("chat").on(H200).but(tp=2))
    pods = dict.fromkeys((100, 101, 102, 103), Workload("Deployment", "prod", "llama"))
    step = commands(diff(FLEET, moved), FLEET, replace(WHERE, workloads=pods), PricingChoices())
    assert not any("kubectl" in line for line in step.apply)


def test_the_power_cap_of_a_moved_server_is_that_of_its_new_devices() -> None:
    moved = FLEET.edit(FLEET.service("code").on(H200).but(power_cap_w=450))
    step = commands(diff(FLEET, moved), FLEET, WHERE, PricingChoices())
    assert "power cap of its devices 450 W" in step.apply[0] and not any("nvidia-smi" in line for line in step.apply)
