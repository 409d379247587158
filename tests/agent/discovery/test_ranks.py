"""Ranks of several hosts: which server they are part of."""

from pertoken.agent.discovery import Discovery, discover
from pertoken.agent.host.processes import Address, Process
from tests.agent.discovery.hosts import LOOPBACK, SERVE, host, never

HEAD = (*SERVE, "--data-parallel-address", "10.0.0.1", "--data-parallel-size", "4")


def test_ranks_that_follow_another_host_are_an_endpoint_that_is_never_asked() -> None:
    follower = Process(11, 1, (*HEAD, "--headless", "--data-parallel-start-rank", "2"), 1000)
    worker = Process(12, 11, ("VLLM::Worker_DP2_TP0",), 1500)
    (endpoint,) = discover(host(follower, worker), never).endpoints
    assert (endpoint.base_url, endpoint.port, endpoint.follows) == ("rendezvous://10.0.0.1/org/model", None, True)
    assert (endpoint.pids, endpoint.knobs["rendezvous"], endpoint.knobs["dp"]) == ((11, 12), "10.0.0.1", 4)


def test_ranks_with_their_head_on_this_host_are_part_of_it() -> None:
    head = Process(11, 1, HEAD, 1000, (Address("0.0.0.0", 18000),))
    follower = Process(21, 1, (*HEAD, "--headless"), 1000)
    other = Process(31, 1, ("vllm", "serve", "org/other", "--headless", "--data-parallel-address", "10.0.0.1"), 1000)
    endpoints = discover(host(head, follower, other), never).endpoints
    assert [(endpoint.base_url, endpoint.pids) for endpoint in endpoints] == [
        ("http://127.0.0.1:18000", (11, 21)),
        ("rendezvous://10.0.0.1/org/other", (31,)),
    ]


def test_sglang_nodes_meet_at_the_address_of_the_first() -> None:
    argv: tuple[str, ...] = (
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "org/m",
        "--tp",
        "16",
        "--nnodes",
        "2",
    )
    argv += ("--dist-init-addr", "10.0.0.1:5000", "--node-rank")
    head = Process(11, 1, (*argv, "0"), 1000, (Address("0.0.0.0", 30000),))
    (endpoint,) = discover(host(head), never).endpoints
    assert (endpoint.base_url, endpoint.follows) == ("http://127.0.0.1:30000", False)
    assert (endpoint.knobs["rendezvous"], endpoint.knobs["tp"]) == ("10.0.0.1:5000", 16)
    (endpoint,) = discover(host(Process(11, 1, (*argv, "1"), 1000, (Address("0.0.0.0", 30000),))), never).endpoints
    assert (endpoint.base_url, endpoint.follows) == ("rendezvous://10.0.0.1:5000/org/m", True)


RAYLET = Process(50, 1, ("/x/raylet/raylet", "--gcs-address=10.0.0.1:6379", "--metrics_export_port=8080"), 900)
RAY_WORKERS = (
    Process(51, 50, ("ray::RayWorkerWrapper.execute_method",), 1500),
    Process(52, 50, ("ray::RayWorkerWrapper",), 1500),
    Process(53, 50, ("ray::IDLE",), 1500),
)


def test_workers_that_ray_runs_for_a_server_of_this_host_are_its_own() -> None:
    serve = (*SERVE, "--distributed-executor-backend", "ray")
    head = Process(11, 1, serve, 1000, (Address("0.0.0.0", 18000),))
    (endpoint,) = discover(host(head, RAYLET, *RAY_WORKERS), lambda url: None).endpoints
    assert (endpoint.pids, endpoint.knobs["rendezvous"]) == ((11, 51, 52), "10.0.0.1:6379")
    other = Process(12, 1, tuple(word.replace("18000", "18001") for word in serve), 1000, (Address(LOOPBACK, 18001),))
    both = discover(host(head, other, RAYLET, *RAY_WORKERS), lambda url: None).endpoints
    assert [name.pids for name in both] == [(11,), (12,)]


def test_workers_that_ray_runs_for_a_server_elsewhere_follow_it() -> None:
    (endpoint,) = discover(host(RAYLET, *RAY_WORKERS), lambda url: None).endpoints
    assert (endpoint.kind, endpoint.base_url, endpoint.follows) == ("vllm", "rendezvous://10.0.0.1:6379/", True)
    assert (endpoint.pids, endpoint.knobs) == ((51, 52), {"rendezvous": "10.0.0.1:6379"})
    local = host(RAYLET, *RAY_WORKERS, own_ips=frozenset({"10.0.0.1"}))
    assert discover(local, lambda url: None) == Discovery()


def test_worker_ranks_without_a_known_head_are_unavailable_with_a_reason() -> None:
    discovery = discover(host(Process(11, 1, (*SERVE, "--headless"), 1000)), never)
    assert discovery.endpoints == ()
    assert "serves for another host" in discovery.unavailable[0].reason
