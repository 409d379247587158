"""The part of kustomize that the manifests in deploy/ use, and kustomize itself where it is installed."""

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
_KNOWN = {
    *("apiVersion", "kind", "namespace", "resources", "images", "configMapGenerator", "secretGenerator"),
    *("generatorOptions", "patches"),
}
_OF_NO_NAMESPACE = ("Namespace", "ClusterRole", "ClusterRoleBinding")


def rendered(folder: Path) -> list[Manifest]:
    """Return the manifests that a folder with a `kustomization.yaml` stands for."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = set(kustomization) - _KNOWN
    assert not unknown, f"{folder}: this renderer does not know {unknown}"
    assert kustomization["generatorOptions"] == {"disableNameSuffixHash": True}
    found: list[Manifest] = []
    for name in kustomization["resources"]:
        path = folder / name
        found += rendered(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for each in kustomization.get("configMapGenerator", ()):
        contents = {file: (folder / file).read_text() for file in each["files"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}, "data": contents})
    for each in kustomization.get("secretGenerator", ()):
        pairs = [file.split("=") for file in each["files"]]
        contents = {key: base64.b64encode((folder / file).read_bytes()).decode() for key, file in pairs}
        metadata = {"name": each["name"]}
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": contents})
    for patch in kustomization.get("patches", ()):
        target = patch["target"]
        (patched,) = (
            row for row in found if (row["kind"], row["metadata"]["name"]) == (target["kind"], target["name"])
        )
        for operation in yaml.safe_load(patch["patch"]):
            _patch(patched, operation)
    for manifest in found:
        if manifest["kind"] not in _OF_NO_NAMESPACE:
            manifest["metadata"]["namespace"] = kustomization["namespace"]
        for image in kustomization.get("images", ()):
            _set_image(manifest, image)
    return found


def _patch(manifest: Manifest, operation: dict[str, Any]) -> None:
    """Apply one operation of a JSON patch."""
    *path, last = operation["path"].lstrip("/").split("/")
    place: Any = manifest
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if last == "-":
        place.append(operation["value"])
    elif operation["op"] == "remove":
        del place[int(last) if isinstance(place, list) else last]
    else:
        assert operation["op"] == "replace" and last in place
        place[last] = operation["value"]


def _set_image(value: Any, image: dict[str, str]) -> None:
    if isinstance(value, dict):
        if value.get("image") == image["name"]:
            value["image"] = f"{image['newName']}:{image['newTag']}"
        for inner in value.values():
            _set_image(inner, image)
    elif isinstance(value, list):
        for inner in value:
            _set_image(inner, image)


def by_kustomize(folder: Path) -> list[Manifest] | None:
    """Return what kustomize itself renders; None where it is not installed."""
    command = ["kubectl", "kustomize"] if shutil.which("kubectl") else ["kustomize", "build"]
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run([*command, str(folder)], check=True, capture_output=True, text=True)
    return list(yaml.safe_load_all(done.stdout))
