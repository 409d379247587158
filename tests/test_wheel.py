"""The wheel as a user gets it: in a fresh environment, with its migrations, its styles and its rules."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from pertoken import __version__
from pertoken.store.connect.open import REVISIONS
from tests.scenario import LOW_BATCH_70B, seed

ROOT = Path(__file__).parents[1]


EXAMPLE = ROOT / "examples/pertoken-rule-example"


def built(project: Path, out: Path) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(project)]
    subprocess.run(build, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone; its dependencies are those of this environment."""
    home = tmp_path_factory.mktemp("env")
    venv.create(home, with_pip=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    subprocess.run(
        [home / "bin/pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True, capture_output=True
    )
    return home / "bin/python"


@pytest.fixture(scope="module")
def with_example(python: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A further environment, with the wheel and that of the example package."""
    home = tmp_path_factory.mktemp("example-env")
    venv.create(home, with_pip=False)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    example = built(EXAMPLE, tmp_path_factory.mktemp("example-wheel"))
    install = [str(python.parent / "pip"), "--python", str(home / "bin/python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel), str(example)], check=True, capture_output=True)
    return home / "bin/python"


def test_wheel_and_sdist_are_what_an_index_takes_and_the_sdist_builds_the_same_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = built(unpacked, tmp_path / "again")
    assert sorted(ZipFile(again).namelist()) == sorted(ZipFile(wheel).namelist())
    assert (unpacked / "SECURITY.md").exists() and (unpacked / "deploy/kubernetes/base/rbac.yaml").exists()


def test_it_holds_one_package_with_its_data_and_nothing_generic(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"pertoken", f"pertoken-{__version__}.dist-info"}
    facts = ("catalog/prices.csv", "catalog/token_prices.csv", "catalog/knobs.toml", "catalog/clouds.toml")
    unit = "agent/pertoken-agent.service"
    templates = [f"advisor/rules/templates/{name}.txt" for name in ("rule.py", "test.py", "pyproject.toml")]
    for needed in (*templates, "py.typed", "tui/pertoken.tcss", "migrations/env.py", unit, *facts):
        assert f"pertoken/{needed}" in names
    for group in ("telemetry", "advice"):
        assert f"pertoken/migrations/versions/{group}/0001_first.py" in names


def test_a_fresh_environment_upgrades_a_database_with_it_and_finds_its_rules(python: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [str(python.parent / "pertoken"), *arguments, "--db", str(tmp_path / "db")]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    assert f"telemetry went from nothing to {REVISIONS['telemetry'][-1]}." in run("db", "upgrade")
    assert f"advice is at {REVISIONS['advice'][-1]}." in run("db", "upgrade")
    where = "import pertoken; print(pertoken.__file__)"
    done = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert str(python.parents[1]) in done.stdout
    rules = {load["rule_id"]: load["state"] for load in json.loads(run("advise", "--json"))["recommendations"]}
    of_the_fleet = ("release-idle", "commit-capacity", "consolidate", "upgrade-engine")
    assert rules == dict.fromkeys(of_the_fleet, "REFUSED")


def test_the_agent_and_its_sampler_run_from_it(python: Path, tmp_path: Path) -> None:
    command = [str(python.parent / "pertoken"), "agent", "--once", "--json", "--db", str(tmp_path / "db")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert '"HostSample"' in done.stdout


def test_the_example_package_brings_its_rule_into_the_list_and_the_advice(with_example: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        command = [str(with_example.parent / "pertoken"), *arguments, "--json"]
        environment = {**os.environ, "HOME": str(tmp_path), "PERTOKEN_DB": str(tmp_path / "db")}
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
        return json.loads(done.stdout)

    (listed,) = [rule for rule in run("rules", "list") if rule["id"] == "example"]
    assert (listed["origin"], listed["version"], listed["state"]) == ("pertoken-rule-example", "0.1.0", "loaded")
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=3, end_ts=int(time.time()) // 60 * 60)
    (row,) = [proposal for proposal in run("advise")["recommendations"] if proposal["rule_id"] == "example"]
    assert [refusal["code"] for refusal in row["refusals"]] == ["caching-unknown"]


def test_the_tests_of_the_example_package_pass_where_it_is_installed(with_example: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")  # beside no settings of another project
    command = [str(with_example), "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
