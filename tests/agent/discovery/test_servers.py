import os
import socket
import subprocess
import sys
from collections.abc import Collection

import pytest

from pertoken.agent.discovery import Discovery, discover
from pertoken.agent.engines.processes import locate
from pertoken.agent.host.owners import VARIABLES as POD_VARIABLES
from pertoken.agent.host.processes import Address, Process, host_processes
from pertoken.agent.readings import Endpoint
from tests.agent.discovery.hosts import LOOPBACK, SERVE, host, never, vllm_tree


def test_a_vllm_server_is_found_with_all_its_processes_and_without_asking_anybody() -> None:
    discovery = discover(host(*vllm_tree(Address("0.0.0.0", 18000))), never)
    assert discovery.unavailable == ()
    assert discovery.endpoints == (
        Endpoint(
            kind="vllm",
            base_url="http://127.0.0.1:18000",
            found_by="process",
            port=18000,
            pid=11,
            process_start_ms=1000,
            pids=(11, 12, 13, 14, 15, 16),
            knobs={"tp": 2, "pp": 1, "dp": 1, "ep": 1},
            model_path="org/model",
        ),
    )


def test_a_port_its_child_listens_on_is_its_own() -> None:
    tree = vllm_tree()
    child = Process(12, 11, tree[2].argv, 2000, (Address("::", 18000),))
    discovery = discover(host(*(child if process.pid == 12 else process for process in tree)), never)
    assert [endpoint.base_url for endpoint in discovery.endpoints] == ["http://[::1]:18000"]


def test_only_ports_of_the_server_are_asked_when_it_does_not_name_its_own() -> None:
    asked: list[str] = []

    def ask(url: str) -> str | None:
        asked.append(url)
        return "vllm" if url.endswith(":5555") else None

    tree = vllm_tree(Address(LOOPBACK, 5000), Address("10.0.0.7", 5555), argv=("vllm", "serve", "org/model"))
    discovery = discover(host(*tree), ask)
    assert [endpoint.base_url for endpoint in discovery.endpoints] == ["http://10.0.0.7:5555"]
    assert asked == ["http://127.0.0.1:5000", "http://10.0.0.7:5555"]


def test_a_server_found_before_is_not_asked_again() -> None:
    tree = host(*vllm_tree(Address(LOOPBACK, 5000), Address(LOOPBACK, 5555), argv=("vllm", "serve", "org/model")))
    first = discover(tree, lambda url: "vllm" if url.endswith(":5555") else None)
    assert discover(tree, never, previous=first.endpoints).endpoints == first.endpoints


def test_a_server_without_a_visible_port_is_unavailable_with_a_remedy() -> None:
    # What its ranks listen on for each other is not asked: its command line names the port.
    discovery = discover(host(*vllm_tree()), never)
    assert discovery.endpoints == ()
    assert [(missing.metric, missing.status) for missing in discovery.unavailable] == [("vllm", "failing")]
    tree = [process for process in vllm_tree() if process.pid != 13]
    discovery = discover(host(*tree), lambda url: None)
    assert [(missing.metric, missing.status) for missing in discovery.unavailable] == [("vllm", "missing")]
    assert "--engine" in (discovery.unavailable[0].remedy or "")


def test_a_server_of_another_user_is_found_by_the_port_it_names() -> None:
    tree = [process for process in vllm_tree() if process.pid != 13]
    unowned = (Address("0.0.0.0", 18000), Address("0.0.0.0", 9999))
    discovery = discover(host(*tree, unowned=unowned), {"http://127.0.0.1:18000": "vllm"}.__getitem__)
    assert [(endpoint.base_url, endpoint.pid) for endpoint in discovery.endpoints] == [("http://127.0.0.1:18000", 11)]
    assert [missing.status for missing in discovery.unavailable] == ["denied"]
    assert "may not look into: 2" in discovery.unavailable[0].reason


