"""Listening sockets of this host, as the kernel lists them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pertoken.agent.host.processes import Address, listening_of


@pytest.fixture
def addresses() -> Iterator[set[Address]]:
    """Where this test listens; a connection to one of them is none of them."""
    with ExitStack() as stack:
        four = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        six = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        stack.enter_context(socket.create_connection(four.getsockname()))
        yield {Address(*server.getsockname()[:2]) for server in (four, other, six)}


def test_the_kernel_lists_what_listens_and_no_connections(addresses: set[Address]) -> None:
    listening = [address for address in listening_of("self").values() if address in addresses]
    assert sorted(listening, key=str) == sorted(addresses, key=str)
