"""Workflows of the public CI: rights named for each, commands and files that are there, no stored publishing secret."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pertoken import __version__

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def jobs(file: Path) -> dict[str, Any]:
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    found: dict[str, Any] = workflow["jobs"]
    return found


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_files_variables_and_extras_that_a_workflow_names_are_there(file: Path) -> None:
    text = file.read_text()
    for path in re.findall(r"(?<![\w/])((?:tests|deploy|\.ci)/[\w/.]+)", text):
        assert (ROOT / path).exists(), path
    tests = "".join(path.read_text() for path in (ROOT / "tests/deploy").rglob("*.py"))
    assert all(name in tests for name in re.findall(r"PERTOKEN_E2E_\w+", text))
    project = (ROOT / "pyproject.toml").read_text()
    for extras in re.findall(r"'\.\[([\w,]+)\]'", text):
        assert all(f"\n{extra} = [" in project for extra in extras.split(","))


def test_jobs_depend_on_jobs_that_are_there_and_only_publishing_may_write() -> None:
    for file in WORKFLOWS:
        found = jobs(file)
        for name, job in found.items():
            needs = job.get("needs", [])
            assert {needs} <= set(found) if isinstance(needs, str) else set(needs) <= set(found)
            writes = {right for right, may in job.get("permissions", {}).items() if may == "write"}
            assert not writes or file.stem == "release", (file.stem, name)


def test_publishing_needs_no_stored_secret_and_waits_for_the_checked_build() -> None:
    release = jobs(ROOT / ".github/workflows/release.yml")
    publish = release["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["needs"] == "build"
    secrets = set(re.findall(r"secrets\.(\w+)", str(release)))
    assert secrets == {"GITHUB_TOKEN"}, "no password of an index is stored"
    commands = "\n".join(step.get("run", "") for step in release["build"]["steps"])
    assert all(word in commands for word in ("twine check --strict", "cyclonedx-py", "pip-audit", "python -m build"))


def test_the_version_is_that_of_the_newest_entry_of_the_changelog_and_of_the_image() -> None:
    assert re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == __version__  # type: ignore[index]
    for folder in ("base", "fleet"):
        kustomization = yaml.safe_load((ROOT / f"deploy/kubernetes/{folder}/kustomization.yaml").read_text())
        assert kustomization["images"] == [{"name": "pertoken", "newName": "pertoken", "newTag": __version__}]
