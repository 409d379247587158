"""The built wheel on a machine that has nothing but Python and an installer: `PERTOKEN_E2E_INSTALL=1`.

It needs a package index, as those who install it do, and `pertoken[release]` for uv and pipx.
"""

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pertoken import __version__

pytestmark = pytest.mark.skipif(os.environ.get("PERTOKEN_E2E_INSTALL") != "1", reason="PERTOKEN_E2E_INSTALL=1 runs it")

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SHOWN = f"pertoken, version {__version__}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def run(*command: str | Path, home: Path) -> str:
    """Run a command with a home of its own and no variable of this environment that an installer reads."""
    kept = ("PATH", "LANG", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "PIP_INDEX_URL", "PIP_FIND_LINKS")
    environment = {name: os.environ[name] for name in kept if name in os.environ} | {"HOME": str(home)}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=home,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_empty_environment_needs_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "env", home=tmp_path)
    run(tmp_path / "env/bin/pip", "install", "-q", wheel, home=tmp_path)
    pertoken = tmp_path / "env/bin/pertoken"
    assert run(pertoken, "--version", home=tmp_path).strip() == SHOWN
    assert "Usage" in run(pertoken, "--help", home=tmp_path)
    assert "cpu" in run(pertoken, "doctor", home=tmp_path).lower()
    assert '"HostSample"' in run(pertoken, "agent", "--once", "--json", home=tmp_path)


def test_uvx_runs_it(wheel: Path, tmp_path: Path) -> None:
    uvx = shutil.which("uvx", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert uvx, "pip install 'pertoken[release]'"
    assert (
        run(uvx, "--python", sys.executable, "--from", wheel, "pertoken", "--version", home=tmp_path).strip() == SHOWN
    )


def test_pipx_installs_it(wheel: Path, tmp_path: Path) -> None:
    pipx = shutil.which("pipx", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert pipx, "pip install 'pertoken[release]'"
    run(pipx, "install", "--python", sys.executable, wheel, home=tmp_path)
    assert run(tmp_path / ".local/bin/pertoken", "--version", home=tmp_path).strip() == SHOWN


def test_the_readmes_first_command_shows_a_fresh_copy(tmp_path: Path) -> None:
    """Its second one is what `.ci/run` runs."""
    ls = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(ls, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    (command,) = re.findall(r"^python3 -m venv .*pertoken up$", (ROOT / "README.md").read_text(), re.M)
    leader, follower = pty.openpty()
    shown = b""
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    program = subprocess.Popen(
        ["bash", "-euc", command], cwd=tmp_path, env=environment, stdin=follower, stdout=follower, stderr=follower,
        start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    try:
        deadline = time.monotonic() + 500
        while b"Fleet" not in shown:
            assert time.monotonic() < deadline and program.poll() is None, shown[-2000:].decode(errors="replace")
            if select.select([leader], [], [], 1)[0]:
                shown += os.read(leader, 65_536)
        os.write(leader, b"q")
        while program.poll() is None and time.monotonic() < deadline:
            if select.select([leader], [], [], 1)[0]:
                with contextlib.suppress(OSError):
                    os.read(leader, 65_536)
        assert program.returncode == 0
    finally:
        program.kill()
        program.wait()
        os.close(leader)
