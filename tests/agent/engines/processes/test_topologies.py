"""Processes of one server, and servers that a process starts."""

from dataclasses import replace

import pytest

from pertoken.agent.discovery import discover
from pertoken.agent.engines.processes import locate, unread_server
from pertoken.agent.host.processes import Address, Process
from pertoken.agent.readings import Endpoint
from tests.agent.discovery.hosts import LOOPBACK, SERVE, host, never


def at(port: int, ip: str = "0.0.0.0") -> tuple[Address, ...]:
    return (Address(ip, port),)


def engines_of(*processes: Process, **more: object) -> list[tuple[str, int | None, tuple[int, ...]]]:
    endpoints = discover(host(*processes, **more), never).endpoints
    return [(f"{endpoint.kind} {endpoint.port}", endpoint.pid, endpoint.pids) for endpoint in endpoints]


SUPERVISOR = ("vllm", "serve", "org/m", "--port", "7000", "-dp", "4", "--data-parallel-size-local", "2")


@pytest.mark.parametrize(
    "flags",
    [
        ("--data-parallel-multi-port-external-lb",),
        ("-dpm",),
        ("--data-parallel-supervisor-port=9000",),
        ("--data-parallel-multi-port", "--data-parallel-supervisor", "9000"),
    ],
)
def test_each_rank_of_a_data_parallel_supervisor_is_a_server_at_its_port(flags: tuple[str, ...]) -> None:
    root = Process(10, 1, (*SUPERVISOR, *flags), 900, at(9000))
    ranks = [Process(pid, 10, ("VLLM::APIServer",), 900 + pid, at(6989 + pid)) for pid in (11, 12)]
    worker = Process(13, 12, ("VLLM::EngineCore_DP1",), 950)
    endpoints = discover(host(root, *ranks, worker), never).endpoints
    assert [(endpoint.port, endpoint.pid, endpoint.pids) for endpoint in endpoints] == [
        (7000, 11, (11,)),
        (7001, 12, (12, 13)),
    ]
    assert [endpoint.knobs["dp"] for endpoint in endpoints] == [1, 1]
    assert endpoints[1].knobs["topology"] == "rank server 1 of 2 of vllm"
    named = Endpoint("vllm", "http://127.0.0.1:7001", "setting", 7001)
    assert locate(named, host(root, *ranks, worker)).pids == (12, 13)


def test_a_rank_server_that_does_not_listen_is_named() -> None:
    root = Process(10, 1, (*SUPERVISOR, "-dpm"), 900, at(9000))
    rank = Process(11, 10, ("VLLM::APIServer",), 911, at(7000))
    discovery = discover(host(root, rank), never)
    assert len(discovery.endpoints) == 1
    assert [missing.reason for missing in discovery.unavailable] == [
        "vllm (pid 10) has 2 rank servers, and 1 listen at their ports"
    ]


@pytest.mark.parametrize("flags", [("--models-dir", "/models"), ("--models-preset", "p.ini"), ()])
@pytest.mark.parametrize("program", [("llama-server",), ("/opt/bin/llama", "serve")])
def test_a_router_of_llama_cpp_stands_for_the_servers_that_it_starts(
    flags: tuple[str, ...], program: tuple[str, ...]
) -> None:
    router = Process(10, 1, (*program, "--port", "8080", *flags), 900, at(8080))
    children = [
        Process(pid, 10, (*program, "--port", str(50_000 + pid), "-m", f"/m/{pid}.gguf"), 901, at(50_000 + pid))
        for pid in (11, 12)
    ]
    assert engines_of(router, *children) == [("llama.cpp 50011", 11, (11,)), ("llama.cpp 50012", 12, (12,))]


def test_a_router_that_has_loaded_no_model_is_named_and_not_read() -> None:
    router = Process(10, 1, ("llama-server", "--models-dir", "/models"), 900, at(8080))
    discovery = discover(host(router), never)
    assert discovery.endpoints == ()
    assert "llama.cpp (pid 10) starts servers of their own" in discovery.unavailable[0].reason


