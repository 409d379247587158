"""Gateways that several hosts read: their tokens count once."""

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit


class Gateway(NamedTuple):
    """A gateway as one host reads it."""

    engine_id: int
    host_id: int
    base_url: str


def counted_twice(gateways: Iterable[Gateway], tokens: Mapping[tuple[int, int], int]) -> frozenset[tuple[int, int]]:
    """Return the (gateway, hour) whose tokens were counted elsewhere, too; `tokens` by gateway and hour.

    Of one gateway the host is kept that saw most in all hours, since what a host missed is missing from its counts; in
    hours in which that one saw nothing, the next. A gateway is known by its address; at a loopback address each host
    has its own.
    """
    totals: Counter[int] = Counter()
    hours: dict[int, set[int]] = defaultdict(set)
    for (engine_id, hour), count in tokens.items():
        totals[engine_id] += count
        if count:
            hours[engine_id].add(hour)
    same: dict[tuple[int | None, str], list[Gateway]] = defaultdict(list)
    for gateway in gateways:
        same[_identity(gateway)].append(gateway)
    dropped: set[tuple[int, int]] = set()
    for some in same.values():
        taken: set[int] = set()
        for gateway in sorted(some, key=lambda one: (-totals[one.engine_id], one.engine_id)):
            dropped.update((gateway.engine_id, hour) for hour in hours[gateway.engine_id] & taken)
            taken |= hours[gateway.engine_id]
    return frozenset(dropped)


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
