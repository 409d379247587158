from pathlib import Path

from tests.cli.builders import run


def test_a_database_that_is_not_there_is_reported_before_any_question(tmp_path: Path) -> None:
    done = run("mcp", "--db", str(tmp_path / "none"))
    assert done.exit_code == 1 and "holds no telemetry" in done.stderr
