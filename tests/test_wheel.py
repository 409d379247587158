"""The wheel as a user gets it: in a fresh environment, with its migrations, its styles and its rules."""

import json
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from pertoken.store.connect.open import REVISIONS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return next(out.glob("*.whl"))


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


def test_it_holds_one_package_with_its_data_and_nothing_generic(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"pertoken", "pertoken-0.1.0.dist-info"}
    facts = ("catalog/prices.csv", "catalog/knobs.toml", "catalog/clouds.toml")
    unit = "agent/systemd/pertoken-agent.service"
    for needed in ("py.typed", "tui/pertoken.tcss", "migrations/env.py", unit, *facts):
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
    rules = {each["rule_id"]: each["state"] for each in json.loads(run("advise", "--json"))["recommendations"]}
    assert rules == {"release-idle-device": "REFUSED"}


def test_the_agent_and_its_sampler_run_from_it(python: Path, tmp_path: Path) -> None:
    command = [str(python.parent / "pertoken"), "agent", "--once", "--json", "--db", str(tmp_path / "db")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert '"HostSample"' in done.stdout