def test_a_library_mapped_into_a_process_leads_to_its_port() -> None:
    script = Process(20, 1, ("python", "app.py", "-c", "4096"), 5000, (Address(LOOPBACK, 7000), Address("::1", 7001)))
    bystander = Process(21, 1, ("python", "other.py"), 5000, (Address(LOOPBACK, 7100),))
    hidden = Process(22, 1, ("secret",), 5000, (Address(LOOPBACK, 7200),))
    mapped = {20: frozenset({"/site-packages/xllamacpp/xllamacpp.abi3.so"}), 21: frozenset({"/lib/libc.so.6"})}
    answers = {"http://127.0.0.1:7000": None, "http://[::1]:7001": "llama.cpp"}
    discovery = discover(host(script, bystander, hidden, libraries=mapped.get), answers.__getitem__)
    assert [(endpoint.kind, endpoint.base_url, endpoint.pid, endpoint.knobs) for endpoint in discovery.endpoints] == [
        ("llama.cpp", "http://[::1]:7001", 20, {})
    ]
    assert [missing.status for missing in discovery.unavailable] == ["denied"]


def test_a_library_without_a_server_is_no_engine() -> None:
    notebook = Process(20, 1, ("python", "kernel.py"), 5000, (Address(LOOPBACK, 7000),))
    discovery = discover(host(notebook, libraries=lambda pid: frozenset({"/x/libllama.so.0"})), lambda url: None)
    assert discovery == Discovery()


@pytest.mark.parametrize(
    ("line", "kind", "port"),
    [
        ("python -m sglang.launch_server --model-path m --port 30001", "sglang", 30001),
        ("python /bin/trtllm-serve m", "trtllm", 8000),
        ("tritonserver --model-repository=/models", "triton", 8002),
        ("text-generation-launcher --model-id m --port 8080", "tgi", 8080),
        ("lmdeploy serve api_server m", "lmdeploy", 23333),
        ("python -m vllm_nvext.entrypoints.openai.api_server", "nim", 8000),
        ("python -m dynamo.frontend", "dynamo-frontend", 8000),
        ("ollama serve", "ollama", 11434),
    ],
)
def test_every_engine_is_found_by_its_command_line_and_port(line: str, kind: str, port: int) -> None:
    others = (Address(LOOPBACK, 40001), Address(LOOPBACK, port))
    discovery = discover(host(Process(11, 1, tuple(line.split()), 1000, others)), never)
    assert [(endpoint.kind, endpoint.port) for endpoint in discovery.endpoints] == [(kind, port)]
    assert discovery.unavailable == ()


def test_a_dynamo_worker_is_asked_for_its_system_port_which_no_command_line_names() -> None:
    argv = ("python", "-m", "dynamo.vllm", "--model", "m", "-tp", "2")
    worker = host(Process(11, 1, argv, 1000, (Address(LOOPBACK, 5000), Address("0.0.0.0", 8081))))
    discovery = discover(worker, lambda url: "dynamo-vllm" if url.endswith(":8081") else None)
    assert [(endpoint.kind, endpoint.port, endpoint.knobs) for endpoint in discovery.endpoints] == [
        ("dynamo-vllm", 8081, {"pp": 1, "dp": 1, "ep": 1, "tp": 2})
    ]
    silent = discover(worker, lambda url: None)
    assert silent.endpoints == ()
    assert "DYN_SYSTEM_PORT" in (silent.unavailable[0].remedy or "")


def test_a_ray_node_is_an_engine_only_while_it_shows_one() -> None:
    tree = host(
        Process(11, 1, ("/x/raylet/raylet", "--metrics_export_port=8080"), 1000, (Address("0.0.0.0", 6000),)),
        Process(12, 11, ("ray::DashboardAgent",), 1100, (Address("0.0.0.0", 8080),)),
        Process(13, 11, ("ray::ServeReplica:llm",), 1200),
    )
    discovery = discover(tree, {"http://127.0.0.1:8080": "ray"}.__getitem__)
    assert [(endpoint.kind, endpoint.port, endpoint.pids) for endpoint in discovery.endpoints] == [
        ("ray", 8080, (11, 12, 13))
    ]
    assert discover(tree, lambda url: None) == Discovery()


