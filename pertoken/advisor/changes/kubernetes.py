"""Commands that change the arguments of an engine in a pod, by a patch of the object that owns its pods.

Arguments are appended: the last value of a repeated option wins. Sources: the reference of Kubernetes'
Deployment (apps/v1), KServe's LLMInferenceService (its container `main` appends VLLM_ADDITIONAL_ARGS) and NVIDIA
Dynamo's DynamoGraphDeployment (nvidia.com/v1alpha1), November 2026. Nothing here is run.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pertoken.state.deployment import Workload

LAST_COUNTS = ("vllm", "sglang", "llama.cpp", "trtllm", "lmdeploy")
"""Engines whose parsers accept a repeated option (argparse, click, llama.cpp's own); TGI's rejects it."""


Versions = tuple[str | None, str]
"""Engine version before and after a change."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Patch details of one kind of object."""

    resource: str
    container: str
    """JSON pointer of the container that runs the engine."""
    note: str


_FILL_IN = "KIND and NAME: the object that owns its pod, which cannot be read on the host"
_KINDS = {
    None: _Kind("KIND", "/spec/template/spec/containers/0", _FILL_IN),
    "Deployment": _Kind(
        "deployment", "/spec/template/spec/containers/0", "container 0 is the engine, and has a list args"
    ),
    "LLMInferenceService": _Kind(
        "llminferenceservice",
        "/spec/template/containers/0",
        "container 0 is main, with a list env; if it already sets VLLM_ADDITIONAL_ARGS, append to its value instead",
    ),
    "DynamoGraphDeployment": _Kind(
        "dynamographdeployments.v1alpha1.nvidia.com",
        "/spec/services/SERVICE/extraPodSpec/mainContainer",
        "SERVICE: the worker of this model, which cannot be read on the host",
    ),
}
_ADDED = {"LLMInferenceService": "VLLM_ADDITIONAL_ARGS"}
"""Kinds with an environment variable for additional arguments."""


def changed(workload: Workload, engine: str, words: Sequence[str], version: Versions | None) -> tuple[str, str]:
    """Return one command that appends `words` to an engine's command line and changes its version, and its undo.

    One patch makes one rollout, so that one undo reverts it.
    """
    kind = _KINDS[workload.kind]
    operations: list[dict[str, object]] = []
    notes, by_hand = [kind.note], []
    if version is not None:
        old, new = version
        operations.append({"op": "add", "path": f"{kind.container}/image", "value": "IMAGE"})
        notes.insert(0, f"IMAGE: yours of {engine} {new}")
        by_hand.append(f"set the image of {engine} {old} again" if old else f"set the previous image of {engine} again")
    variable = _ADDED.get(workload.kind or "")
    if words and variable is not None:
        value = {"name": variable, "value": " ".join(words)}
        operations.append({"op": "add", "path": f"{kind.container}/env/-", "value": value})
    elif words:
        operations += [{"op": "add", "path": f"{kind.container}/args/-", "value": word} for word in words]
    by_hand += [f"take {' '.join(words)} out again"] if words else []
    patch = shlex.quote(json.dumps(operations, separators=(",", ":")))
    apply = f"{_kubectl(workload)} patch {_object(workload, ' ')} --type=json -p {patch}  # {'; '.join(notes)}"
    return apply, _undone(workload, "; ".join(by_hand))


def restarted(workload: Workload) -> str:
    """Return the command that restarts the pods of an object; pods of other objects than a Deployment are deleted."""
    if workload.kind == "Deployment":
        return f"{_kubectl(workload)} rollout restart {_object(workload, '/')}"
    return f"{_kubectl(workload)} delete pod POD  # POD: the one of this server; {_KINDS[workload.kind].note}"


def _undone(workload: Workload, by_hand: str) -> str:
    """Return the undo command: a rollout undo of a Deployment, or an edit of any other object."""
    if workload.kind == "Deployment":
        return f"{_kubectl(workload)} rollout undo {_object(workload, '/')}"
    return f"{_kubectl(workload)} edit {_object(workload, ' ')}  # {by_hand}"


def _kubectl(workload: Workload) -> str:
    return f"kubectl -n {workload.namespace or 'NAMESPACE'}"


def _object(workload: Workload, between: str) -> str:
    return f"{_KINDS[workload.kind].resource}{between}{workload.name or 'NAME'}"
