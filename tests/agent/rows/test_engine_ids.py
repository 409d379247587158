"""Identity of engines, one server or several: by their addresses, over real sockets and processes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.epochs import engine_id_of
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import stable_id
from pertoken.store.write.writer import Writer
from tests.agent.values import engine, gpu, moment, probe, tick_state
from tests.llama import LlamaServer, write_model
from tests.recorded import agent, agent_reading, kinds, newest, scalar, until
from tests.values import new_store

PROMPT = list(range(20, 60))
COST = AgentCost(1, 1, 1, 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def servers(model: Path) -> Iterator[tuple[LlamaServer, LlamaServer]]:
    with LlamaServer(model) as one, LlamaServer(model, host="127.0.0.2", port=one.port) as other:
        yield one, other


def generated(folder: Path, url: str) -> int:
    """Return generated tokens in the rows of the engine at this address."""
    query = (
        select(func.sum(t.deployment_sample.c.generated_tokens))
        .join(t.epoch, t.epoch.c.epoch_id == t.deployment_sample.c.epoch_id)
        .join(t.deployment, t.deployment.c.deployment_id == t.epoch.c.deployment_id)
        .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
        .where(t.engine.c.base_url == url)
    )
    return int(scalar(folder, query) or 0)


def test_servers_on_one_port_of_two_addresses_are_two_engines_with_tokens_of_their_own(
    servers: tuple[LlamaServer, LlamaServer], tmp_path: Path
) -> None:
    folder, expected = tmp_path / "db", {servers[0].url: 9, servers[1].url: 21}
    engines = select(func.count(t.counter_state.c.owner_id.distinct()))
    engines = engines.join_from(t.counter_state, t.engine, t.engine.c.engine_id == t.counter_state.c.owner_id)
    engines = engines.where(t.engine.c.port == servers[0].port)
    with agent(folder):
        until(lambda: scalar(folder, engines) == 2, "the first pages of both")
        for server in servers:
            server.complete(PROMPT, generated=expected[server.url])
        until(lambda: {url: generated(folder, url) for url in expected} == expected, "the tokens of both")
    assert scalar(folder, select(func.count()).where(t.engine.c.port == servers[0].port)) == 2


def test_several_servers_behind_one_address_are_not_counted_and_are_reported(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with LlamaServer(model, shared=True) as one, LlamaServer(model, shared=True, port=one.port) as other:
        assert one.pid != other.pid
        with agent(folder):
            for _ in range(12):  # by chance of the kernel, some at each
                one.complete(PROMPT, generated=11)
            until(lambda: "engine_several_servers" in kinds(folder), "the event")
            before = newest(folder)
            until(lambda: newest(folder) > before + 3, "more ticks")
            assert generated(folder, one.url) == 0


def test_a_second_server_behind_the_address_of_a_living_one_invents_no_tokens(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with LlamaServer(model, shared=True) as one:
        with agent_reading(one, folder):
            one.complete(PROMPT, generated=30)
            until(lambda: generated(folder, one.url) == 30, "the tokens of the first")
            with LlamaServer(model, shared=True, port=one.port):
                for _ in range(12):
                    one.complete(PROMPT, generated=11)
                until(lambda: "engine_several_servers" in kinds(folder), "the event")
            # Those of the first after the second is gone; never more than both served.
            until(lambda: one.counted()["generated_tokens"] == generated(folder, one.url), "the first to count on", 60)
        assert 30 <= generated(folder, one.url) <= 30 + 12 * 11


def at(base_url: str, **more: object) -> Endpoint:
    port = int(base_url.rpartition(":")[2].partition("/")[0])
    return replace(Endpoint("vllm", base_url, "process", port), **more)  # type: ignore[arg-type]


def id_of(endpoint: Endpoint, stored: dict[int, str] | None = None) -> int:
    return engine_id_of(7, endpoint, stored or {})


BY_PORT = stable_id("engine", 7, "vllm", 8000)


def test_the_usual_address_of_a_port_keeps_the_id_it_always_had() -> None:
    for url in ("http://127.0.0.1:8000", "http://localhost:8000", "https://127.0.0.1:8000"):
        assert id_of(at(url)) == id_of(at(url, found_by="setting")) == BY_PORT


def test_every_other_address_of_the_port_is_another_engine() -> None:
    urls: tuple[str, ...] = (
        "http://127.0.0.1:8000",
        "http://127.0.0.2:8000",
        "http://[::1]:8000",
        "http://10.0.0.5:8000",
    )
    urls += ("http://127.0.0.1:8000/gpu0", "http://127.0.0.1:8000/gpu1")
    assert len({id_of(at(url)) for url in urls}) == len(urls)


def test_an_address_that_is_stored_under_the_id_of_its_port_keeps_it_and_the_usual_one_yields() -> None:
    stored = {BY_PORT: "http://10.0.0.5:8000"}
    assert id_of(at("http://10.0.0.5:8000"), stored) == BY_PORT
    others = {id_of(at(url), stored) for url in ("http://127.0.0.1:8000", "http://10.0.0.6:8000")}
    assert len(others) == 2 and BY_PORT not in others


def test_an_agent_that_starts_knows_the_addresses_its_database_has(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        reading = engine(5, endpoint=at("http://10.0.0.5:8000"))
        stored, _ = assemble(tick_state(), Readings(probe(), (reading,)), moment(0), None)
        writer.commit(stored)
        assert writer.restored.engine_urls(stored.host.host_id) == {stored.engines[0].engine_id: "http://10.0.0.5:8000"}


def test_a_server_that_is_named_twice_costs_its_second_name_and_not_the_tick(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    names = [at(f"http://{host}:8000", found_by="setting") for host in ("127.0.0.1", "localhost")]

    def twice(count: int) -> tuple[EngineReading, ...]:
        return tuple(engine(count, endpoint=name, served_model=f"m{n}") for n, name in enumerate(names))

    kept = tick_state()
    with Writer(where) as writer:
        for n, count in enumerate((100, 105, 200)):
            made, kept = assemble(kept, Readings(probe(gpu()), twice(count)), moment(n), COST if n else None)
            writer.commit(made)
    with open_store(where).read() as connection:
        rows = connection.execute(select(t.deployment_sample.c.generated_tokens)).scalars().all()
        assert connection.execute(select(func.count()).select_from(t.host_sample)).scalar() == 2
        assert "engine_named_twice" in connection.execute(select(t.event.c.kind)).scalars().all()
        reason = connection.execute(select(t.capability.c.reason).where(t.capability.c.status == "failing")).scalar()
    assert rows == [5, 95]
    assert reason is not None and "http://localhost:8000" in reason
