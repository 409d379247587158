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


def test_options_of_a_rule_that_nobody_has_are_a_mistake_and_no_rule_is_loaded_to_find_it(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text("[rules.use-spott]\nmin_replicas = 3")
    done = run("config", "check", "--config", str(file))
    assert done.exit_code == 2
    assert f"{file}: rules.use-spott: no rule has this id (did you mean use-spot?)" in done.stderr
    (tmp_path / "rules.d").mkdir(mode=0o755)
    (tmp_path / "rules.d/mine.py").write_text("import os; os._exit(1)")  # it could hold that rule
    assert run("config", "check", "--config", str(file)).exit_code == 0
