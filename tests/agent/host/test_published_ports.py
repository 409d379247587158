"""Ports that lead into containers: by what forwarders list, and in real network namespaces where they can be made."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.agent.host.processes import (
    Address,
    Forward,
    _ips,
    docker_ports,
    forwarded,
    host_processes,
    rootless_ports,
)

OWN = "net:[1]"
INSIDE = 18_555
LISTEN = f"import socket; s = socket.create_server(('0.0.0.0', {INSIDE})); print(1, flush=True); input()"
FORWARDER = """
import socket, subprocess, sys
s = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
child.stdout.readline()
print(s.getsockname()[1], flush=True)
input()
child.kill()
child.wait()
"""


def test_ports_of_docker_are_read_from_the_command_lines_of_its_proxies() -> None:
    proxy = "/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 8080 -container-ip 172.17.0.2"
    argvs: list[tuple[str, ...]] = [(*proxy.split(), "-container-port", "8000"), ("docker-proxy", "-x"), ()]
    assert docker_ports(argvs) == {("172.17.0.2", 8000): (("127.0.0.1", 8080),)}
    assert set(_ips(os.getpid())) <= host_processes().own_ips


def test_a_port_published_on_one_address_is_not_taken_for_one_of_loopback() -> None:
    def proxy(host_ip: str, host_port: int) -> tuple[str, ...]:
        ports = f"-host-port {host_port} -container-ip 172.17.0.2 -container-port 8000"
        return (*f"docker-proxy -proto tcp -host-ip {host_ip} {ports}".split(),)

    at_one = docker_ports([proxy("192.0.2.5", 8080)])
    assert at_one == {("172.17.0.2", 8000): (("192.0.2.5", 8080),)}
    both = docker_ports([proxy("192.0.2.5", 8080), proxy("0.0.0.0", 8081), proxy("::", 8081)])
    assert both == {("172.17.0.2", 8000): (("127.0.0.1", 8081), ("::1", 8081), ("192.0.2.5", 8080))}
    namespaces: dict[int, str | None] = {5: OWN, 7: "net:[7]"}
    pasta = rootless_ports({5: ("pasta", "-t", "192.0.2.5/8080:80", "7")}, namespaces, OWN, nothing, lambda pid: None)
    assert pasta == {"net:[7]": (Forward(8080, 80, "192.0.2.5"),)}
    assert forwarded(pasta["net:[7]"], 80) == [("192.0.2.5", 8080)]


def nothing(pid: int) -> frozenset[tuple[str, int]]:
    return frozenset()


def test_ports_of_pasta_and_their_namespace_are_read_from_its_command_line(tmp_path: Path) -> None:
    namespace = f"net:[{tmp_path.stat().st_ino}]"
    pasta = f"/usr/bin/pasta --config-net -t 127.0.0.1/8080:8000,9000 -t auto -u none {tmp_path}"
    forwards = rootless_ports(
        {5: tuple(pasta.split()), 6: ("slirp4netns", "-c", "7", "tap0"), 7: ("vllm",), 8: ("python",)},
        {5: OWN, 6: OWN, 7: "net:[7]", 8: namespace},
        OWN,
        nothing,
        lambda pid: None,
    )
    assert forwards == {namespace: (Forward(8080, 8000), Forward(9000, 9000)), "net:[7]": ()}


@pytest.mark.parametrize(
    ("forwards", "inner", "ports"),
    [
        ((Forward(8080, 8000), Forward(9000, 9000)), 8000, [8080]),
        ((Forward(8080), Forward(8000)), 8000, [8000]),
        ((Forward(8080),), 8000, [8080]),
        ((Forward(8080), Forward(8081)), 8000, []),
        ((Forward(8080, 1),), 8000, []),
        ((), 8000, []),
    ],
)
def test_the_published_port_of_a_server_is_exact_or_unknown(
    forwards: tuple[Forward, ...], inner: int, ports: list[int]
) -> None:
    assert forwarded(forwards, inner) == [("127.0.0.1", port) for port in ports]


@contextmanager
def alone(*command: str, title: str = sys.executable) -> Iterator[tuple[int, str]]:
    """A process that prints a line once it is ready, and that line; skips where no namespace may be made."""
    server = subprocess.Popen(
        command, executable=sys.executable if title != sys.executable else None, stdin=-1, stdout=-1, text=True
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline().strip()
        if not line:
            pytest.skip("this machine lets nobody make a network namespace")
        yield server.pid, line
    finally:
        server.communicate()


def test_a_port_of_another_network_is_not_taken_for_one_of_this_host() -> None:
    with alone("unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", LISTEN) as (pid, _):
        seen = host_processes()
        assert seen.processes[pid].listening == ()  # no way leads to it from here
        assert INSIDE not in {address.port for address in seen.unowned}


def test_a_server_of_a_pod_is_reached_at_its_address() -> None:
    network = "ip addr add 10.244.1.5/24 dev lo && ip link set lo up && exec "
    shell = network + f'"{sys.executable}" -c "{LISTEN}"'
    with alone("unshare", "--user", "--map-root-user", "--net", "sh", "-c", shell) as (pid, _):
        (address,) = host_processes().processes[pid].listening
    assert address == Address("0.0.0.0", INSIDE, reached=("10.244.1.5", INSIDE))


def test_a_server_that_podman_runs_without_root_is_reached_at_the_port_that_leads_to_it() -> None:
    inside = ["unshare", "--user", "--map-root-user", "--net", "rootlessport", "-c", LISTEN]
    titled = f"import os; os.execv('/usr/bin/env', ['env', *{inside[:4]!r}, 'bash', '-c', {_exec(LISTEN)!r}])"
    with alone("rootlessport", "-c", FORWARDER, sys.executable, "-c", titled, title="rootlessport") as (pid, port):
        seen = host_processes()
        (child,) = (process for process in seen.processes.values() if process.ppid == pid)
        assert child.argv[0] == "rootlessport-child"
        assert child.listening == (Address("0.0.0.0", INSIDE, reached=("127.0.0.1", int(port))),)


def _exec(script: str) -> str:
    return f'exec -a rootlessport-child "{sys.executable}" -c "{script}"'
