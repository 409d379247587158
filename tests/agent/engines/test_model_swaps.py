"""A model that is swapped inside a living server: what each of them did is its own, and nothing counts twice."""

from pathlib import Path

import pytest
from sqlalchemy import func, select

from pertoken.agent.engines.reader import MODEL_S, EngineReader
from pertoken.agent.host.processes import HostProcesses
from pertoken.agent.readings import Endpoint
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.scrape import RequestLimits
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample
from tests.agent.engine_pages import read_one
from tests.agent.servers import answering, pages
from tests.agent.values import moment, probe, tick_state
from tests.llama import ALIAS, LlamaServer, write_model
from tests.recorded import agent_reading, until

COST = AgentCost(1, 1, 1, 0)
LABELLED = {
    "vllm": 'vllm:prompt_tokens_total{{model_name="{0}"}} 0\nvllm:generation_tokens_total{{model_name="{0}"}} {1}\n',
    "sglang": 'sglang:prompt_tokens_total{{model_name="{0}"}} 0\n'
    'sglang:generation_tokens_total{{model_name="{0}"}} {1}\n',
}


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("kind", LABELLED)
def test_a_model_that_its_page_names_is_taken_at_once_and_each_has_its_own_tokens(kind: str) -> None:
    replies: dict[str, bytes | tuple[int, bytes]] = {}
    kept, totals = tick_state(), dict[str, int]()
    with answering(lambda connection, path: pages(replies)(connection, path)) as url:
        reader = EngineReader(Endpoint(kind, url, "setting"), RequestLimits(), processes=lambda: HostProcesses({}))
        steps = (("old", 100), ("old", 130), ("new", 7), ("new", 9), ("old", 135))
        for n, (model, count) in enumerate(steps):
            replies["/metrics"] = LABELLED[kind].format(model, count).encode()
            replies["/v1/models"] = f'{{"data": [{{"id": "{model}"}}]}}'.encode()
            reading = read_one(reader)
            assert (reading.fault, reading.served_model) == (None, model)
            tick, kept = assemble(kept, Readings(probe(), (reading,)), moment(n), COST if n else None)
            names = {row.deployment_id: row.served_model for row in tick.deployments}
            epochs = {epoch.epoch_id: names.get(epoch.deployment_id) for epoch in kept.epochs.values()}
            for sample in tick.samples:
                if isinstance(sample, DeploymentSample):
                    name = epochs[sample.epoch_id] or "?"
                    totals[name] = totals.get(name, 0) + (sample.generated_tokens or 0)
    assert totals == {"old": 30 + 5, "new": 9}


def test_series_of_the_model_before_that_stay_on_the_page_count_to_their_end_and_no_longer() -> None:
    def page(**counts: int) -> bytes:
        return "".join(LABELLED["vllm"].format(model, count) for model, count in counts.items()).encode()

    steps = (page(old=100), page(old=130), page(old=134, new=7), page(old=134, new=9), page(old=134, new=20))
    replies: dict[str, bytes | tuple[int, bytes]] = {}
    with answering(lambda connection, path: pages(replies)(connection, path)) as url:
        reader = EngineReader(Endpoint("vllm", url, "setting"), RequestLimits(), processes=lambda: HostProcesses({}))
        kept, tokens = tick_state(), list[tuple[str | None, int | None]]()
        for n, replies["/metrics"] in enumerate(steps):
            reading = read_one(reader)
            tick, kept = assemble(kept, Readings(probe(), (reading,)), moment(n), COST if n else None)
            rows = [sample for sample in tick.samples if isinstance(sample, DeploymentSample)]
            tokens += [(reading.served_model, row.generated_tokens) for row in rows]
        assert tokens == [("old", 30), ("old", 4), ("new", 9), ("new", 11)]
        replies["/metrics"] = page(old=135, new=21)
        assert read_one(reader).fault_kind == "several_models"


def test_a_model_that_only_the_api_names_is_taken_within_seconds_and_the_api_is_not_asked_each_time() -> None:
    page = b"llamacpp:prompt_tokens_total 1\nllamacpp:tokens_predicted_total 1\n"
    replies: dict[str, bytes | tuple[int, bytes]] = {"/metrics": page}
    asked: list[str] = []
    clock = Clock()
    with answering(lambda connection, path: pages(replies)(connection, path), asked=asked) as url:
        endpoint = Endpoint("llama.cpp", url, "setting")
        reader = EngineReader(endpoint, RequestLimits(), processes=lambda: HostProcesses({}), clock=clock)
        models = []
        for model in ("old", "old", "new", "new"):
            replies["/v1/models"] = f'{{"data": [{{"id": "{model}"}}]}}'.encode()
            models.append(read_one(reader).served_model)
        clock.now_s += MODEL_S
        models.append(read_one(reader).served_model)
    assert models == ["old"] * 4 + ["new"]
    assert sum("/v1/models" in path for path in asked) == 2


def test_a_real_server_that_swaps_its_model_in_a_living_process_has_two_deployments(tmp_path: Path) -> None:
    folder, model = tmp_path / "db", write_model(tmp_path / "tiny.gguf")
    other = write_model(tmp_path / "other.gguf", seed=1)
    with LlamaServer(model) as server, agent_reading(server, folder):
        pid = server.pid
        server.complete(list(range(20, 60)), generated=30)
        until(lambda: generated(folder, server) == {ALIAS: 30}, "the tokens of the first")
        server.swap(other, "another")
        # What the swapped model counted before its first page cannot be separated from what the counters held before.
        until(lambda: "another" in models(folder, server), "the deployment of the second", MODEL_S)
        server.complete(list(range(20, 60)), generated=8)
        until(lambda: generated(folder, server) == {ALIAS: 30, "another": 8}, "the tokens of both")
        assert server.pid == pid


def models(folder: Path, server: LlamaServer) -> set[str]:
    """Return models of this server's port that have rows."""
    query = (
        select(t.deployment.c.served_model)
        .join(t.epoch, t.epoch.c.deployment_id == t.deployment.c.deployment_id)
        .join(t.deployment_sample, t.deployment_sample.c.epoch_id == t.epoch.c.epoch_id)
        .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
        .where(t.engine.c.port == server.port)
    )
    with open_store(locate(str(folder))).read() as connection:
        return set(connection.execute(query).scalars())


def generated(folder: Path, server: LlamaServer) -> dict[str, int]:
    """Return generated tokens of this server's port by model, of those that generated any."""
    query = (
        select(t.deployment.c.served_model, func.sum(t.deployment_sample.c.generated_tokens))
        .join(t.epoch, t.epoch.c.deployment_id == t.deployment.c.deployment_id)
        .join(t.deployment_sample, t.deployment_sample.c.epoch_id == t.epoch.c.epoch_id)
        .join(t.engine, t.engine.c.engine_id == t.deployment.c.engine_id)
        .where(t.engine.c.port == server.port)
        .group_by(t.deployment.c.served_model)
    )
    with open_store(locate(str(folder))).read() as connection:
        return {model: int(count) for model, count in connection.execute(query) if count}
