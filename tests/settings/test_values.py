"""Values of settings: what is taken, and what is refused with which words."""

from typing import Any

import pytest

from pertoken.settings import values


@pytest.mark.parametrize(
    ("parse", "written", "value"),
    [
        (values.text, " aws ", "aws"),
        (values.flag, "Off", False),
        (values.interval, "15s", 15),
        (lambda v: values.seconds(v, 0.1), "100ms", 0.1),
        (values.urls, '["http://gpu-1:8000/"]', ("http://gpu-1:8000",)),
        (values.thresholds, [1, 0.8, 1.0], (0.8, 1.0)),
        (values.probes, "nvidia, amd", ("nvidia", "amd")),
        (values.marks, 1000.0, 1000),
    ],
)
def test_a_value_is_taken_as_people_write_it(parse: Any, written: object, value: object) -> None:
    assert parse(written) == value


@pytest.mark.parametrize(
    ("parse", "written", "message"),
    [
        (values.text, "  ", "must be text"),
        (values.flag, "maybe", "must be true or false"),
        (values.interval, "7s", "divide a minute"),
        (values.window, "59s", "at least 1m"),
        (values.urls, "http://me:secret@gpu-1:8000", "agent.access"),
        (values.urls, "gpu-1:8000", "not a base URL"),
        (values.thresholds, [11], "of which 1.0 is all"),
        (values.probes, "intel", "'intel' is not a probe"),
        (values.tls, "prefer", "verify-full"),
        (values.positive, float("nan"), "must be"),
        (values.marks, 1000.5, "at least 1000"),
    ],
)
def test_a_bad_value_is_refused_with_what_it_must_be(parse: Any, written: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(written)


def test_a_refused_value_that_may_hold_a_secret_is_not_repeated() -> None:
    with pytest.raises(values.Unrepeated) as refused:
        values.urls("http://me:secret@gpu-1:8000")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db/pertoken", "postgresql://me:***@db/pertoken"),
        ("postgresql://db/p?password=secret&sslmode=require", "postgresql://db/p?password=***&sslmode=require"),
        ("/var/lib/pertoken", "/var/lib/pertoken"),
    ],
)
def test_a_database_is_shown_without_its_password(url: str, shown: str) -> None:
    assert values.without_password(url) == shown
