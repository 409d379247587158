"""Tokens of tenants, as gateways counted them: by hour, model and tenant."""

import json
import re
from collections import Counter, defaultdict
from typing import NamedTuple

from sqlalchemy import Connection

from pertoken.metrics import TENANT_TOKENS
from pertoken.store.query.buckets import gateways, tenant_counters
from pertoken.store.query.rollups import Segments, scaled
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.tenants.gateways import Gateway, counted_twice, one_gateway, several_names

_METRIC = re.compile(r"(\w+)\{(.*)\}", re.DOTALL)
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")(?:,|$)')


class Tenant(NamedTuple):
    """Tenant of some tokens, as far as a gateway names it."""

    team: str | None = None
    key: str | None = None
    namespace: str | None = None
    user: str | None = None


class TenantTokens(NamedTuple):
    """Tokens of one tenant by one model in one hour."""

    hour_ts: int
    model: str | None
    tenant: Tenant
    prompt_tokens: int
    generated_tokens: int
    cached_tokens: int | None = None
    """Of the prompt tokens; None where its gateway counts none."""
    reasoning_tokens: int = 0
    """Of the generated tokens, as far as its gateway counts them."""
    audio_tokens: int = 0
    """Of all tokens, as far as its gateway counts them."""
    images: int = 0
    """Images that were generated; they are no tokens."""
    video_ms: int = 0
    """Length of the videos that were generated."""

    @property
    def tokens(self) -> int:
        """Prompt (cached included) and generated tokens."""
        return self.prompt_tokens + self.generated_tokens


class TenantCounts(NamedTuple):
    """Tokens that gateways counted."""

    rows: list[TenantTokens]
    several_names: tuple[tuple[str, ...], ...] = ()
    """Addresses of each gateway that is read under more than one, and counted once."""


def read_tenants(connection: Connection, segments: Segments) -> TenantCounts:
    """Return what gateways counted in segments; of an hour that is divided the part by time.

    A gateway that several hosts read, or that has several names, is counted once.
    """
    rows = [(segment, row) for segment in segments for row in tenant_counters(connection, segment)]
    tokens: Counter[tuple[int, int]] = Counter()
    for _, row in rows:
        tokens[row.engine_id, row.ts // HOUR] += int(row.delta)
    several = len({engine_id for engine_id, _ in tokens}) > 1
    groups = one_gateway([Gateway(*row) for row in gateways(connection)], tokens) if several else []
    dropped = counted_twice(groups, tokens)
    counts: dict[tuple[int, str | None, Tenant], Counter[str]] = defaultdict(Counter)
    without_cached: set[tuple[int, str | None, Tenant]] = set()
    counting_cached = {row.engine_id for _, row in rows if row.metric.startswith("tenant_cached_tokens")}
    for segment, row in rows:
        parsed = None if (row.engine_id, row.ts // HOUR) in dropped else parse_metric(row.metric)
        if parsed is None:
            continue
        word, model, tenant = parsed
        delta = int(row.delta)
        key = row.ts // HOUR * HOUR, model, tenant
        counts[key][word.removeprefix("tenant_")] += delta if segment.part is None else scaled(delta, *segment.part)
        if row.engine_id not in counting_cached:
            without_cached.add(key)
    tenant_tokens = [
        TenantTokens(
            *key,
            of_tenant["prompt_tokens"],
            of_tenant["generated_tokens"],
            None if key in without_cached else of_tenant["cached_tokens"],
            of_tenant["reasoning_tokens"],
            of_tenant["prompt_audio_tokens"] + of_tenant["audio_tokens"],
            of_tenant["images"],
            of_tenant["video_ms"],
        )
        for key, of_tenant in sorted(counts.items(), key=repr)
    ]
    return TenantCounts(tenant_tokens, tuple(several_names(groups, tokens)))


def parse_metric(metric: str) -> tuple[str, str | None, Tenant] | None:
    """Return (word, model, tenant) of a stored metric of a tenant; None for any other."""
    match = _METRIC.fullmatch(metric)
    if match is None or match[1] not in TENANT_TOKENS:
        return None
    values = {name: str(json.loads(value)) for name, value in _PAIR.findall(match[2])}
    model = values.pop("model", None)
    return match[1], model, Tenant(**{name: values.get(name) for name in Tenant._fields})
