"""Gateways that several hosts read, or that have several names: their tokens count once."""

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple
from urllib.parse import urlsplit

MAX_DIFFERENCE = 0.1
"""Share by which the counts of one process may differ: agents miss pages, and read them at other seconds."""


class Gateway(NamedTuple):
    """A gateway as one host reads it."""

    engine_id: int
    host_id: int
    base_url: str
    kind: str = "litellm"
    life: int | None = None
    """Id of its process by the start time on its page; None where its page has none."""


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
        alike = [group for group in groups if any(_is_one(gateway, other, counts) for other in group)]
        merged = [*chain.from_iterable(alike), gateway]
        groups = [*(group for group in groups if group not in alike), merged]
    return [sorted(group, key=lambda one: (-totals[one.engine_id], one.engine_id)) for group in groups]


def counted_twice(groups: Iterable[list[Gateway]], tokens: Mapping[tuple[int, int], int]) -> frozenset[tuple[int, int]]:
    """Return the (gateway, hour) whose tokens were counted elsewhere, too.

    Of one gateway the row is kept that saw most in all hours, since what it missed is missing from its counts; in
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
    names = (tuple(sorted({one.base_url for one in group if one.engine_id in counted})) for group in groups)
    return sorted(addresses for addresses in names if len(addresses) > 1)


def _is_one(gateway: Gateway, other: Gateway, counts: Mapping[int, Mapping[int, int]]) -> bool:
    if _identity(gateway) == _identity(other):
        return True
    if gateway.life is None or (gateway.kind, gateway.life) != (other.kind, other.life):
        return False
    own, others = counts.get(gateway.engine_id, {}), counts.get(other.engine_id, {})
    # The first and the last hour that both saw may have begun or ended between the pages of one of them.
    whole = sorted(own.keys() & others.keys())[1:-1]
    one, two = (sum(of[hour] for hour in whole) for of in (own, others))
    return abs(one - two) <= MAX_DIFFERENCE * max(one, two)


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
