"""The spend log of a LiteLLM proxy, as a file: tokens of tenants by minute, for time before its page was read.

Rows are those of LiteLLM's table `LiteLLM_SpendLogs`, as `GET /spend/logs?summarize=false` and `/spend/logs/v2` return
them: one for each request.
"""

import collections
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pertoken.agent.gateways.adapters import LITELLM
from pertoken.agent.gateways.reader import tenant_of
from pertoken.errors import BadInput
from pertoken.printable import short
from pertoken.settings.fleet import GatewaySettings
from pertoken.store.schema.telemetry import MINUTE

MAX_BYTES = 512 * 2**20

MAX_TOKENS = 10**9
"""Tokens of one request: more is no count."""
_ALL_ROWS = "export it again as `GET /spend/logs?summarize=false`, which returns a row for each request"
_STORED_ANSWER = re.compile(r"a?(get|retrieve|list|delete|cancel)_")
"""Types of calls that handle an answer of an earlier request, whose tokens its own row has."""


@dataclass(frozen=True, slots=True)
class SpendLog:
    """Requests and tokens that a log counts."""

    tokens: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Tokens by start of the minute in which requests ended, epoch seconds, and by metric of a tenant."""
    requests: int = 0
    cached: int = 0
    """Requests that the gateway answered from its own cache: no engine saw them, and none of their tokens count."""
    repeated: int = 0
    """Rows of a request that was in the file before, and of calls that fetched a stored answer again."""
    failed: int = 0
    """Requests that failed: the tokens in their rows are an estimate of the gateway."""


def read_spend_log(path: Path, setting: GatewaySettings) -> SpendLog:
    """Return the tokens of a log: JSON (a list, or an object with `data`), or one of these or a row on each line.

    Raises BadInput naming the file, the row and what is wrong with it.
    """
    tokens: dict[int, collections.Counter[str]] = defaultdict(collections.Counter)
    requests = cached = repeated = failed = 0
    seen: set[str] = set()
    for number, row in enumerate(_rows(path), 1):
        where = f"{path}: row {number}"
        request_id = row.get("request_id")
        if isinstance(request_id, str) and request_id:
            if request_id in seen:
                repeated += 1
                continue
            seen.add(request_id)
        if _STORED_ANSWER.match(str(row.get("call_type"))):
            repeated += 1
            continue
        if str(row.get("status")).casefold() == "failure":
            failed += 1
            continue
        usage = _object(_object(row.get("metadata")).get("usage_object"))
        prompt, generated = (_object(usage.get(f"{name}_tokens_details")) for name in ("prompt", "completion"))
        counts = {
            "tenant_prompt_tokens": _count(where, row, "prompt_tokens"),
            "tenant_generated_tokens": _count(where, row, "completion_tokens"),
            "tenant_cached_tokens": _count(where, prompt, "cached_tokens"),
            "tenant_reasoning_tokens": _count(where, generated, "reasoning_tokens"),
            "tenant_prompt_audio_tokens": _count(where, prompt, "audio_tokens"),
            "tenant_audio_tokens": _count(where, generated, "audio_tokens"),
            "tenant_images": _count(where, usage, "output_image_count"),
            "tenant_video_ms": _milliseconds(where, usage, "duration_seconds"),
        }
        if str(row.get("cache_hit")).casefold() == "true":
            cached += 1
            continue
        minute = _time(where, row) // MINUTE * MINUTE
        requests += 1
        tenant = tenant_of(setting, LITELLM, tuple(_labels(row).items()))
        for name, count in counts.items():
            if count:
                tokens[minute][name + tenant] += count
    if not (requests or cached or failed or repeated):
        raise BadInput(f"{path}: holds no request")
    return SpendLog({minute: dict(of) for minute, of in sorted(tokens.items())}, requests, cached, repeated, failed)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES // 2**20} MiB: export fewer days")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        documents = _lines(path, text)
    rows = [row for document in documents for row in _rows_of(document)]
    if not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: must be a list of objects, or one object on each line")
    _check_pages(path, [document for document in documents if _is_page(document)])
    summary = next((number for number, row in enumerate(rows, 1) if _is_summary(row)), None)
    if summary is not None:
        raise BadInput(f"{path}: row {summary} is a summary of a day, not a request: {_ALL_ROWS}")
    return rows


def _is_page(document: object) -> bool:
    return isinstance(document, dict) and isinstance(document.get("data"), list)


def _rows_of(document: Any) -> Iterator[Any]:
    if isinstance(document, list):
        yield from document
    elif _is_page(document):
        yield from document["data"]
    else:
        yield document


def _is_summary(row: Mapping[str, Any]) -> bool:
    """Return whether a row has none of the columns that a request always has."""
    return not {"request_id", "call_type", "prompt_tokens", "completion_tokens"} & row.keys()


def _check_pages(path: Path, pages: Sequence[Mapping[str, Any]]) -> None:
    """Raise BadInput for pages of a reply that has further pages, or more rows than they hold."""
    last = max((count for page in pages if (count := _whole(page.get("total_pages")))), default=0)
    missing = set(range(1, last + 1)) - {_whole(page.get("page")) or 1 for page in pages}
    if missing:
        raise BadInput(
            f"{path}: lacks {len(missing)} of {last} pages of the reply, page {min(missing)} among them: "
            f"put all pages into it, one on each line, or {_ALL_ROWS}"
        )
    total = max((count for page in pages if (count := _whole(page.get("total")))), default=0)
    held = sum(len(page["data"]) for page in pages)
    if total > held:
        raise BadInput(f"{path}: holds {held} of {total} rows of the reply: {_ALL_ROWS}")


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _lines(path: Path, text: str) -> list[Any]:
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not valid JSON: {error}") from None


def _labels(row: Mapping[str, Any]) -> dict[str, str]:
    """Return what a row names, under the labels that the gateway's metrics have for the same."""
    about = _object(row.get("metadata"))
    named = {
        "model": row.get("model"),
        "requested_model": row.get("model_group"),
        "team_alias": about.get("user_api_key_team_alias"),
        "team": row.get("team_id"),
        "api_key_alias": about.get("user_api_key_alias"),
        "hashed_api_key": row.get("api_key"),
        "end_user": row.get("end_user"),
    }
    return {label: value for label, value in named.items() if isinstance(value, str) and value}


def _object(value: object) -> Mapping[str, Any]:
    """Return an object, or the one that a text holds; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _count(where: str, row: Mapping[str, Any], column: str) -> int:
    value = row.get(column, 0)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise BadInput(f"{where}: {column} {short(repr(value))} is not a number of tokens")
    return value


def _milliseconds(where: str, row: Mapping[str, Any], column: str) -> int:
    value = row.get(column)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TOKENS:
        raise BadInput(f"{where}: {column} {short(repr(value))} is not a number of seconds")
    return round(1000.0 * float(value))


def _time(where: str, row: Mapping[str, Any]) -> int:
    """Return when a request ended, which is when a gateway counts it."""
    text = row.get("endTime") or row.get("startTime")
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise BadInput(f"{where}: endTime {short(repr(text))} is not a time") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
