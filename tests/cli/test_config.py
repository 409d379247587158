import json
from pathlib import Path

from tests.cli.builders import run


def test_settings_are_written_checked_and_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "sub" / "pertoken.toml")
    assert run("config", "init", "--config", file).output == f"Wrote {file}.\n"
    assert run("config", "init", "--config", file).exit_code == 2
    assert run("config", "check", "--config", file).output == f"{file}: good.\n"
    shown = json.loads(run("config", "show", "--config", file, "--json").stdout)
    assert shown["agent.interval"] == 10
    assert "agent.interval = 10" in run("config", "show", "--config", file).output