def test_a_server_that_answers_by_https_alone_is_asked_so() -> None:
    discovery = discover(host(*vllm_tree(Address("0.0.0.0", 18000), argv=(*SERVE, "--ssl-certfile", "c.pem"))), never)
    assert [endpoint.base_url for endpoint in discovery.endpoints] == ["https://127.0.0.1:18000"]


def test_a_server_in_a_container_is_reached_at_the_address_of_its_network() -> None:
    pods = [
        Process(pid, 1, SERVE, 1000, (Address("0.0.0.0", 18000, reached=(ip, 18000)),))
        for pid, ip in ((11, "10.244.1.5"), (12, "10.244.1.6"))
    ]
    discovery = discover(host(*pods), never)
    assert [(endpoint.base_url, endpoint.port, endpoint.pid) for endpoint in discovery.endpoints] == [
        ("http://10.244.1.5:18000", None, 11),
        ("http://10.244.1.6:18000", None, 12),
    ]
    assert [locate(endpoint, host(*pods)).pid for endpoint in discovery.endpoints] == [11, 12]


def test_a_server_in_a_container_is_reached_at_the_port_published_for_it() -> None:
    server = Process(11, 1, SERVE, 1000, (Address("0.0.0.0", 18000, reached=(LOOPBACK, 8080)),))
    (endpoint,) = discover(host(server), never).endpoints
    assert (endpoint.base_url, endpoint.port) == ("http://127.0.0.1:8080", 8080)
    named = locate(
        Endpoint("vllm", "http://10.0.0.7:8080", "setting", 8080),
        host(server, own_ips=frozenset({LOOPBACK, "10.0.0.7"})),
    )
    assert named.pid == 11


def test_nim_knobs_are_read_from_its_environment_and_its_inner_server_is_not_a_second_one() -> None:
    nim = Process(11, 1, ("nim-serve", "--max-model-len", "4096"), 1000)
    inner = Process(12, 11, ("vllm", "serve", "/opt/nim/m"), 1000, (Address("0.0.0.0", 8100), Address("0.0.0.0", 9000)))
    variables = {
        "NIM_SERVER_PORT": "9000",
        "NIM_TENSOR_PARALLEL_SIZE": "4",
        "NIM_MAX_MODEL_LEN": "1",
        "NGC_API_KEY": "no",
    }
    variables |= {
        "NIM_ENABLE_KV_CACHE_REUSE": "1",
        "NIM_MODEL_PATH": "hf://org/m",
        "NIM_PIPELINE_PARALLEL_SIZE": "auto",
    }
    asked: set[str] = set()

    def environment(pid: int, names: Collection[str]) -> dict[str, str]:
        asked.update(names)
        return {name: value for name, value in variables.items() if pid == 11 and name in names}

    discovery = discover(host(nim, inner, environment=environment), never)
    (endpoint,) = discovery.endpoints
    assert (endpoint.kind, endpoint.base_url, endpoint.model_path) == ("nim", "http://127.0.0.1:9000", "hf://org/m")
    assert endpoint.knobs == {"tp": 4, "max_model_len": 4096, "enable_prefix_caching": True}
    assert asked and all(name.startswith("NIM_") for name in asked - set(POD_VARIABLES))


