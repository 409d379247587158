from datetime import date
from decimal import Decimal

import pytest

from pertoken.settings.alerts import masked, read_alerts
from pertoken.settings.fleet import GatewaySettings, TenantTeam
from pertoken.settings.values import CurrencyRate, secretless, shown


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("http://host:8000", "http://host:8000"),
        ("http://me:pw@host:8000/x", "http://me:***@host:8000/x"),
        ("https://host/v1/metrics?key=pw", "https://host/v1/metrics?***"),
        ("https://host/v1/metrics#pw", "https://host/v1/metrics#***"),
        ("me:pw@mail.example.com:587", "me:***@mail.example.com:587"),
        ("me:p@w@host", "me:***@host"),
        ("http://[pw", "***"),
        ("ops@example.com", "ops@example.com"),
        ("/var/lib/pertoken", "/var/lib/pertoken"),
        ("weight_dtype=fp8", "weight_dtype=fp8"),
    ],
)
def test_a_text_is_shown_without_its_secret(written: str, expected: str) -> None:
    assert secretless(written) == expected


@pytest.mark.parametrize("tail", ["/pw", "/?pw", "?pw", "#pw", "/a/pw/b"])
def test_of_a_webhook_the_host_is_shown_alone(tail: str) -> None:
    assert masked(f"https://hooks.example.com{tail}") == "https://hooks.example.com/***"
    assert shown("delivery.webhook", f"https://hooks.example.com{tail}") == "https://hooks.example.com/***"


def test_tables_are_shown_with_only_their_set_fields() -> None:
    (alert,) = read_alerts({"dear": {"when": "usd > 2", "scope": "service=*", "to": ["log", "https://h.example/pw"]}})
    assert shown("alerts", (alert,)) == [
        {
            "name": "dear",
            "when": "usd[service=*] > 2",
            "scope": "service=*",
            "for_s": 300.0,
            "window_s": 3600.0,
            "to": ["log", "https://h.example/***"],
            "enabled": True,
            "severity": "warning",
        }
    ]
    gateway = GatewaySettings("http://gw:4000", models={"gpt": "llama"})
    assert shown("gateways", (gateway,)) == [{"url": "http://gw:4000", "models": {"gpt": "llama"}, "users": False}]
    assert shown("tenants", (TenantTeam("alpha", "search"),)) == [{"name": "alpha", "team": "search"}]


def test_a_database_is_shown_with_its_options_and_without_its_password() -> None:
    url = "postgresql://me:pw@host/db?sslmode=require&password=pw"
    assert shown("db", url) == "postgresql://me:***@host/db?sslmode=require&password=***"


def test_a_rate_is_shown_with_its_day() -> None:
    rate = CurrencyRate(date(2026, 11, 1), Decimal("0.87"), "ECB")
    assert shown("currency.rates", (rate,)) == [{"day": "2026-11-01", "per_usd": "0.87", "source": "ECB"}]
