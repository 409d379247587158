"""Listening sockets of this host, as the kernel lists them in two ways."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pertoken.agent.host import processes
from pertoken.agent.host.processes import Address


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
    sockets = processes.listening_here()
    assert addresses <= set(sockets.values())
    own = {inode for inode, address in sockets.items() if address in addresses}
    assert {inode: sockets[inode] for inode in own} == {
        inode: address for inode, address in processes.listening_of("self").items() if inode in own
    }
    assert len(own) == len(addresses)


def test_a_kernel_that_does_not_list_sockets_is_read_by_its_files(
    addresses: set[Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_NETLINK_SOCK_DIAG", 250)  # no such protocol
    assert addresses <= set(processes.listening_here().values())