def test_servers_that_one_address_leads_to_are_contested_and_children_of_one_server_are_not() -> None:
    child = Process(12, 11, ("VLLM::APIServer_1",), 1100, (Address(LOOPBACK, 18000),))
    rival = Process(21, 1, SERVE, 1000, (Address(LOOPBACK, 18000),))
    anywhere = Process(31, 1, SERVE, 1000, (Address("0.0.0.0", 18000),))
    server = Process(11, 1, SERVE, 1000, (Address(LOOPBACK, 18000),))
    hidden = (Address(LOOPBACK, 18000),)
    for processes, unowned, contested in (
        ((server, child), (), False),
        ((server, rival), (), True),
        ((server, anywhere), (), True),
        ((server,), hidden, True),
    ):
        (endpoints,) = discover(host(*processes, unowned=unowned), never).endpoints
        assert (endpoints.base_url, endpoints.contested) == ("http://127.0.0.1:18000", contested)
    other = Process(21, 1, SERVE, 1000, (Address("127.0.0.2", 18000),))
    assert [endpoint.contested for endpoint in discover(host(server, other), never).endpoints] == [False, False]
    assert locate(Endpoint("vllm", "http://localhost:18000", "setting", 18000), host(server, rival)).contested


def test_this_host_can_be_looked_at() -> None:
    seen = host_processes()
    me = seen.processes[os.getpid()]
    assert me.argv
    assert me.start_ms is not None
    assert os.getpid() in seen.group(me.ppid)
    assert any(path.startswith("/") for path in seen.libraries(os.getpid()) or ())
    assert LOOPBACK in seen.own_ips


@pytest.mark.parametrize("ip", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_where_a_process_of_this_host_listens_is_seen_and_its_connections_are_not(ip: str) -> None:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with socket.create_server((ip, 0), family=family) as server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK if family == socket.AF_INET else "::1", port)) as client:
            seen = host_processes().processes[os.getpid()].listening
            assert Address(ip, port) in seen
            assert client.getsockname()[1] not in {address.port for address in seen}


def test_who_holds_a_socket_is_looked_at_again_and_not_only_remembered() -> None:
    holds = "import socket,sys; s = socket.socket(fileno=int(sys.argv[1])); print(flush=True); input()"
    with socket.create_server((LOOPBACK, 0)) as server:
        address = Address(LOOPBACK, server.getsockname()[1])
        assert address in host_processes().processes[os.getpid()].listening
        given = [sys.executable, "-c", holds, str(server.fileno())]
        with subprocess.Popen(
            given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(server.fileno(),)
        ) as child:
            assert child.stdout is not None and child.stdout.readline()
            assert address in host_processes().processes[os.getpid()].listening
            server.close()  # the child alone has it now
            seen = host_processes().processes
            assert address in seen[child.pid].listening and address not in seen[os.getpid()].listening
            child.communicate(b"\n")
        assert address not in {
            address for process in host_processes().processes.values() for address in process.listening
        }


def test_a_socket_of_a_process_that_starts_later_is_found() -> None:
    serves = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    host_processes()
    with subprocess.Popen([sys.executable, "-c", serves], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        address = Address(LOOPBACK, int(child.stdout.readline()))
        assert host_processes().processes[child.pid].listening == (address,)
        child.communicate(b"\n")


def test_a_command_line_is_its_words_even_where_a_title_replaced_it() -> None:
    sleeper = [sys.executable, "-c", "print(flush=True); input()", "", "two words"]
    with subprocess.Popen(sleeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()  # it runs: what it was before is gone
        seen = host_processes().processes[process.pid]
        assert seen.argv == tuple(sleeper)
        assert seen.ppid == os.getpid()
        process.communicate(b"\n")


def test_a_server_in_a_pod_names_the_object_that_makes_it_and_reads_no_other_variable() -> None:
    def environment(pid: int, names: Collection[str]) -> dict[str, str]:
        assert pid == 11 and not {"VLLM_API_KEY", "PATH"} & set(names)
        return {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "llama-6d4cf56db6-x7k2p"}

    in_pod = host(
        *vllm_tree(Address("0.0.0.0", 18000)), environment=environment, pod_namespace=lambda pid: "prod", name="gpu-1"
    )
    discovery = discover(in_pod, never)
    assert [endpoint.knobs["workload"] for endpoint in discovery.endpoints] == ["Deployment prod/llama"]
    assert locate(discovery.endpoints[0], in_pod).knobs["workload"] == "Deployment prod/llama"
