"""The image: its commands are ones there are, and do what the Dockerfile needs of them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pertoken.cli import main

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
RIGHTS = {"SYS_PTRACE", "DAC_READ_SEARCH"}


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments, in their order."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and line[0] != "#"]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def the(instruction: str) -> str:
    (found,) = (text for name, text in instructions() if name == instruction)
    return found


def test_it_starts_a_command_there_is_with_the_rights_it_names() -> None:
    assert json.loads(the("ENTRYPOINT")) == ["/opt/pertoken/bin/pertoken"]
    command, *options = json.loads(the("CMD"))
    known = {option for each in main.commands[command].params for option in each.opts}
    assert {each for each in options if each.startswith("-")} <= known
    assert the("VOLUME") == options[-1] == "/var/lib/pertoken"
    assert all(f"--cap-add={right}" in DOCKERFILE.read_text() for right in RIGHTS)


def test_its_python_is_one_that_the_package_runs_on() -> None:
    versions = re.findall(r"^FROM python:3\.(\d+)-slim", DOCKERFILE.read_text(), re.M)
    assert len(set(versions)) == 1 and int(versions[0]) >= 11


def test_the_image_copies_only_built_files() -> None:
    made = [text for name, text in instructions() if name == "RUN"]
    copied = [text for name, text in instructions() if name == "COPY"]
    assert copied[0] == ". /src" and copied[1] == "--from=build /opt/pertoken /opt/pertoken"
    assert all(text.count("/opt/pertoken") and "/src" in text for text in made)


@pytest.mark.skipif(os.environ.get("PERTOKEN_E2E_IMAGE") != "1", reason="PERTOKEN_E2E_IMAGE=1 runs it: it installs")
def test_the_image_is_built_or_each_of_its_commands_runs(tmp_path: Path) -> None:
    """By a builder where one is installed; else its RUN commands over a copy of the tree, with paths below a folder."""
    builders = [each for each in map(shutil.which, ("docker", "podman")) if each]
    running = [each for each in builders if subprocess.run([each, "info"], capture_output=True).returncode == 0]
    for builder in running[:1]:
        build = [builder, "build", "-q", "-f", str(DOCKERFILE), str(ROOT)]
        image = subprocess.run(build, check=True, capture_output=True, text=True).stdout.strip()
        shown = subprocess.run([builder, "run", "--rm", image, "--version"], check=True, capture_output=True, text=True)
        assert shown.stdout.startswith("pertoken, version")
        return
    kept = shutil.ignore_patterns(".venv", ".git", ".*cache", "__pycache__", ".hypothesis")
    shutil.copytree(ROOT, tmp_path / "src", ignore=kept)
    for command in (text for name, text in instructions() if name == "RUN"):
        here = command.replace("/opt/pertoken", f"{tmp_path}/opt").replace(" /src", f" {tmp_path}/src")
        here = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", here)
        subprocess.run(["sh", "-ec", here], check=True, capture_output=True, timeout=600)
    for arguments in (["--version"], ["agent", "--once", "--db", str(tmp_path / "db")]):
        subprocess.run([tmp_path / "opt/bin/pertoken", *arguments], check=True, capture_output=True, timeout=120)