def test_servers_behind_the_router_of_sglang_are_found_at_their_ports() -> None:
    launch = (
        "python",
        "-m",
        "sglang_router.launch_server",
        "--model-path",
        "org/m",
        "--dp-size",
        "2",
        "--port",
        "30000",
    )
    root = Process(10, 1, launch, 900, at(30000))
    spawned = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(7)")
    servers = [Process(pid, 10, spawned, 901, at(31_000 + pid)) for pid in (11, 12)]
    schedulers = [Process(10 + pid, pid, ("sglang::scheduler",), 902) for pid in (11, 12)]
    kinds = {f"http://127.0.0.1:{port}": "sglang" for port in (31_011, 31_012)}
    endpoints = discover(host(root, *servers, *schedulers), kinds.get).endpoints
    assert [(endpoint.port, endpoint.pids) for endpoint in endpoints] == [(31_011, (11, 21)), (31_012, (12, 22))]


@pytest.mark.parametrize("runner", [("llama-server", "--port", "41000"), ("/lib/ollama/llama-server", "--port=41000")])
def test_a_server_that_an_engine_starts_for_itself_is_no_second_engine(runner: tuple[str, ...]) -> None:
    ollama = Process(10, 1, ("/usr/bin/ollama", "serve"), 900, at(11434))
    started = Process(11, 10, (*runner, "--model", "/blobs/sha256-0"), 901, at(41000, LOOPBACK))
    assert engines_of(started, ollama) == [("ollama 11434", 10, (10, 11))]


def test_a_server_that_an_engine_starts_is_none_before_that_engine_answers_either() -> None:
    ollama = Process(10, 1, ("ollama", "serve"), 900, at(5000))
    runner = Process(11, 10, ("llama-server", "--port", "41000"), 901, at(41000, LOOPBACK))
    assert discover(host(ollama, runner), lambda url: None).endpoints == ()


TRTLLM = ("python", "/bin/trtllm-serve", "org/m", "--port", "8000", "--tp_size", "2")
MPI_WORKER = ("python", "-m", "mpi4py.futures.server")


@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"])
def test_workers_that_an_mpi_launcher_starts_beside_a_server_are_its_own(launcher: str) -> None:
    above = Process(10, 1, (f"/usr/bin/{launcher}", "-n", "1", "trtllm-serve"), 900)
    shell = Process(11, 10, ("bash", "-c", "trtllm-serve org/m"), 900)
    server = Process(12, 11, TRTLLM, 901, at(8000))
    daemon = Process(13, 10, ("orted", "--daemonize"), 901)
    workers = [Process(pid, 13, MPI_WORKER, 902) for pid in (14, 15)]
    (endpoint,) = discover(host(above, shell, server, daemon, *workers), never).endpoints
    assert (endpoint.pid, endpoint.pids) == (12, (10, 11, 12, 13, 14, 15))
    assert endpoint.knobs["topology"] == f"{launcher} started it and its workers"


def test_workers_beside_two_servers_of_one_launcher_belong_to_neither() -> None:
    above = Process(10, 1, ("mpirun", "-n", "2", "trtllm-serve"), 900)
    servers = [
        Process(11, 10, TRTLLM, 901, at(8000)),
        Process(12, 10, (*TRTLLM[:3], "--port", "8001"), 901, at(8001)),
    ]
    worker = Process(13, 10, MPI_WORKER, 902)
    assert [pids for _, _, pids in engines_of(above, *servers, worker)] == [(11,), (12,)]
    assert (
        "workers of trtllm run without a server" in discover(host(above, *servers, worker), never).unavailable[0].reason
    )


def test_workers_whose_parent_ended_are_those_of_the_only_server_of_their_session() -> None:
    server = replace(Process(11, 1, SERVE, 900, at(18000)), session=11)
    worker = replace(Process(12, 1, ("VLLM::Worker_TP0",), 901), session=11)
    other = replace(Process(21, 1, (*SERVE[:5], "18001"), 900, at(18001)), session=21)
    assert engines_of(server, worker, other) == [("vllm 18000", 11, (11, 12)), ("vllm 18001", 21, (21,))]
    assert [pids for _, _, pids in engines_of(server, worker, replace(other, session=11))] == [(11,), (21,)]


