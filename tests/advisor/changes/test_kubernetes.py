"""Patches of Kubernetes objects: each leads from a valid object to a valid one with the new arguments."""

import json
import re
import shlex
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from pertoken.advisor.changes.commands import LAST_COUNTS, Addresses, commands, restarted
from pertoken.advisor.changes.servers import CommandStep
from pertoken.advisor.changes.title import PricingChoices
from pertoken.state.deployment import Workload
from pertoken.state.diff import diff
from pertoken.state.fleet import Fleet
from tests.plugins.proposals import chat

SCHEMAS = json.loads(Path(__file__).with_name("kubernetes_schemas.json").read_text())
CONTAINER = {"name": "main", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model", "llama"], "env": []}
OBJECTS: dict[str, Any] = {
    "Deployment": {"spec": {"replicas": 2, "selector": {}, "template": {"spec": {"containers": [CONTAINER]}}}},
    "LLMInferenceService": {
        "spec": {"model": {"uri": "hf://x"}, "replicas": 2, "template": {"containers": [CONTAINER]}}
    },
    "DynamoGraphDeployment": {"spec": {"services": {"SERVICE": {"extraPodSpec": {"mainContainer": CONTAINER}}}}},
}
FLEET = chat(2)


def steps(workload: Workload | None, fleet: Fleet = FLEET, **knobs: Any) -> CommandStep:
    """Commands of a change of all replicas, which run in pods of this object."""
    ids = [deployment.deployment_id for deployment in fleet.deployments]
    where = Addresses({}, {}, {} if workload is None else dict.fromkeys(ids, workload))
    return commands(diff(fleet, fleet.edit(fleet.services[0].but(**knobs))), fleet, where, PricingChoices())


def faults(kind: str, made: object) -> list[str]:
    """Return the fields of an object that its kind does not allow, such as those missing in its schema."""
    schema = {"$ref": f"#/$defs/{kind}", **SCHEMAS}
    return [error.message for error in Draft202012Validator(schema).iter_errors(made)]


def patched(kind: str, command: str) -> Any:
    """Return the object after the JSON patch of a command (RFC 6902; `add` alone is used)."""
    words = shlex.split(command, comments=True)
    made = deepcopy(OBJECTS[kind])
    for operation in json.loads(words[words.index("-p") + 1]):
        assert operation["op"] == "add"
        *path, last = operation["path"].split("/")[1:]
        at = made
        for part in path:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if isinstance(at, list):
            assert last == "-"
            at.append(operation["value"])
        else:
            at[last] = operation["value"]
    return made


def container_of(kind: str, made: Any) -> Any:
    spec = made["spec"]
    if kind == "DynamoGraphDeployment":
        return spec["services"]["SERVICE"]["extraPodSpec"]["mainContainer"]
    return (spec["template"]["spec"] if kind == "Deployment" else spec["template"])["containers"][0]


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_patch_leads_to_a_valid_object_with_the_arguments_and_the_image(kind: str) -> None:
    (apply,) = steps(Workload(kind, "prod", "llama"), max_num_seqs=64, kv_dtype="fp8", engine_version="0.31.0").apply
    assert SCHEMAS["$defs"][kind]["source"] and SCHEMAS["$defs"][kind]["as_of"]
    made = patched(kind, apply)
    assert faults(kind, OBJECTS[kind]) == faults(kind, made) == []
    container = container_of(kind, made)
    assert container["image"] == "IMAGE" and "IMAGE: yours of vllm 0.31.0" in apply
    words = ["--kv-cache-dtype", "fp8", "--max-num-seqs", "64"]
    if kind == "LLMInferenceService":
        assert container["env"] == [{"name": "VLLM_ADDITIONAL_ARGS", "value": " ".join(words)}]
    else:
        assert container["args"] == ["--model", "llama", *words]


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize(
    "wrong", [{"args": "--max-num-seqs"}, {"env": [{"value": "1"}]}, {"arguments": []}, {"image": 5}, {"name": None}]
)
def test_a_wrong_patch_is_no_valid_object(kind: str, wrong: dict[str, Any]) -> None:
    made = deepcopy(OBJECTS[kind])
    container_of(kind, made).update(wrong)
    assert faults(kind, made)


@pytest.mark.parametrize(
    ("workload", "apply", "undo"),
    [
        (
            Workload("Deployment", "prod", "llama"),
            "kubectl -n prod patch deployment llama --type=json -p ",
            "kubectl -n prod rollout undo deployment/llama",
        ),
        (
            Workload("LLMInferenceService", "prod", "llama"),
            "kubectl -n prod patch llminferenceservice llama --type=json -p ",
            "kubectl -n prod edit llminferenceservice llama  # take --max-num-seqs 64 out again",
        ),
        (
            Workload("DynamoGraphDeployment", None, "llama"),
            "kubectl -n NAMESPACE patch dynamographdeployments.v1alpha1.nvidia.com llama --type=json -p ",
            "kubectl -n NAMESPACE edit dynamographdeployments.v1alpha1.nvidia.com llama  "
            "# take --max-num-seqs 64 out again",
        ),
        (
            Workload(None, "prod", None),
            "kubectl -n prod patch KIND NAME --type=json -p ",
            "kubectl -n prod edit KIND NAME  # take --max-num-seqs 64 out again",
        ),
    ],
)
def test_each_object_has_its_command_and_undo_and_names_what_a_person_fills_in(
    workload: Workload, apply: str, undo: str
) -> None:
    step = steps(workload, max_num_seqs=64)
    assert len(step.apply) == 1 and step.apply[0].startswith(apply)
    assert step.undo == (undo,)
    _, _, note = step.apply[0].partition("  # ")
    assert all(word in note for word in re.findall(r"\b(?:KIND|NAME|SERVICE)\b", step.apply[0].partition(" -p ")[0]))


def test_outside_of_pods_flags_are_named_as_before() -> None:
    assert steps(None, max_num_seqs=64).apply[-1].endswith("set --max-num-seqs 64")


def test_an_engine_that_takes_no_option_twice_is_changed_by_hand() -> None:
    assert "tgi" not in LAST_COUNTS
    step = steps(Workload("Deployment", "prod", "llama"), chat(1, engine="tgi", max_num_seqs=32), max_num_seqs=64)
    assert (step.apply, step.undo) == (("set --max-batch-size 64",), ("set --max-batch-size 32",))


def test_a_flag_that_is_removed_is_a_sentence() -> None:
    fleet = chat(1, enforce_eager=True)
    step = steps(Workload("Deployment", "prod", "llama"), fleet, enforce_eager=False)
    assert step.apply == ("remove --enforce-eager",)


def test_a_server_in_a_pod_is_restarted_by_its_object() -> None:
    fleet = chat(1)
    now = fleet.deployments[0]
    where = Addresses({}, {}, {now.deployment_id: Workload("Deployment", "prod", "llama")})
    step = commands(diff(fleet, fleet.edit(now.restarted())), fleet, where, PricingChoices())
    assert step.apply == ("kubectl -n prod rollout restart deployment/llama",)
    assert restarted(Workload(None, "prod", None)).startswith("kubectl -n prod delete pod POD")


def test_replicas_of_two_objects_are_patched_each() -> None:
    first, second = FLEET.deployments
    pods = {
        first.deployment_id: Workload("Deployment", "a", "x"),
        second.deployment_id: Workload("Deployment", "b", "x"),
    }
    after = FLEET.edit(FLEET.services[0].but(max_num_seqs=64))
    step = commands(diff(FLEET, after), FLEET, Addresses({}, {}, pods), PricingChoices())
    assert [line.split()[2] for line in step.apply] == ["a", "b"]
    partly = replace(Addresses({}, {}), workloads={first.deployment_id: pods[first.deployment_id]})
    assert "kubectl" not in commands(diff(FLEET, after), FLEET, partly, PricingChoices()).apply[0]
