from pathlib import Path

import pytest

from tests.cli.builders import run


@pytest.mark.parametrize("command", ["status", "release", "resume"])
def test_without_an_agent_the_command_reports_that_none_records(command: str, tmp_path: Path) -> None:
    done = run("agent", command, "--db", str(tmp_path))
    assert done.exit_code == 1
    assert f"pertoken: no agent records in {tmp_path}" in done.stderr
