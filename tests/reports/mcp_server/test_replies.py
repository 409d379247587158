"""Answers to an assistant. The library of the server takes 90 MB, which each worker of the tests would load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.proof.recommendation import Recommendation, Refusal, State
from tests.reports.builders import END, recorded

if TYPE_CHECKING:
    from pertoken.reports.mcp_server import Replies, Which


def replies_over(folder: Path) -> Replies:
    from pertoken.reports.mcp_server import Replies

    return Replies(recorded(folder / "db"), Settings(), clock=lambda: END)


def as_json(reply: object) -> Any:
    return json.loads(json.dumps(reply))


def replies_of(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Recommendation]) -> Replies:
    monkeypatch.setattr("pertoken.reports.mcp_server.standing", lambda store: tuple(rows))
    return replies_over(folder)


def refused(number: int, rule: str = "quantize-weights", code: str = "no-load") -> Recommendation:
    refusals = (Refusal(code, f"reason {number}: " + "x" * 300),) * 3
    row = Recommendation(number, rule, State.REFUSED, f"title {number}", f"service {number}", reason=refusals[0].reason)
    return replace(row, refusals=refusals)


def test_the_bill_is_answered_and_wrong_questions_are_refused(tmp_path: Path) -> None:
    replies = replies_over(tmp_path)
    reply = as_json(replies.costs(hours=4))
    assert reply["usd"] == pytest.approx(82.56) and reply["next"] is None
    assert sum(line["usd"] for line in reply["lines"]) == pytest.approx(82.56)
    lists: tuple[Which, ...] = ("found", "unconfirmed", "taken")
    for which in lists:
        assert replies.savings(which)[which] == []
    (lost,) = as_json(replies.now())["now"]
    assert (lost["kind"], lost["target"], lost["usd_per_hour"]) == ("telemetry lost", "gpu-1", 27.52)
    assert replies.verdicts()["verdicts"] == [] and replies.refusals()["rules"] == []
    for ask, name in (
        (lambda: replies.costs(hours=0), "hours"),
        (lambda: replies.costs(hours=10**30), "hours"),
        (lambda: replies.costs(start=-1), "start"),
        (lambda: replies.costs(start=99), "start: 99 is behind the last"),
        (lambda: replies.costs(by="host; drop table"), "by: must be one of tenant, team, model, gpu"),
        (lambda: replies.savings(cast("Which", "all")), "which"),
        (lambda: replies.refusals("r" * 10**6), "rule: 'rrr"),
    ):
        with pytest.raises(BadInput, match=name) as error:
            ask()  # type: ignore[no-untyped-call]
        assert len(str(error.value)) < 1000


def test_refusals_are_counted_by_rule_and_read_page_by_page_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [refused(number, f"rule-{number % 40:02}", f"code-{number % 7}") for number in range(1000)]
    rows += [refused(number) for number in range(1000, 1300)]
    replies = replies_of(tmp_path, monkeypatch, rows)
    from pertoken.reports.mcp_server import MAX_REPLY_BYTES

    summaries, start = [], 0
    while start is not None:
        reply = as_json(replies.refusals(start=start))
        assert len(json.dumps(reply)) <= MAX_REPLY_BYTES and reply["total"] == 41
        summaries += reply["rules"]
        start = reply["next"]
    assert [summary["refused"] for summary in summaries if summary["rule"] == "rule-03"] == [25]
    assert sum(summary["refused"] for summary in summaries) == 1300
    seen, start = [], 0
    while start is not None:
        reply = as_json(replies.refusals("quantize-weights", start))
        assert len(json.dumps(reply)) <= MAX_REPLY_BYTES and reply["total"] == 300
        seen += [row["target"] for row in reply["refusals"]]
        start = reply["next"]
    assert seen == [f"service {number}" for number in range(1000, 1300)]


def test_a_row_of_any_size_fits_into_a_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = replace(refused(1), refusals=(Refusal("c" * 10**5, "\N{SNOWMAN}" * 10**5),) * 500, target="t" * 10**6)
    replies = replies_of(tmp_path, monkeypatch, [huge] * 3)
    from pertoken.reports.mcp_server import MAX_REPLY_BYTES

    for reply in (replies.refusals(), replies.refusals("quantize-weights")):
        assert len(json.dumps(reply)) <= MAX_REPLY_BYTES and reply["total"] in (1, 3)