def test_workers_whose_parent_ended_are_those_of_the_only_server_of_their_container() -> None:
    server = Process(11, 1, SERVE, 900, at(18000))
    workers = [Process(pid, 1, (f"VLLM::Worker_TP{pid - 12}",), 901) for pid in (12, 13)]
    groups = {11: "/docker/a", 12: "/docker/a", 13: "/docker/b"}
    assert engines_of(server, *workers, container_of=groups.get) == [("vllm 18000", 11, (11, 12))]


def test_workers_without_a_server_are_named_with_what_started_them() -> None:
    app = Process(11, 1, ("python", "chat_app.py", "--token=secret"), 900, at(7000))
    core = Process(12, 11, ("VLLM::EngineCore",), 901)
    discovery = discover(host(app, core), never)
    assert discovery.endpoints == ()
    (missing,) = discovery.unavailable
    assert missing.reason == (
        "workers of vllm run without a server that is recognised: "
        "pid 12 (VLLM::EngineCore below `chat_app.py` (pid 11))"
    )
    assert missing.remedy is not None and "--engine" in missing.remedy


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("vllm-router --service-discovery static", "vLLM's production-stack router"),
        ("python3 -m vllm_router.app --port 8001", "vLLM's production-stack router"),
        ("python -m sglang_router.launch_router --worker-urls http://a", "SGLang's router"),
        ("trtllm-serve disaggregated -c disagg.yaml", "TensorRT-LLM's disaggregated server"),
        ("/opt/bin/llama-swap --config c.yaml", "llama-swap"),
        ("python -m mlc_llm serve org/m", "MLC LLM"),
        ("mistralrs-server --port 1234 plain -m org/m", "mistral.rs"),
        ("xinference-local --host 0.0.0.0", "Xinference"),
        ("transformers serve", "Transformers"),
        ("transformers chat", None),
        ("python train.py", None),
        ("vllm bench serve", None),
        ("vllm serve org/m", None),
    ],
)
def test_a_server_that_cannot_be_read_is_known_by_its_command_line(line: str, name: str | None) -> None:
    server = unread_server(line.split())
    assert (server.name if server else None) == name


def test_a_server_that_cannot_be_read_is_named_once_with_its_port() -> None:
    parent = Process(11, 1, ("xinference-local",), 900, at(9997))
    child = Process(12, 11, ("xinference-local",), 901)
    (missing,) = discover(host(parent, child), never).unavailable
    assert missing.reason == "Xinference runs (pid 11, which listens on 9997): no adapter reads it"
    assert missing.remedy is not None and "docs/engines.md" in missing.remedy


def test_a_server_at_a_unix_socket_is_named_with_it() -> None:
    (missing,) = discover(host(Process(11, 1, ("vllm", "serve", "m", "--uds", "/run/v.sock"), 1)), never).unavailable
    assert missing.reason == "vllm (pid 11) answers at the socket /run/v.sock alone, which is not read"
    assert missing.remedy == "start it with --port in place of --uds"


@pytest.mark.parametrize(
    ("parent", "reason"),
    [
        (("/opt/lm-studio/lms", "server", "start"), "lms started it"),
        (("local-ai", "run"), "local-ai started it"),
        (("bash", "start.sh"), None),
        (("/sbin/init",), None),
        (("/usr/bin/tini", "--"), None),
    ],
)
def test_a_runner_names_the_program_that_started_it(parent: tuple[str, ...], reason: str | None) -> None:
    starter = Process(10, 1, parent, 900)
    runner = Process(11, 10, ("llama-server", "--port", "41000", "-m", "/m.gguf"), 901, at(41000, LOOPBACK))
    (endpoint,) = discover(host(starter, runner), never).endpoints
    assert endpoint.knobs.get("topology") == reason
