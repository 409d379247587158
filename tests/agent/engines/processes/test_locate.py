"""The process behind an address."""

from pertoken.agent.engines.processes import locate
from pertoken.agent.host.processes import Address, Process
from pertoken.agent.readings import Endpoint
from tests.agent.discovery.hosts import LOOPBACK, SERVE, host, vllm_tree


def test_a_named_endpoint_gets_the_process_that_listens_there() -> None:
    tree = host(*vllm_tree(Address("0.0.0.0", 18000)), own_ips=frozenset({LOOPBACK, "10.0.0.7"}))
    for base_url in ("http://localhost:18000", "http://10.0.0.7:18000", "http://127.0.0.1:18000/gpu0"):
        located = locate(Endpoint("vllm", base_url, "setting", 18000), tree)
        assert (located.base_url, located.found_by) == (base_url, "setting")
        assert (located.pid, located.process_start_ms, located.knobs["tp"]) == (11, 1000, 2)
    for base_url in ("http://gpu-host:18000", "http://10.0.0.8:18000", "http://127.0.0.1:18001"):
        located = locate(Endpoint("vllm", base_url, "setting", int(base_url[22:] or 0), pid=11), tree)
        assert (located.pid, located.process_start_ms, located.pids) == (None, None, ())


def test_a_proxy_that_listens_for_a_server_stands_for_itself() -> None:
    proxy = Process(30, 1, ("nginx",), 7000, (Address(LOOPBACK, 80),))
    located = locate(Endpoint("vllm", "http://127.0.0.1", "setting", 80), host(proxy))
    assert (located.pid, located.knobs) == (30, {})


def test_every_way_that_leads_to_a_server_in_a_container_is_that_server() -> None:
    address = Address("0.0.0.0", 8000, reached=(LOOPBACK, 8080), also=(("172.17.0.2", 8000),))
    server = Process(11, 1, SERVE, 1000, (address,))
    proxy = Process(12, 1, ("docker-proxy",), 900, (Address("0.0.0.0", 8080),))
    for url in ("http://127.0.0.1:8080", "http://localhost:8080", "http://172.17.0.2:8000"):
        assert locate(Endpoint("vllm", url, "setting", 1), host(server, proxy)).pid == 11
    assert locate(Endpoint("vllm", "http://172.17.0.2:8080", "setting", 1), host(server, proxy)).pid is None
