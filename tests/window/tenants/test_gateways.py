"""One gateway that several hosts read, or that has several names."""

from collections.abc import Mapping, Sequence

import pytest

from pertoken.store.query.buckets import Gateway
from pertoken.window import tenants as of_window
from pertoken.window.tenants import one_gateway, several_names

NOON, ONE = 12, 13
"""Hours."""
LIFE = -77


def read_at(engine_id: int, host_id: int, base_url: str) -> Gateway:
    return Gateway(engine_id, host_id, base_url, "litellm", None)


def counted_twice(gateways: Sequence[Gateway], tokens: Mapping[tuple[int, int], int]) -> frozenset[tuple[int, int]]:
    return of_window.counted_twice(one_gateway(gateways, tokens), tokens)


@pytest.mark.parametrize("url", ["http://gw:4000", "https://10.0.0.7/proxy", "http://[2001:db8::1]:4000"])
def test_of_one_address_the_host_that_saw_most_is_kept(url: str) -> None:
    hosts = [read_at(at, 100 + at, url) for at in (1, 2, 3)]
    assert counted_twice(hosts, {(1, NOON): 5, (2, NOON): 9, (3, NOON): 9}) == {(1, NOON), (3, NOON)}
    assert counted_twice(hosts, {}) == frozenset()
    assert counted_twice(hosts[:1], {(1, NOON): 5}) == frozenset()


def test_in_hours_in_which_it_saw_nothing_another_host_is_kept() -> None:
    hosts = [read_at(at, 100 + at, "http://gw:4000") for at in (1, 2)]
    tokens = {(1, NOON): 50, (1, ONE): 0, (2, NOON): 9, (2, ONE): 9}
    assert counted_twice(hosts, tokens) == {(2, NOON)}


@pytest.mark.parametrize("url", ["http://127.0.0.1:4000", "http://localhost:4000", "http://[::1]:4000"])
def test_at_loopback_each_host_has_a_gateway_of_its_own(url: str) -> None:
    tokens = {(1, NOON): 5, (2, NOON): 9}
    assert counted_twice([read_at(1, 101, url), read_at(2, 102, url)], tokens) == frozenset()
    assert counted_twice([read_at(1, 101, url), read_at(2, 101, url)], tokens) == {(1, NOON)}


def test_an_address_is_compared_without_case_and_with_its_port() -> None:
    one, other = read_at(1, 101, "http://GW.example:4000"), read_at(2, 102, "http://gw.example:4000/")
    tokens = {(1, NOON): 5, (2, NOON): 4}
    assert counted_twice([one, other], tokens) == {(2, NOON)}
    assert counted_twice([one, read_at(2, 102, "http://gw.example:4001")], tokens) == frozenset()


def two_names(life: int | None = LIFE, other_life: int | None = LIFE, kind: str = "litellm") -> list[Gateway]:
    gateway = Gateway(1, 101, "http://gw:4000", "litellm", life)
    return [gateway, Gateway(2, 101, "http://gw.internal:4000", kind, other_life)]


def hours(*counts: int, other: Sequence[int] | None = None) -> dict[tuple[int, int], int]:
    """Return tokens of the gateways 1 and 2 by hour, from noon."""
    both = ((1, counts), (2, counts if other is None else other))
    return {(engine_id, NOON + n): count for engine_id, row in both for n, count in enumerate(row)}


def test_two_names_of_one_process_are_counted_once_and_both_are_named() -> None:
    tokens = hours(5, 40, 60, 3, other=(1, 41, 59, 2))
    assert counted_twice(two_names(), tokens) == {(2, hour) for hour in range(NOON, NOON + 4)}
    groups = one_gateway(two_names(), tokens)
    assert several_names(groups, tokens) == [("http://gw.internal:4000", "http://gw:4000")]
    assert several_names(groups, {key: count for key, count in tokens.items() if key[0] == 1}) == []


def test_a_third_row_joins_two_names_by_its_address() -> None:
    by_address = read_at(3, 102, "http://gw:4000")
    elsewhere = read_at(4, 102, "http://gw.internal:4000")
    tokens = {(1, NOON): 4, (2, NOON): 3, (3, NOON): 2, (4, NOON): 1}
    for rows in ([*two_names(), by_address, elsewhere], [elsewhere, by_address, *two_names()]):
        assert counted_twice(rows, tokens) == {(2, NOON), (3, NOON), (4, NOON)}


@pytest.mark.parametrize(
    "rows",
    [two_names(None, None), two_names(LIFE, None), two_names(LIFE, LIFE - 1), two_names(kind="sgl-router")],
    ids=["no start time", "one start time", "two start times", "two kinds"],
)
def test_two_processes_are_both_counted(rows: list[Gateway]) -> None:
    assert counted_twice(rows, hours(5, 5, 5)) == frozenset()


def test_replicas_that_began_in_one_instant_are_both_counted_once_their_counts_differ() -> None:
    assert counted_twice(two_names(), hours(5, 50, 50, 5, other=(5, 60, 60, 5))) == frozenset()
    assert counted_twice(two_names(), hours(5, 50, 50, 5, other=(5, 50, 49, 5))) != frozenset()
