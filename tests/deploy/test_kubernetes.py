"""Manifests as a cluster gets them: rendered, of the published schemas, and with no right too many."""

import base64
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from pertoken import __version__
from pertoken.cli import main
from pertoken.config import load
from pertoken.store.connect.location import ADVISOR_CREDENTIAL
from tests.deploy.kustomize import Manifest, by_kustomize, rendered

KUBERNETES = Path(__file__).parents[2] / "deploy/kubernetes"
VERSIONS = ("1.29", "1.33", "1.37")
"""Of Kubernetes: an old one that clouds still serve, one between, the newest whose schemas are published."""
URL = "postgresql://agents:planted@db.example.com/pertoken"
RIGHTS = ["SYS_PTRACE", "DAC_READ_SEARCH"]


@pytest.fixture(params=["base", "fleet", "amd", "gaudi"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the manifests, with the file that a person writes."""
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    for name in ("database-url", "advisor-url"):
        (tmp_path / "kubernetes/fleet" / name).write_text(URL)
    return tmp_path / "kubernetes" / str(request.param)


def named(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = (each for each in manifests if each["kind"] == kind)
    return found


def pod(manifests: list[Manifest]) -> dict[str, Any]:
    spec: dict[str, Any] = named(manifests, "DaemonSet")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("version", VERSIONS)
def test_each_manifest_is_of_the_published_schema(folder: Path, version: str) -> None:
    kinds = set()
    for manifest in rendered(folder):
        kubernetes_validate.validate(manifest, version, strict=True)
        kinds.add(manifest["kind"])
    assert {"Namespace", "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "DaemonSet"} <= kinds


def test_a_misspelled_field_is_not_of_the_schema(folder: Path) -> None:
    manifests = rendered(folder)
    pod(manifests)["hostPid"] = pod(manifests).pop("hostPID")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(named(manifests, "DaemonSet"), VERSIONS[-1], strict=True)


def test_kustomize_renders_the_same(folder: Path) -> None:
    theirs = by_kustomize(folder)
    if theirs is None:
        pytest.skip("needs kubectl or kustomize")

    def sort(manifests: list[Manifest]) -> list[Manifest]:
        return sorted(manifests, key=lambda each: (each["kind"], each["metadata"]["name"]))

    assert sort(theirs) == sort(rendered(folder))


def test_names_that_manifests_refer_to_are_there(folder: Path) -> None:
    manifests = rendered(folder)
    spec = pod(manifests)
    (container,) = spec["containers"]
    assert container["image"] == f"pertoken:{__version__}"
    assert spec["serviceAccountName"] == named(manifests, "ServiceAccount")["metadata"]["name"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in spec["volumes"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == named(manifests, "ConfigMap")["metadata"]["name"]
    secrets = [each["metadata"]["name"] for each in manifests if each["kind"] == "Secret"]
    assert volumes["credentials"]["secret"]["optional"] is True
    assert secrets == (["pertoken-database", "pertoken-advisor"] if folder.name == "fleet" else [])
    binding, role = named(manifests, "RoleBinding"), named(manifests, "Role")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["metadata"].get("namespace", "pertoken") for each in manifests} == {"pertoken"}


def test_the_agent_has_no_right_in_the_cluster_and_only_the_owner_reads_the_secret(folder: Path) -> None:
    manifests = rendered(folder)
    assert pod(manifests)["automountServiceAccountToken"] is False
    assert named(manifests, "ServiceAccount")["automountServiceAccountToken"] is False
    kinds = {subject["kind"] for subject in named(manifests, "RoleBinding")["subjects"]}
    assert kinds == {"Group"}, "no role is bound to the agent's account"
    granted = [(set(rule["resources"]), set(rule["verbs"])) for rule in named(manifests, "Role")["rules"]]
    assert all("secrets" not in resources and verbs <= {"get", "list", "watch"} for resources, verbs in granted)


def test_it_sees_the_processes_and_gpus_of_the_node_and_has_no_right_beyond(folder: Path) -> None:
    spec = pod(rendered(folder))
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert spec["hostPID"] is True
    if folder.name in ("amd", "gaudi"):  # device nodes that belong to no resource need it
        assert context == {"runAsUser": 0, "privileged": True, "readOnlyRootFilesystem": True}
        assert "runtimeClassName" not in spec and "NVIDIA" not in str(container["env"])
        return
    assert spec["runtimeClassName"] == "nvidia"
    assert context["capabilities"] == {"drop": ["ALL"], "add": RIGHTS}
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert "privileged" not in context
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in container["env"]


def test_it_is_not_killed_for_memory_and_keeps_its_data_on_the_node(folder: Path) -> None:
    spec = pod(rendered(folder))
    (container,) = spec["containers"]
    assert "memory" not in container["resources"]["limits"]
    (data,) = (each for each in spec["volumes"] if each["name"] == "data")
    assert data["hostPath"]["path"] == "/var/lib/pertoken" == container["args"][container["args"].index("--db") + 1]


def test_the_secret_is_where_the_agent_looks_for_it_and_nowhere_else(folder: Path, tmp_path: Path) -> None:
    manifests = rendered(folder)
    (container,) = pod(manifests)["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "credentials")
    assert {"name": "CREDENTIALS_DIRECTORY", "value": mount["mountPath"]} in container["env"] and mount["readOnly"]
    for secret in (each for each in manifests if each["kind"] == "Secret"):
        (value,) = secret["data"].values()
        assert base64.b64decode(value).decode() == URL
        manifests.remove(secret)
    assert "planted" not in str(manifests)


def test_its_command_and_settings_are_ones_there_are(folder: Path, tmp_path: Path) -> None:
    manifests = rendered(folder)
    (container,) = pod(manifests)["containers"]
    command, *options = container["args"]
    known = {option for each in main.commands[command].params for option in each.opts}
    assert {each for each in options if each.startswith("-")} <= known
    for name, text in named(manifests, "ConfigMap")["data"].items():
        (tmp_path / name).write_text(text)
        assert load(tmp_path / name, {}).agent_interval == 10
        assert f"/etc/pertoken/{name}" in options


def test_the_advisor_of_a_fleet_has_no_right_of_the_agent_and_finds_its_own_login(folder: Path) -> None:
    manifests = rendered(folder)
    if folder.name != "fleet":
        assert not [each for each in manifests if each["kind"] == "Deployment"]
        return
    spec = named(manifests, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert not {"hostPID", "hostNetwork", "runtimeClassName"} & set(spec) and container["image"].endswith(__version__)
    context = container["securityContext"]
    assert (
        context["runAsNonRoot"] and context["capabilities"] == {"drop": ["ALL"]} and context["readOnlyRootFilesystem"]
    )
    assert not [each for each in spec["volumes"] if "hostPath" in each]
    volumes = {each["name"]: each for each in spec["volumes"]}
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "credentials")
    assert {"name": "CREDENTIALS_DIRECTORY", "value": mount["mountPath"]} in container["env"]
    secrets = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "Secret"}
    secret = secrets[volumes["credentials"]["secret"]["secretName"]]
    assert list(secret["data"]) == [ADVISOR_CREDENTIAL]
    command, *options = container["args"]
    known = {option for each in main.commands[command].params for option in each.opts}
    assert command == "advisor" and {each for each in options if each.startswith("-")} <= known
