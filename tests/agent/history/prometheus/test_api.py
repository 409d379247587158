"""Ranges of a server: whole, in halves where they are too large, or refused with what to do."""

from pathlib import Path

import pytest

from pertoken.access import Access
from pertoken.agent.history.prometheus import PrometheusApi, RangeSteps
from pertoken.agent.scrape import RequestLimits
from pertoken.errors import BadInput
from tests.agent.history.api_server import labels, serving
from tests.agent.servers import answering, pages

STEPS = RangeSteps(600, 4, 60)


def test_a_series_has_a_value_for_each_step_and_none_where_there_is_no_sample() -> None:
    with serving({labels("a", x="1"): lambda ts: None if ts == 660 else ts / 60}) as url:
        (series,) = PrometheusApi(url, RequestLimits()).ranges('{__name__=~"a"}', STEPS)
    assert series.labels == {"__name__": "a", "x": "1"}
    assert series.values == [10.0, None, 12.0, 13.0]


def test_a_reply_that_is_too_large_is_asked_for_in_halves() -> None:
    asked: list[str] = []
    with serving({labels("a"): lambda ts: ts / 60}, asked, padding=1000) as url:
        (series,) = PrometheusApi(url, RequestLimits(page_bytes=2600)).ranges('{__name__=~"a"}', STEPS)
        assert series.values == [10.0, 11.0, 12.0, 13.0]
        assert len(asked) == 3
        with pytest.raises(BadInput, match="raise --reply-limit-mb"):
            PrometheusApi(url, RequestLimits(page_bytes=500)).ranges('{__name__=~"a"}', STEPS)


@pytest.mark.parametrize("status", [413, 422, 503, 504])
def test_a_query_that_loads_too_much_for_the_server_is_asked_for_in_halves(status: int) -> None:
    asked: list[str] = []
    with serving({labels("a"): lambda ts: ts / 60}, asked, limit=(1, status)) as url:
        (series,) = PrometheusApi(url, RequestLimits()).ranges('{__name__=~"a"}', STEPS)
        assert series.values == [10.0, 11.0, 12.0, 13.0]
        assert len(asked) == 7
    with serving({}, limit=(0, status)) as url, pytest.raises(BadInput):
        PrometheusApi(url, RequestLimits()).ranges('{__name__=~"a"}', STEPS)


def test_headers_of_a_tenant_are_sent_with_each_query() -> None:
    asked: list[str] = []
    with answering(pages({}), asked=asked) as url, pytest.raises(BadInput):
        PrometheusApi(url, RequestLimits(), {"X-Scope-OrgID": "team-a"}).ranges("a", STEPS)
    assert "X-Scope-OrgID: team-a" in asked[0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "does not answer as the query API of Prometheus does"),
        (b'{"status": "success", "data": {"resultType": "vector", "result": []}}', "does not answer"),
        (b"[]", "does not answer"),
        ((401, b""), "--token-file or --token-env"),
        ((401, b"no org id"), "X-Scope-OrgID"),
        ((429, b""), "try again later"),
        ((400, b""), "check --match"),
        ((302, b""), "check that the URL"),
    ],
)
def test_anything_else_than_a_matrix_is_refused_with_what_to_do(body: bytes | tuple[int, bytes], message: str) -> None:
    path = "/api/v1/query_range?query=a&start=600&end=780&step=60"
    with answering(pages({path: body})) as url, pytest.raises(BadInput, match=message):
        PrometheusApi(url, RequestLimits()).ranges("a", STEPS)


def test_the_token_is_sent_in_a_header_and_appears_in_no_message(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    asked: list[str] = []
    with answering(pages({}), asked=asked) as url:
        limits = RequestLimits(access=(Access(url, token_file=str(token)),))
        with pytest.raises(BadInput) as refused:
            PrometheusApi(url, limits).ranges("a", STEPS)
    assert "Authorization: Bearer secret" in asked[0]
    assert "secret" not in str(refused.value)
