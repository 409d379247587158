"""The spend log of a LiteLLM proxy: rows of requests become tokens of tenants by minute."""

import json
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.gateways import read_spend_log
from pertoken.errors import BadInput
from pertoken.settings.fleet import GatewaySettings

GATEWAY = GatewaySettings("http://gw:4000", models={"hosted_vllm/chat": "llama-70b"})
NOON = 1_789_992_000
"""2026-09-21 12:00Z."""


def row(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "request_id": f"chatcmpl-{number}",
        "call_type": "acompletion",
        "api_key": "hash-of-a-key",
        "model": "hosted_vllm/chat",
        "model_group": "chat",
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "startTime": "2026-09-21T11:59:50Z",
        "endTime": "2026-09-21T12:00:10Z",
        "end_user": "",
        "team_id": "team-id",
        "cache_hit": "False",
        "metadata": {"user_api_key_alias": "alpha-prod", "user_api_key_team_alias": "alpha"},
        **fields,
    }


def written(folder: Path, value: Any) -> Path:
    file = folder / "log.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def metric(word: str, **labels: str) -> str:
    pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
    return f"tenant_{word}_tokens{{{pairs}}}"


OF_ALPHA = {"key": "alpha-prod", "model": "llama-70b", "team": "alpha"}


def test_cached_reasoning_and_audio_tokens_are_those_of_the_logged_usage(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 7, "audio_tokens": None},
    }
    alias = {"user_api_key_alias": "alpha-prod", "user_api_key_team_alias": "alpha"}
    rows = [
        row(1, metadata={**alias, "usage_object": usage}),
        row(2, metadata=json.dumps({**alias, "usage_object": usage})),
        row(3, metadata={**alias, "usage_object": None}),
    ]
    words = ("prompt", "generated", "cached", "reasoning", "prompt_audio")
    assert read_spend_log(written(tmp_path, rows), GATEWAY).tokens == {
        NOON: {metric(word, **OF_ALPHA): n for word, n in zip(words, (300, 60, 120, 14, 8), strict=True)}
    }
    wrong = row(1, metadata={"usage_object": {"prompt_tokens_details": {"cached_tokens": -1}}})
    with pytest.raises(BadInput, match="cached_tokens -1 is not a number of tokens"):
        read_spend_log(written(tmp_path, [wrong]), GATEWAY)


def test_images_and_seconds_of_video_are_those_of_the_logged_usage(tmp_path: Path) -> None:
    alias = {"user_api_key_alias": "alpha-prod", "user_api_key_team_alias": "alpha"}
    usage = {"output_image_count": 2, "duration_seconds": 4.25}
    rows = [row(n, metadata={**alias, "usage_object": usage}, prompt_tokens=0, completion_tokens=0) for n in (1, 2)]
    tenant = metric("", **OF_ALPHA).partition("_tokens")[2]
    assert read_spend_log(written(tmp_path, rows), GATEWAY).tokens == {
        NOON: {f"tenant_images{tenant}": 4, f"tenant_video_ms{tenant}": 8500}
    }
    for seconds in (-1, "4", float("nan"), True):
        wrong = row(1, metadata={"usage_object": {"duration_seconds": seconds}})
        with pytest.raises(BadInput, match="is not a number of seconds"):
            read_spend_log(written(tmp_path, [wrong]), GATEWAY)


def test_tokens_are_summed_by_the_minute_in_which_a_request_ended(tmp_path: Path) -> None:
    later = row(3, endTime="2026-09-21 12:01:00", completion_tokens=0)
    rows = read_spend_log(written(tmp_path, [row(1), row(2), later]), GATEWAY)
    assert rows.tokens == {
        NOON: {metric("prompt", **OF_ALPHA): 200, metric("generated", **OF_ALPHA): 40},
        NOON + 60: {metric("prompt", **OF_ALPHA): 100},
    }
    assert (rows.requests, rows.cached, rows.repeated) == (3, 0, 0)


