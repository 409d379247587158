import json
from pathlib import Path

from pertoken.schedule.jobs import ADVISOR, JobState, write_states
from pertoken.store.connect.location import locate
from pertoken.store.connect.turn import AdvisorTurn
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
        assert listed.exit_code == 0 and "s3cret" not in listed.output
        assert "not evaluated: no advisor serves this database" in listed.stdout
        assert "does not hold" not in listed.stdout
        lines = json.loads(run("alerts", "list", *given, "--db", str(tmp_path / "db"), "--json").stdout)
        (line,) = (line for line in lines if line["name"] == "dear")
        assert not line["evaluated"] and {"stuck", "telemetry-lost"} <= {line["name"] for line in lines}
        assert line["when"] == "usd_per_mtok[fleet] > 2.5" and line["to"] == [f"{hook.url}/***"]
        tested = run("alerts", "test", "dear", *given)
        assert tested.exit_code == 0 and tested.stdout == f"{hook.url}/***: delivered\n"
        assert json.loads(hook.posts[0][2])["alert"] == "dear"
        hook.statuses.append(503)
        failed = run("alerts", "test", "dear", *given)
        assert failed.exit_code == 1 and "status 503" in failed.stdout
    unknown = run("alerts", "test", "cheap", *given)
    assert unknown.exit_code == 2 and "there are stuck, telemetry-lost, slo-missed, price-lost, dear" in unknown.stderr
    shown = run("config", "show", *given)
    assert "s3cret" not in shown.output and "/***" in shown.output


def test_an_alert_does_not_hold_once_the_advisor_evaluated_it(tmp_path: Path) -> None:
    recorded(tmp_path / "db")
    given = ("--db", str(tmp_path / "db"))
    (tmp_path / "db/pertoken.toml").write_text('[alerts.dear]\nwhen = "usd_per_mtok > 2.5"\n')
    turn = AdvisorTurn(locate(str(tmp_path / "db")))
    assert turn.take()
    try:
        assert "not evaluated yet: the advisor does so each minute" in run("alerts", "list", *given).stdout
        write_states(tmp_path / "db", [JobState("alerts", 60.0, 60.0, last_ts=1.0)], ADVISOR)
        shown = run("alerts", "list", *given).stdout
        assert "dear: usd_per_mtok[fleet] > 2.5 for 5m, to log\n  does not hold" in shown
    finally:
        turn.release()
