"""Child processes: nothing in the folder a person happens to be in is run."""

import os
import subprocess
import sys
from pathlib import Path

MODULES = ("psutil", "click", "sqlalchemy", "textual", "json", "pertoken")


def test_up_runs_no_module_of_the_current_folder(tmp_path: Path) -> None:
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(9)\n"
        )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pertoken", "up", "--db", str(tmp_path / "db"), "--interval", "1s"],
        cwd=tmp_path,
        env={**os.environ, "PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_PROBES": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert done.returncode == 0, done.stderr