@pytest.mark.parametrize("form", ["list", "object with data", "lines"])
def test_every_form_of_an_export_is_read(tmp_path: Path, form: str) -> None:
    rows = [row(1), row(2)]
    value: Any = {"list": rows, "object with data": {"data": rows, "total": 2}}.get(form)
    text = "\n".join(map(json.dumps, rows)) if value is None else json.dumps(value)
    assert sum(read_spend_log(written(tmp_path, text), GATEWAY).tokens[NOON].values()) == 240


def test_answers_from_the_gateways_own_cache_and_repeated_rows_do_not_count(tmp_path: Path) -> None:
    rows = read_spend_log(written(tmp_path, [row(1), row(1), row(2, cache_hit="True")]), GATEWAY)
    assert sum(rows.tokens[NOON].values()) == 120
    assert (rows.requests, rows.cached, rows.repeated) == (1, 1, 1)


def test_tokens_of_failed_requests_and_of_stored_answers_fetched_again_do_not_count(tmp_path: Path) -> None:
    rows = [
        row(1),
        row(2, status="failure", prompt_tokens=9_000, completion_tokens=0),
        row(3, call_type="aget_responses"),
        row(4, call_type="retrieve_batch", endTime=None),
    ]
    log = read_spend_log(written(tmp_path, rows), GATEWAY)
    assert sum(sum(tokens.values()) for tokens in log.tokens.values()) == 120
    assert (log.requests, log.failed, log.repeated) == (1, 1, 2)


def test_a_log_of_failures_alone_counts_no_tokens(tmp_path: Path) -> None:
    log = read_spend_log(written(tmp_path, [row(1, status="FAILURE")]), GATEWAY)
    assert (dict(log.tokens), log.requests, log.failed) == ({}, 0, 1)


def page(number: int, pages: int, *rows: Any, **fields: Any) -> dict[str, Any]:
    return {"data": list(rows), "page": number, "total_pages": pages, "page_size": 1, **fields}


def test_pages_on_lines_of_one_file_are_read_together(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(page(number, 3, row(number), total=3)) for number in (2, 1, 3))
    assert read_spend_log(written(tmp_path, lines), GATEWAY).requests == 3


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (page(1, 20, row(1)), "lacks 19 of 20 pages of the reply, page 2 among them"),
        (page(3, 3, row(1)), "lacks 2 of 3 pages of the reply, page 1 among them"),
        ({"data": [row(1)], "total_pages": 2}, "lacks 1 of 2 pages"),
        ({"data": [row(1)], "total": 50}, "holds 1 of 50 rows of the reply"),
        ({"data": [], "total": 50}, "holds 0 of 50 rows of the reply"),
        ([{"startTime": "2026-09-21", "spend": 0.5, "models": {"chat": 0.5}}], "row 1 is a summary of a day"),
        ([row(1), {"group_by_day": "2026-09-21", "total_spend": 2}], "row 2 is a summary of a day"),
    ],
)
def test_a_part_of_a_log_is_refused_with_what_is_missing(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_spend_log(written(tmp_path, document), GATEWAY)


def test_without_aliases_the_key_is_its_hash_and_end_users_are_kept_apart_only_where_that_is_set(
    tmp_path: Path,
) -> None:
    bare = row(metadata="{}", end_user="mallory")
    (name, _) = read_spend_log(written(tmp_path, [bare]), GATEWAY).tokens[NOON]
    assert name == metric("prompt", key="hash-of-a-key", model="llama-70b", team="team-id")
    apart = GatewaySettings(GATEWAY.url, users=True)
    (name, _) = read_spend_log(written(tmp_path, [bare]), apart).tokens[NOON]
    assert 'user="mallory"' in name


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[", "not valid JSON"),
        ("[1]", "must be a list of objects"),
        ("[]", "holds no request"),
        ([row(prompt_tokens="many")], "row 1: prompt_tokens 'many' is not a number of tokens"),
        ([row(prompt_tokens=-1)], "is not a number of tokens"),
        ([row(1), row(2, endTime="soon")], "row 2: endTime 'soon' is not a time"),
    ],
)
def test_a_file_that_is_no_spend_log_is_refused_with_its_row(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_spend_log(written(tmp_path, value), GATEWAY)
