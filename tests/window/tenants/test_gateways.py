"""One gateway that several hosts read."""

import pytest

from pertoken.window.tenants.gateways import Gateway, counted_twice

NOON, ONE = 12, 13
"""Hours."""


@pytest.mark.parametrize("url", ["http://gw:4000", "https://10.0.0.7/proxy", "http://[2001:db8::1]:4000"])
def test_of_one_address_the_host_that_saw_most_is_kept(url: str) -> None:
    hosts = [Gateway(at, 100 + at, url) for at in (1, 2, 3)]
    assert counted_twice(hosts, {(1, NOON): 5, (2, NOON): 9, (3, NOON): 9}) == {(1, NOON), (3, NOON)}
    assert counted_twice(hosts, {}) == frozenset()
    assert counted_twice(hosts[:1], {(1, NOON): 5}) == frozenset()


def test_in_hours_in_which_it_saw_nothing_another_host_is_kept() -> None:
    hosts = [Gateway(at, 100 + at, "http://gw:4000") for at in (1, 2)]
    tokens = {(1, NOON): 50, (1, ONE): 0, (2, NOON): 9, (2, ONE): 9}
    assert counted_twice(hosts, tokens) == {(2, NOON)}


@pytest.mark.parametrize("url", ["http://127.0.0.1:4000", "http://localhost:4000", "http://[::1]:4000"])
def test_at_loopback_each_host_has_a_gateway_of_its_own(url: str) -> None:
    tokens = {(1, NOON): 5, (2, NOON): 9}
    assert counted_twice([Gateway(1, 101, url), Gateway(2, 102, url)], tokens) == frozenset()
    assert counted_twice([Gateway(1, 101, url), Gateway(2, 101, url)], tokens) == {(1, NOON)}


def test_an_address_is_compared_without_case_and_with_its_port() -> None:
    one, other = Gateway(1, 101, "http://GW.example:4000"), Gateway(2, 102, "http://gw.example:4000/")
    tokens = {(1, NOON): 5, (2, NOON): 4}
    assert counted_twice([one, other], tokens) == {(2, NOON)}
    assert counted_twice([one, Gateway(2, 102, "http://gw.example:4001")], tokens) == frozenset()
