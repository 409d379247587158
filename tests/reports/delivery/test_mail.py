import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.reports.delivery import NotDelivered, send
from tests.reports.receivers import mail_server


def settings(server: str) -> Settings:
    return Settings(
        delivery_smtp=server,
        delivery_smtp_tls=False,
        delivery_mail_from="pertoken@example.com",
        delivery_mail_to=("ops@example.com", "cfo@example.com"),
    )


def test_mail_reaches_the_server_with_all_recipients_and_no_header_is_injected() -> None:
    with mail_server() as (server, taken):
        send(settings(server), "costs\r\nBcc: x@example.com", "one line\n")
    (text,) = taken
    head, _, body = text.partition("\r\n\r\n")
    assert "To: ops@example.com, cfo@example.com" in head and "\nBcc" not in head and body == "one line\r\n"


def test_mail_without_settings_or_server_names_the_missing_part() -> None:
    with pytest.raises(BadInput, match=r"delivery.smtp, delivery.mail_from"):
        send(Settings(), "a", "b")
    with mail_server() as (server, _):
        pass
    with pytest.raises(NotDelivered, match=r"127\.0\.0\.1: Connection refused"):
        send(settings(server), "a", "b")
