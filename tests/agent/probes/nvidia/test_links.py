"""Links between GPUs, through the real pynvml over the stand-in driver."""

import json
from typing import Any

import pynvml
import pytest

from pertoken.agent.probes.nvidia.probe import BY_ANCESTOR, NVLINK, NvidiaProbe
from pertoken.state.fleet import LINKS
from tests.standin_nvml import Machine, ManualClock, eight, installed


def links(machine: Machine, looks: int = 2) -> list[dict[str, list[int]] | None]:
    """Return the links of each GPU, with slots in place of UUIDs, after `looks` looks with their process lists."""
    slots = {gpu.uuid: slot for slot, gpu in enumerate(machine.gpus)}
    with installed(machine, ManualClock()):
        probe = NvidiaProbe(ManualClock())
        for _ in range(looks):
            devices, _ = probe.read(processes=True)
    known = [None if device.links is None else json.loads(device.links) for device in devices]
    return [device and {kind: [slots[uuid] for uuid in uuids] for kind, uuids in device.items()} for device in known]


def test_gpus_behind_nvlink_switches_are_linked_pairwise() -> None:
    links_found = links(Machine(gpus=eight()))
    assert links_found[3] == {"nvlink": [0, 1, 2, 4, 5, 6, 7]}


def test_without_nvlink_the_way_through_the_host_counts() -> None:
    links_found = links(Machine(gpus=eight(), nvlinks=False))
    assert links_found[5] == {"pcie_switch": [4], "pcie_host": [6, 7], "cross_socket": [0, 1, 2, 3]}


@pytest.mark.parametrize("missing", ["nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"])
def test_a_driver_that_does_not_report_links_leaves_them_unknown(missing: str) -> None:
    assert links(Machine(gpus=eight(), nvlinks=False, without=(missing,))) == [None] * 8
    refusing = eight(failing=((missing, int(pynvml.NVML_ERROR_NOT_SUPPORTED)),))
    assert links(Machine(gpus=refusing, nvlinks=False)) == [None] * 8


def test_links_are_asked_for_once_and_not_before_the_first_reading() -> None:
    clock = ManualClock()
    with installed(Machine(gpus=eight()), clock) as library:
        probe = NvidiaProbe(clock)
        asked: list[Any] = []
        for _ in range(4):
            probe.read(processes=True)
            asked.append(library.calls["nvmlDeviceGetP2PStatus"])
    assert asked == [0, 28, 28, 28]


def test_links_have_the_words_of_the_fleet() -> None:
    assert {NVLINK, *BY_ANCESTOR.values()} < set(LINKS)
