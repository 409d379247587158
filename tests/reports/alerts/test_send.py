import json
import logging
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.reports.alerts import send_test, sender
from pertoken.reports.delivery import signature
from pertoken.settings.alerts import read_alerts
from tests.reports.receivers import mail_server, receiver


def test_a_test_reaches_log_mail_and_a_signed_webhook(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    with receiver() as hook, mail_server() as (server, taken), caplog.at_level(logging.WARNING):
        (alert,) = read_alerts({"dear": {"when": "usd > 1", "to": ["log", "mail", f"{hook.url}/x"]}})
        settings = Settings(
            delivery_secret_file=str(file),
            delivery_smtp=server,
            delivery_smtp_tls=False,
            delivery_mail_from="a@example.com",
            delivery_mail_to=("b@example.com",),
        )
        outcomes = send_test(alert, sender(settings), 1_795_392_000)
        ((_, headers, body),) = hook.posts
        hook.statuses.append(500)
        again = send_test(alert, sender(settings), 1_795_392_000)
    assert outcomes == {"log": None, "mail": None, f"{hook.url}/***": None}
    assert json.loads(body)["event"] == "test"
    assert headers["Pertoken-Signature"] == signature(b"s3cret", 1_795_392_000, body)
    assert "alert dear test" in caplog.text and "Subject: alert dear test" in taken[0]
    assert again[f"{hook.url}/***"] == f"{hook.url}/***: answered with status 500"
