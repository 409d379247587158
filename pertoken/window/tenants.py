"""Tokens that gateways counted for tenants: `tokens`."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import Connection

from pertoken.metrics import TENANT_TOKENS
from pertoken.store.query.buckets import Gateway, gateways, tenant_counters
from pertoken.store.query.rollups import Segments, scaled
from pertoken.store.schema.telemetry import HOUR

MAX_DIFFERENCE = 0.1
"""Share by which the counts of one process may differ: agents miss pages, and read them at other seconds."""


def one_gateway(gateways: Iterable[Gateway], tokens: Mapping[tuple[int, int], int]) -> list[list[Gateway]]:
    """Return the gateways grouped by which they are, the one that saw most of each first; `tokens` by gateway and hour.

    Rows are of one gateway if they have one address (at a loopback address each host has its own), or if one process
    answers at both: it began at the same millisecond, and counted the same in the hours that both saw whole.
    """
    totals, counts = Counter[int](), defaultdict[int, dict[int, int]](dict)
    for (engine_id, hour), count in tokens.items():
        totals[engine_id] += count
        if count:
            counts[engine_id][hour] = count
    groups: list[list[Gateway]] = []
    for gateway in gateways:
        alike = [group for group in groups if any(_is_same(gateway, row, counts) for row in group)]
        merged = [*chain.from_iterable(alike), gateway]
        groups = [*(group for group in groups if group not in alike), merged]
    return [sorted(group, key=lambda row: (-totals[row.engine_id], row.engine_id)) for group in groups]


def counted_twice(groups: Iterable[list[Gateway]], tokens: Mapping[tuple[int, int], int]) -> frozenset[tuple[int, int]]:
    """Return each (gateway, hour) with tokens that were counted elsewhere, too.

    Of one gateway the row is kept that saw most in all hours, since its counts lack the missed pages; in
    hours in which that one saw nothing, the next.
    """
    hours: dict[int, set[int]] = defaultdict(set)
    for (engine_id, hour), count in tokens.items():
        if count:
            hours[engine_id].add(hour)
    dropped: set[tuple[int, int]] = set()
    for group in groups:
        taken: set[int] = set()
        for gateway in group:
            dropped.update((gateway.engine_id, hour) for hour in hours[gateway.engine_id] & taken)
            taken |= hours[gateway.engine_id]
    return frozenset(dropped)


def several_names(groups: Iterable[list[Gateway]], tokens: Mapping[tuple[int, int], int]) -> list[tuple[str, ...]]:
    """Return the addresses of each gateway that counted tokens under more than one."""
    counted = {engine_id for (engine_id, _), count in tokens.items() if count}
    names = (tuple(sorted({row.base_url for row in group if row.engine_id in counted})) for group in groups)
    return sorted(addresses for addresses in names if len(addresses) > 1)


def _is_same(gateway: Gateway, row: Gateway, counts: Mapping[int, Mapping[int, int]]) -> bool:
    if _identity(gateway) == _identity(row):
        return True
    if gateway.life is None or (gateway.kind, gateway.life) != (row.kind, row.life):
        return False
    counts_of_both = counts.get(gateway.engine_id, {}), counts.get(row.engine_id, {})
    # The first and the last hour that both saw may have begun or ended between the pages of one of them.
    common_hours = sorted(counts_of_both[0].keys() & counts_of_both[1].keys())[1:-1]
    tokens = [sum(count_by_hour[hour] for hour in common_hours) for count_by_hour in counts_of_both]
    return abs(tokens[0] - tokens[1]) <= MAX_DIFFERENCE * max(tokens)


def _identity(gateway: Gateway) -> tuple[int | None, str]:
    parts = urlsplit(gateway.base_url)
    name = (parts.hostname or "").casefold()
    address = f"{parts.scheme}://{name}:{parts.port or ''}{parts.path.rstrip('/')}"
    return (gateway.host_id if _is_loopback(name) else None), address


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


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
    """Return the counts of gateways in segments; of an hour that is divided the part by time.

    A gateway that several hosts read, or that has several names, is counted once.
    """
    rows = [(segment, row) for segment in segments for row in tenant_counters(connection, segment)]
    tokens: Counter[tuple[int, int]] = Counter()
    for _, row in rows:
        tokens[row.engine_id, row.ts // HOUR] += int(row.delta)
    several = len({engine_id for engine_id, _ in tokens}) > 1
    groups = one_gateway(gateways(connection), tokens) if several else []
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
