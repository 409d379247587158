"""The whole program over a real vLLM server: `PERTOKEN_E2E_VLLM=1`, after `python -m tests.vllm`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.llama import free_port
from tests.load import Load
from tests.recorded import agent, epochs, incomplete, last_page, newest, plus, totals, until
from tests.recording_proxy import counted, recording_proxy
from tests.vllm import ALIAS, FOLDER, PARAMS, START_S, VERSION, VllmServer

pytestmark = pytest.mark.skipif(
    os.environ.get("PERTOKEN_E2E_VLLM") != "1", reason="PERTOKEN_E2E_VLLM=1 runs it, after python -m tests.vllm"
)
PAGE_NAMES = {
    "prompt_tokens": "prompt_tokens_total",
    "cached_tokens": "prompt_tokens_cached_total",
    "generated_tokens": "generation_tokens_total",
}
PROMPT = [20 + n % 200 for n in range(300)]


def test_the_environment_is_prepared() -> None:
    assert (FOLDER / ALIAS / "config.json").exists(), f"prepare it first: python -m tests.vllm {FOLDER}"


@pytest.fixture(scope="module")
def server() -> Iterator[VllmServer]:
    with VllmServer("--max-num-seqs", "8") as server:
        yield server


def measured_once(server: VllmServer, home: Path) -> dict[str, Any]:
    """Return the reading of `pertoken agent --once`, which discovers the server without settings."""
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", "agent", "--once", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "XDG_DATA_HOME": str(home)},
        check=True,
    )
    engines: list[dict[str, Any]] = json.loads(done.stdout)["engines"]
    (engine,) = [engine for engine in engines if engine["endpoint"]["port"] == server.port]
    return engine


def test_discovery_finds_model_knobs_and_port_without_settings(server: VllmServer, tmp_path: Path) -> None:
    engine = measured_once(server, tmp_path)
    assert (engine["served_model"], engine["version"], engine["endpoint"]["kind"]) == (ALIAS, VERSION, "vllm")
    assert engine["model_path"] == str(server.model)
    knobs = {name: engine["knobs"].get(name) for name in ("weight_dtype", "tp", "max_num_seqs", "max_model_len")}
    assert knobs == {"weight_dtype": "fp32", "tp": 1, "max_num_seqs": 8, "max_model_len": 1024}
    facts = {name: engine["model_facts"].get(name) for name in ("params_total", "n_layers", "n_kv_heads", "head_dim")}
    assert facts == {"params_total": PARAMS, "n_layers": 2, "n_kv_heads": 2, "head_dim": 32}


def test_aborts_several_answers_and_cached_prompts_are_counted_as_clients_were_served(
    server: VllmServer, tmp_path: Path
) -> None:
    folder = tmp_path / "db"
    with agent(folder):
        start = server.counted()
        usages = [server.complete([*PROMPT, 110 + n], generated=5 + n) for n in range(6)]
        several = server.complete(PROMPT[:30], generated=4, n=3)
        server.abort([*PROMPT, 200])
        done = server.counted()
        until(lambda: last_page(folder, server) == done, f"the agent to have seen {done}")
    counted = totals(folder, server)
    assert plus(start, counted) == done
    assert several.generated_tokens == 12
    # Each of several outputs counts the prompt again; the client's usage has it once.
    prompts = sum(usage.prompt_tokens for usage in usages) + 3 * several.prompt_tokens + len(PROMPT) + 1
    assert counted["prompt_tokens"] == prompts
    aborted = counted["generated_tokens"] - sum(usage.generated_tokens for usage in (*usages, several))
    assert aborted >= 1
    assert counted["cached_tokens"] > 0
    assert incomplete(folder, server) == 0
    print(f"served {usages} and {several}; the database holds {counted}, {aborted} tokens of the one that left")


def test_an_agent_killed_under_load_loses_and_doubles_nothing(server: VllmServer, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    start = server.counted()
    with agent(folder):
        assert not any(totals(folder, server).values())
    with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=20)):
        with agent(folder) as process:
            until(lambda: totals(folder, server)["generated_tokens"] > 200, "a first agent under load")
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = server.counted()["generated_tokens"]
        until(lambda: server.counted()["generated_tokens"] > before + 200, "work while no agent looks")
        with agent(folder):
            seen = newest(folder)
            until(lambda: newest(folder) > seen + 1, "a second agent under load")
    with agent(folder):
        done = server.counted()
        until(lambda: last_page(folder, server) == done, "the last page")
    assert plus(start, totals(folder, server)) == done
    assert incomplete(folder, server) == 0
    print(f"from {start} to {done}: the database holds {totals(folder, server)}")


def test_an_engine_killed_under_load_is_counted_by_the_last_page_of_each_life(
    server: VllmServer, tmp_path: Path
) -> None:
    folder = tmp_path / "db"
    start = server.counted()
    with agent(folder):
        with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=20)) as load:
            until(lambda: totals(folder, server)["generated_tokens"] > 300, "a life under load")
            seen, early = newest(folder), server.counted()
            until(lambda: newest(folder) > seen + 1, "a page after that one")
            server.kill()
            until(lambda: incomplete(folder, server), "the agent to see that it stopped")
            first = last_page(folder, server)
            assert plus(start, totals(folder, server)) == first
            assert all(first[word] >= early[word] for word in first)
            server.start()
            before = load.served
            until(lambda: load.served > before + 20, "a second life under load")
        until(lambda: last_page(folder, server) == server.counted(), "the second life's last page", within_s=START_S)
        second = server.counted()
    assert plus(start, totals(folder, server)) == plus(first, second)
    assert epochs(folder, server) == 1
    print(f"lives {first} from {start}, then {second}: the database holds {totals(folder, server)}")


def test_the_database_has_the_sums_of_the_pages_of_every_life(server: VllmServer, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    names = {word: f"vllm:{name}" for word, name in PAGE_NAMES.items()}
    with recording_proxy(server.url) as proxy:
        with agent(folder, "--engine", proxy.url, PERTOKEN_AGENT_DISCOVER="false"):
            with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=20)) as load:
                until(lambda: totals(folder, proxy)["generated_tokens"] > 200, "a life under load")
                server.kill()
                server.start()
                before = load.served
                until(lambda: load.served > before + 20, "a second life under load")
            until(lambda: len(proxy.lives) == 2, "a page of the second life", within_s=START_S)
            end = server.total("generation_tokens_total")
            until(lambda: counted(proxy.pages[-1][1], names["generated_tokens"]) == end, "its last page")
        expected = {
            word: sum(counted(last, name) for _, last in proxy.lives) - counted(proxy.lives[0][0], name)
            for word, name in names.items()
        }
    recorded_totals = totals(folder, proxy)
    assert {word: recorded_totals[word] for word in names} == expected
    assert incomplete(folder, proxy) >= 1
    print(f"{len(proxy.pages)} pages of {len(proxy.lives)} lives: {expected}; in the database: {recorded_totals}")


def test_a_preempted_request_is_not_counted_twice(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with VllmServer("--num-gpu-blocks-override", "10", "--max-num-seqs", "16") as server, agent(folder):
        with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=300), clients=12) as load:
            until(lambda: load.served >= 24, "requests that do not fit together", within_s=START_S)
        done, preempted = server.counted(), server.total("num_preemptions_total")
        until(lambda: last_page(folder, server) == done, "the last page")
        asked = load.served
    assert preempted > 0
    assert totals(folder, server) == done
    assert (done["prompt_tokens"], done["generated_tokens"]) == (asked * (len(PROMPT) + 1), asked * 300)
    print(f"{preempted} preemptions in {asked} requests: the database holds {done}")


def test_data_parallel_ranks_behind_two_api_servers_add_up_once(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    options = ("--max-num-seqs", "8", "--data-parallel-size", "2", "--api-server-count", "2")
    with VllmServer(*options) as server, agent(folder):
        with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=20)) as load:
            until(lambda: load.served >= 40, "both ranks to work", within_s=START_S)
        server.abort([*PROMPT, 200])
        done = server.counted()
        until(lambda: last_page(folder, server) == done, "the last page")
        engine = measured_once(server, tmp_path)
        asked = load.served
    assert totals(folder, server) == done
    assert done["prompt_tokens"] == (asked + 1) * (len(PROMPT) + 1)
    assert done["generated_tokens"] > asked * 20
    assert (engine["knobs"]["dp"], engine["knobs"]["max_num_seqs"]) == (2, 8)
    print(f"{asked} requests over two ranks and one client that left: the database holds {done}")


def half(role: str, connector: str, folder: Path) -> VllmServer:
    """Return a server that shares its requests with another one."""
    with_nixl = connector == "NixlConnector"
    extra: dict[str, object] = {} if with_nixl else {"kv_connector_extra_config": {"shared_storage_path": str(folder)}}
    config: dict[str, object] = {
        "kv_connector": connector,
        "kv_role": role,
        **({"kv_buffer_device": "cpu"} if with_nixl else {}),
        **extra,
    }
    side_channel = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
    one_thread = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # else both wait for the same cores
    return VllmServer(
        "--max-num-seqs",
        "8",
        "--kv-transfer-config",
        json.dumps(config),
        environment=one_thread | (side_channel if with_nixl else {}),
    )


REMOTE_DECODE: dict[str, object] = {
    **{"do_remote_decode": True, "do_remote_prefill": False},
    **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
}


@pytest.mark.parametrize(
    ("connector", "roles"),
    [
        ("NixlConnector", ("kv_both", "kv_both")),
        ("NixlConnector", ("kv_producer", "kv_consumer")),
        ("ExampleConnector", ("kv_producer", "kv_consumer")),
    ],
)
def test_a_prefill_and_a_decode_server_count_each_token_of_a_request_once(
    tmp_path: Path, connector: str, roles: tuple[str, str]
) -> None:
    folder, requests, generated = tmp_path / "db", 8, 20
    prefill, decode = (half(role, connector, tmp_path / "kv") for role in roles)
    with ThreadPoolExecutor(2) as starting, ExitStack() as running:
        for server in (prefill, decode):
            running.callback(server.kill)
        list(starting.map(VllmServer.start, (prefill, decode)))
        with agent(folder) as process:
            for number in range(requests):
                if number == requests // 2:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                prompt = [20 + (number * 31 + n * 7) % 200 for n in range(300)]
                _, given = prefill.transfer(prompt, 1, REMOTE_DECODE if connector == "NixlConnector" else None)
                decode.transfer(prompt, generated, given)
        with agent(folder):
            until(
                lambda: all(last_page(folder, server) == server.counted() for server in (prefill, decode)), "last pages"
            )
        pages = [server.counted() for server in (prefill, decode)]
    recorded = plus(*(totals(folder, server) for server in (prefill, decode)))
    print(f"{connector} {roles}: {recorded}, pages {pages}")
    assert (recorded["prompt_tokens"], recorded["generated_tokens"]) == (requests * 300, requests * generated)
