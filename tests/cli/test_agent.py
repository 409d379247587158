from pathlib import Path

import pytest

from tests.cli.builders import run


def test_an_installation_is_shown_before_it_is_done() -> None:
    done = run("agent", "install", "--dry-run")
    assert done.exit_code == 0
    assert "# /etc/systemd/system/pertoken-agent.service" in done.stdout
    assert "$ systemctl restart pertoken-agent.service" in done.stdout


@pytest.mark.parametrize("command", ["status", "release", "resume"])
def test_without_an_agent_the_command_reports_that_none_records(command: str, tmp_path: Path) -> None:
    done = run("agent", command, "--db", str(tmp_path))
    assert done.exit_code == 1
    assert f"pertoken: no agent records in {tmp_path}" in done.stderr
