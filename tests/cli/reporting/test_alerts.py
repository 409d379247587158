import json
from pathlib import Path

from tests.cli.builders import run
from tests.reports.builders import recorded
from tests.reports.receivers import receiver


def test_alerts_are_listed_masked_and_tested_against_a_real_receiver(tmp_path: Path) -> None:
    recorded(tmp_path / "db")
    config = tmp_path / "pertoken.toml"
    with receiver() as hook:
        config.write_text(f'[alerts.dear]\nwhen = "usd_per_mtok > 2.5"\nto = ["{hook.url}/s3cret"]\n')
        given = ("--config", str(config))
        listed = run("alerts", "list", *given, "--db", str(tmp_path / "db"))
        assert listed.exit_code == 0 and "does not hold" in listed.stdout and "s3cret" not in listed.output
        (line,) = json.loads(run("alerts", "list", *given, "--db", str(tmp_path / "db"), "--json").stdout)
        assert line["when"] == "usd_per_mtok[fleet] > 2.5" and line["to"] == [f"{hook.url}/***"]
        tested = run("alerts", "test", "dear", *given)
        assert tested.exit_code == 0 and tested.stdout == f"{hook.url}/***: delivered\n"
        assert json.loads(hook.posts[0][2])["alert"] == "dear"
        hook.statuses.append(503)
        failed = run("alerts", "test", "dear", *given)
        assert failed.exit_code == 1 and "status 503" in failed.stdout
    unknown = run("alerts", "test", "cheap", *given)
    assert unknown.exit_code == 2 and "the settings have dear" in unknown.stderr
    shown = run("config", "show", *given)
    assert "s3cret" not in shown.output and "/***" in shown.output
