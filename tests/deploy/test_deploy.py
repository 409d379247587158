"""The shape of what is deployed by other means than `agent install`."""

from pathlib import Path
from typing import Any

import yaml

from pertoken import __version__
from pertoken.cli import main

DEPLOY = Path(__file__).parents[2] / "deploy"
RIGHTS = {"SYS_PTRACE", "DAC_READ_SEARCH"}


def pod() -> dict[str, Any]:
    manifest = yaml.safe_load((DEPLOY / "daemonset.yaml").read_text())
    assert manifest["kind"] == "DaemonSet"
    template = manifest["spec"]["template"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    spec: dict[str, Any] = template["spec"]
    return spec


def instructions() -> dict[str, str]:
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line and line[0] != "#"]
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}


def test_the_daemonset_sees_the_hosts_processes_and_gpus_and_has_no_right_beyond() -> None:
    spec = pod()
    assert spec["hostPID"] is True and spec["runtimeClassName"] == "nvidia"
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": sorted(RIGHTS, reverse=True)}
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert "privileged" not in context and spec["automountServiceAccountToken"] is False
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in container["env"]
    assert container["image"] == f"pertoken:{__version__}"


def test_the_daemonset_is_not_killed_for_memory_and_keeps_its_data_on_the_host() -> None:
    spec = pod()
    (container,) = spec["containers"]
    assert "memory" not in container["resources"]["limits"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in spec["volumes"]}
    (data,) = (each for each in spec["volumes"] if each["name"] == "data")
    assert data["hostPath"]["path"] == "/var/lib/pertoken" == container["args"][-1]


def test_image_and_manifest_start_a_command_there_is() -> None:
    (container,) = pod()["containers"]
    assert instructions()["CMD"] == '["agent", "--db", "/var/lib/pertoken"]'
    assert instructions()["ENTRYPOINT"] == '["/opt/pertoken/bin/pertoken"]'
    command, *options = container["args"]
    known = {option for each in main.commands[command].params for option in each.opts}
    assert {each for each in options if each.startswith("-")} <= known
    assert all(f"--cap-add={right}" in (DEPLOY / "Dockerfile").read_text() for right in RIGHTS)
