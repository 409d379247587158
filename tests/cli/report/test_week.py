import json
from pathlib import Path

from tests.cli.builders import run
from tests.reports.builders import recorded
from tests.reports.receivers import mail_server, receiver

AT = ("--at", "2026-11-23T01:00Z")


def test_a_week_goes_to_a_file_a_webhook_or_by_mail(tmp_path: Path) -> None:
    recorded(tmp_path / "db")
    config = tmp_path / "pertoken.toml"
    given = ("report", "--weekly", *AT, "--db", str(tmp_path / "db"), "--config", str(config))
    with receiver() as hook, mail_server() as (server, taken):
        config.write_text(
            f'[delivery]\nwebhook = "{hook.url}/s3cret"\nsmtp = "{server}"\nsmtp_tls = false\n'
            'mail_from = "a@example.com"\nmail_to = ["b@example.com"]\n'
        )
        text = run(*given, "--to", "file").stdout
        assert run(*given, "--out", str(tmp_path / "week.txt")).exit_code == 0
        assert run(*given, "--to", "webhook").exit_code == 0 and run(*given, "--to", "mail").exit_code == 0
        hook.statuses.append(500)
        failed = run(*given, "--to", "webhook")
    assert text.startswith("pertoken, week to 2026-11-23") and len(text.splitlines()) <= 25
    assert (tmp_path / "week.txt").read_text() == text == json.loads(hook.posts[0][2])["text"]
    assert "Subject: pertoken, week to 2026-11-23" in taken[0]
    assert failed.exit_code == 1 and "s3cret" not in failed.stderr and "status 500" in failed.stderr


def test_a_destination_that_is_unknown_or_not_set_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "db")
    given = ("report", "--weekly", *AT, "--db", str(tmp_path / "db"))
    assert "write file, webhook or mail" in run(*given, "--to", "fax").stderr
    assert "needs delivery.webhook" in run(*given, "--to", "webhook").stderr
    assert "give it with" in run(*given, "--html").stderr
