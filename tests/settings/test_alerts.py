import pytest

from pertoken.settings.alerts import (
    AlertSettings,
    FigureLimit,
    FigureScope,
    is_own_address,
    masked,
    read_alerts,
    webhook_url,
)


def test_an_alert_is_read_with_its_defaults() -> None:
    scope = FigureScope("service", "*")
    (alert,) = read_alerts({"dear": {"when": "usd_per_mtok[service=*] > 2.5", "for": "15m"}})
    assert alert == AlertSettings("dear", FigureLimit("usd_per_mtok", ">", 2.5, scope), scope, 900.0, 3600.0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "dear.when: is missing"),
        ({"when": "usd"}, "dear.when: must compare"),
        ({"when": "usd > 1", "until": "1h"}, "dear.until: no such key"),
        ({"when": "usd > 1", "for": "soon"}, "dear.for: 'soon' is not a duration"),
        ({"when": "usd > 1", "window": "1s"}, "dear.window: must be at least 60s"),
        ({"when": "usd[host=a] > 1", "scope": "fleet"}, "dear.scope: differs"),
        ({"when": "usd > 1", "to": []}, "dear.to: must be a list"),
        ({"when": "usd > 1", "enabled": "no"}, "dear.enabled: must be true or false"),
        ({"when": "usd > 1", "severity": "high"}, "dear.severity: must be one of critical, warning"),
        ({"when": "usd > 1", "to": ["pagerduty:https://events.pagerduty.com/v2/enqueue"]}, "dear.to: pagerduty: write"),
        ({"when": "usd > 1", "to": ["irc:https://example.com"]}, "dear.to: must be log, mail or an http"),
    ],
)
def test_a_mistake_is_named_by_its_key(row: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_alerts({"dear": row})


@pytest.mark.parametrize(
    "url",
    ["ftp://example.com/x", "http://example.com/s3cret", "https://me:s3cret@example.com", "https://", "https://a:b"],
)
def test_a_url_that_is_refused_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be|holds no user") as error:
        webhook_url(url)
    assert "s3cret" not in str(error.value)


def test_a_private_address_needs_no_tls_and_a_shown_one_is_masked() -> None:
    assert webhook_url("http://10.0.0.7:8080/x") and is_own_address("localhost") and not is_own_address("8.8.8.8")
    assert masked("https://example.com/hook/s3cret?x=1") == "https://example.com/***"
    assert masked("log") == "log"
    assert masked("slack:https://hooks.slack.com/services/s3cret") == "slack:https://hooks.slack.com/***"
    assert masked("opsgenie:https://api.opsgenie.com#s3cret") == "opsgenie:https://api.opsgenie.com/***"
