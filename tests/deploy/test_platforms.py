"""Binary wheels of both architectures of the image, for the package and each of its extras."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.test_deploy import DOCKERFILE

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = [extra for extra in PROJECT["optional-dependencies"] if extra not in ("dev", "docs", "release")]
PYTHON = "3.12"
"""Of the image."""
ABIS = ("cp312", "abi3", "none")
TAGS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
WITHOUT_A_WHEEL: dict[str, set[str]] = {"x86_64": set(), "aarch64": set()}
"""Extras that an architecture has no binary wheels for, by its name."""


def test_the_python_of_these_checks_is_that_of_the_image_which_names_both_architectures() -> None:
    text = DOCKERFILE.read_text()
    assert f"FROM python:{PYTHON}-slim" in text and "--platform linux/amd64,linux/arm64" in text


@pytest.mark.skipif(
    os.environ.get("PERTOKEN_E2E_IMAGE") != "1", reason="PERTOKEN_E2E_IMAGE=1 runs it: it asks an index"
)
@pytest.mark.parametrize("machine", WITHOUT_A_WHEEL)
@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_each_requirement_has_a_binary_wheel(extra: str, machine: str, tmp_path: Path) -> None:
    requirements = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--target", str(tmp_path), "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    command += [f"--abi={abi}" for abi in ABIS] + [f"--platform={tag}_{machine}" for tag in TAGS]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode != 0) == (extra in WITHOUT_A_WHEEL[machine]), done.stderr[-2000:]
