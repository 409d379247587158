"""Edits of a variant that telemetry shows, whether they hold, and their cause."""

from dataclasses import replace

import pytest

from pertoken.proof.recommendation import Edit, Variant
from pertoken.proof.verdicts import Verdict, bringing, holds, names, reverts, seen_edits
from tests.state.fleets import fleet

FLEET = fleet()
CHAT = FLEET.services[0].deployments[0]
ID = CHAT.deployment_id
KNOB = Edit("deployment", ID, "max_num_seqs", 1, CHAT.max_num_seqs)


def variant(*edits: Edit, replicas: tuple[int, int] | None = None) -> Variant:
    return Variant("k", "a change", edits=edits, replicas=replicas)


def change(*edits: Edit) -> Verdict:
    return Verdict(ID, 2, 1, 100, "chat", edits)


def test_demand_timetables_and_restarts_show_in_no_epoch() -> None:
    unseen = (
        Edit("service", "chat", "schedule", None, []),
        Edit("deployment", ID, "restart", False, True),
        Edit("deployment", ID, "placement.purchase", None, "spot"),
        Edit("deployment", -1, "running", False, True),
        Edit("fleet", 0, "commitments", [], [1]),
    )
    assert seen_edits(variant(*unseen, KNOB)) == (KNOB,)
    assert not holds(variant(*unseen), FLEET)


def test_a_variant_holds_when_each_field_that_is_seen_has_its_value() -> None:
    other = Edit("deployment", ID, "kv_dtype", "auto", "no-such-dtype")
    assert holds(variant(KNOB), FLEET)
    assert not holds(variant(KNOB, other), FLEET)
    assert not holds(variant(replace(KNOB, target=-5)), FLEET)


def test_a_move_to_another_accelerator_is_detected_by_the_accelerator_and_not_by_device_ids() -> None:
    accelerator = CHAT.placement.accelerator
    moved = (
        Edit("deployment", ID, "placement.accelerator", "another", accelerator),
        Edit("deployment", ID, "device_ids", [5], []),
    )
    assert holds(variant(*moved), FLEET)
    assert not holds(variant(replace(moved[0], after="another")), FLEET)


def test_fewer_replicas_hold_when_as_many_run_as_pricing_kept() -> None:
    service = FLEET.services[0]
    edit = Edit("service", service.name, "replicas", None, "fewest")
    n = len(service.deployments)
    assert holds(variant(edit, replicas=(n + 1, n)), FLEET)
    assert not holds(variant(edit, replicas=(n, n - 1)), FLEET)
    assert seen_edits(variant(edit)) == ()


def test_a_host_is_released_when_nothing_runs_on_its_devices() -> None:
    host = next(host for host in FLEET.hosts if host.device_ids and set(host.device_ids) & set(CHAT.device_ids))
    assert not holds(variant(Edit("host", host.host_id, "running", True, False)), FLEET)
    assert holds(variant(Edit("host", -9, "running", True, False)), FLEET)


@pytest.mark.parametrize(("edits", "brought"), [((KNOB,), True), ((replace(KNOB, after=-1),), False), ((), False)])
def test_a_change_brings_a_variant_about_if_it_sets_one_of_its_fields(edits: tuple[Edit, ...], brought: bool) -> None:
    assert bool(bringing(variant(KNOB), [change(*edits)])) is brought


def test_a_change_back_reverts_a_variant_once_all_its_fields_are_as_before() -> None:
    back = Edit("deployment", ID, "max_num_seqs", CHAT.max_num_seqs, 99)
    undone = change(replace(back, before=99, after=CHAT.max_num_seqs))
    assert reverts(variant(back), [undone], FLEET)
    assert not reverts(variant(back, replace(back, field="kv_dtype", before="no")), [undone], FLEET)
    assert not reverts(variant(Edit("deployment", ID, "running", True, False)), [undone], FLEET)


def test_each_field_is_named_once() -> None:
    assert names((KNOB, KNOB, replace(KNOB, field="tp"))) == ("max_num_seqs", "tp")
