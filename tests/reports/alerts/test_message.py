from pertoken.reports.alerts import GONE, REMOVED, AlertEventKind, body_of, destination_key, sentence
from pertoken.settings.alerts import read_alerts

(ALERT,) = read_alerts({"dear": {"when": "usd_per_mtok > 2.5"}})


def test_an_event_is_json_and_a_sentence() -> None:
    body = body_of(ALERT, "service=ch\x1bat", AlertEventKind.FIRED, 3.25, 1_795_392_000)
    assert sentence(body) == (
        "alert dear fired: usd_per_mtok of service=ch\\x1bat is 3.25 USD/Mtok (limit > 2.5), 2026-11-23 00:00Z"
    )
    gone = sentence(body_of(ALERT, "service=chat", AlertEventKind.RESOLVED, None, 1_795_392_000, GONE))
    assert gone.startswith("alert dear resolved: usd_per_mtok of service=chat is no longer there (limit > 2.5)")
    removed = sentence(body_of(ALERT, "service=chat", AlertEventKind.RESOLVED, None, 0, REMOVED))
    assert "of service=chat is no longer watched (removed from the settings) (limit > 2.5)" in removed
    assert "not known" in sentence(body_of(ALERT, "fleet", AlertEventKind.TEST, None, 0))


def test_the_stored_key_of_a_url_does_not_contain_it() -> None:
    key = destination_key("https://example.com/hook/s3cret")
    assert key.startswith("webhook:") and "s3cret" not in key and destination_key("log") == "log"
