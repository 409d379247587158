"""One token seen in several places counts once: copies of ranks, halves of a request, frontends, ways to one server."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.discovery import EndpointWatch
from pertoken.agent.engines.processes import locate
from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.host.processes import Address, HostProcesses, Process
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import TickState
from pertoken.agent.scrape import Reply, RequestLimits, ScrapeError
from pertoken.store.schema.rows import DeploymentSample
from tests.agent.values import START_MS, moment, probe, tick_state

WORDS = ("prompt_tokens", "cached_tokens", "generated_tokens")
Work = dict[tuple[str, int], tuple[int, int, int]]
"""Tokens by (model, rank): prompt, of it cached, generated."""
Page = Mapping[str, str]
"""Text of `/metrics` by kind of engine: what one fleet shows of the same work."""


def vllm(work: Work, prefix: str = "vllm:", label: str = "engine") -> str:
    lines = ["process_start_time_seconds 5"]
    for (model, rank), counts in work.items():
        names = ("prompt_tokens_total", "prompt_tokens_cached_total", "generation_tokens_total")
        for name, count in zip(names, counts, strict=True):
            lines.append(f'{prefix}{name}{{model_name="{model}",{label}="{rank}"}} {count}')
    return "\n".join(lines) + "\n"


def received(work: Work, *sources: tuple[str, str]) -> str:
    """Return the page of a vLLM whose prompts another server has prefilled, by series and source."""
    lines = [vllm({key: (prompt, prompt, generated) for key, (prompt, _, generated) in work.items()})]
    for (model, rank), (prompt, _, _) in work.items():
        for series, source in sources:
            labels = f'model_name="{model}",engine="{rank}",source="{source}"'
            lines.append(f"vllm:prompt_tokens_{series}_total{{{labels}}} {prompt}\n")
    return "".join(lines)


def prefilling(work: Work) -> str:
    """Return the page of a vLLM that prefills for another one: each of its requests ends with the first token."""
    lines = [vllm({key: (prompt, cached, prompt) for key, (prompt, cached, _) in work.items()})]
    for (model, rank), (prompt, _, _) in work.items():
        labels = f'model_name="{model}",engine="{rank}"'
        lines.append(f'vllm:request_success_total{{{labels},finished_reason="length"}} {prompt}\n')
        lines.append(f"vllm:nixl_bytes_transferred_sum{{{labels}}} 0\n")
    return "".join(lines)


EXTERNAL, P2P = ("by_source", "external_kv_transfer"), ("cached_by_source", "p2p")


def sglang(work: Work, engine_type: str = "unified") -> str:
    lines = []
    names = ("prompt_tokens_total", "cached_tokens_total", "generation_tokens_total")
    for (model, rank), counts in work.items():
        for name, count in zip(names, counts, strict=True):
            for tp_rank in (0, 1):  # both tensor-parallel ranks expose the same
                labels = f'model_name="{model}",dp_rank="{rank}",tp_rank="{tp_rank}",engine_type="{engine_type}"'
                lines.append(f"sglang:{name}{{{labels}}} {count}")
    return "\n".join(lines) + "\n"


def frontend(work: Work) -> str:
    tokens = sum(counts[2] for counts in work.values())
    return (
        f'dynamo_frontend_active_requests{{model="a"}} 1\ndynamo_frontend_output_tokens_total{{model="a"}} {tokens}\n'
    )


FLEETS = {
    "data-parallel ranks": lambda work: {"vllm": vllm(work)},
    "copies of tensor-parallel ranks": lambda work: {"sglang": sglang(work)},
    "a prefill and a decode half": lambda work: {
        "sglang": sglang(work, "prefill"),
        "dynamo-sglang": sglang(work, "decode"),
    },
    "a server that prefills for another": lambda work: {
        "vllm": vllm({key: (prompt, cached, 0) for key, (prompt, cached, _) in work.items()}),
        "nim": received(work, EXTERNAL),
    },
    "a server that prefills for another, which exposes tiers": lambda work: {
        "vllm": vllm({key: (prompt, cached, 0) for key, (prompt, cached, _) in work.items()}),
        "nim": received(work, EXTERNAL, P2P),
    },
    "a server that generates the first token of each prompt": lambda work: {
        "vllm": prefilling(work),
        "nim": received(work, EXTERNAL, P2P),
    },
    "a frontend before its worker": lambda work: {
        "dynamo-frontend": frontend(work),
        "dynamo-vllm": "dynamo_component_requests_total 1\n" + vllm(work),
    },
    "replicas behind Ray": lambda work: {"ray": vllm(work, "ray_vllm_", "ReplicaId")},
    "a page of NIM": lambda work: {"nim": vllm(work)},
}
SEVERAL = ("replicas behind Ray",)

amounts = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)).map(
    lambda path: (max(path[:2]), min(path[:2]), path[2])
)


@given(
    fleet=st.sampled_from(sorted(FLEETS)),
    before=st.lists(amounts, min_size=1, max_size=3),
    deltas=st.lists(amounts, min_size=3, max_size=3),
    two_models=st.booleans(),
)
def test_an_event_of_a_fleet_counts_once_however_often_it_is_shown(
    fleet: str,
    before: list[tuple[int, int, int]],
    deltas: list[tuple[int, int, int]],
    two_models: bool,
) -> None:
    models = "ab" if two_models and fleet in SEVERAL else "a"
    first: Work = {(models[rank % len(models)], rank): counts for rank, counts in enumerate(before)}
    second: Work = {
        key: (at[0] + more[0], at[1] + more[1], at[2] + more[2])
        for (key, at), more in zip(first.items(), deltas, strict=False)
    }
    totals = dict.fromkeys(WORDS, 0)
    for row in recorded(FLEETS[fleet](first), FLEETS[fleet](second)):
        for word in WORDS:
            totals[word] += getattr(row, word) or 0
    expected = {word: sum(more[i] for more in deltas[: len(before)]) for i, word in enumerate(WORDS)}
    assert totals == expected


def recorded(*pages: Page) -> list[DeploymentSample]:
    """Return rows of all servers, between pages that a reader takes one after the other."""
    kept: TickState = tick_state()
    rows: list[DeploymentSample] = []
    body = {"": ""}

    def get(url: str, limits: RequestLimits) -> Reply:
        if not url.endswith("/metrics"):
            raise ScrapeError("http", "none", 404)
        return Reply(body[""].encode(), "text/plain")

    kinds = list(pages[0])
    readers = {
        kind: EngineReader(
            Endpoint(kind, f"http://127.0.0.1:{9000 + n}", "process", 9000 + n), RequestLimits(), processes=no_kind
        )
        for n, kind in enumerate(kinds)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pertoken.agent.engines.reader.get", get)
        for n, page in enumerate(pages):
            readings: list[EngineReading] = []
            for kind in kinds:
                body[""] = page[kind]
                readings += readers[kind].read()
            assert not [reading.fault for reading in readings if reading.fault]
            started = [
                replace(
                    reading,
                    endpoint=replace(reading.endpoint, pid=9, process_start_ms=START_MS - 9000),
                    started_ms=None,
                )
                for reading in readings
            ]
            cost = AgentCost(1, 1, 1, 0) if n else None
            tick, kept = assemble(kept, Readings(probe(), tuple(started)), moment(n), cost)
            rows += [sample for sample in tick.samples if isinstance(sample, DeploymentSample)]
    return rows


def no_kind() -> HostProcesses:
    return HostProcesses({})


SERVE = ("vllm", "serve", "org/model", "--port", "8000")
IN_DOCKER = HostProcesses(
    {
        11: Process(
            11,
            1,
            SERVE,
            1000,
            (Address("0.0.0.0", 8000, reached=("127.0.0.1", 8080), also=(("172.17.0.2", 8000),)),),
        ),
        12: Process(12, 1, ("docker-proxy", "-host-port", "8080"), 900, (Address("0.0.0.0", 8080),)),
    },
    own_ips=frozenset({"127.0.0.1", "10.0.0.7"}),
)
WAYS = ("http://127.0.0.1:8080", "http://localhost:8080", "http://10.0.0.7:8080", "http://172.17.0.2:8000")


@given(urls=st.lists(st.sampled_from(WAYS), unique=True), find=st.booleans())
def test_a_server_named_by_any_of_the_ways_to_it_is_read_once(urls: list[str], find: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pertoken.agent.discovery.host_processes", lambda: IN_DOCKER)
        patch.setattr("pertoken.agent.discovery.answers", lambda url, limits: pytest.fail(f"{url} was asked"))
        patch.setattr(
            "pertoken.agent.discovery.detect",
            lambda url, limits, processes: locate(
                Endpoint("vllm", url, "setting", int(url.rpartition(":")[2])), IN_DOCKER
            ),
        )
        watch = EndpointWatch(urls, find, RequestLimits())
        readings = watch.look()
        watch.close()
    assert len(readings) == (1 if urls or find else 0)
    assert {reading.pid for reading in readings} <= {11}
