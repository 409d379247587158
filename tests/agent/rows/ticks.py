"""Ticks of readings, and what is in them."""

from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import TickState
from pertoken.store.schema.rows import (
    DeploymentSample,
    DeviceShare,
    EngineCounterSample,
    Tick,
)
from pertoken.store.schema.shared import OTHER
from tests.agent.values import engine, moment, tick_state

COST = AgentCost(10, 50_000_000, 20, 0)


def run(*steps: Readings, start: TickState | None = None) -> list[Tick]:
    """Return ticks of these readings 10 s apart; the first lays the baseline."""
    kept, ticks = start or tick_state(), []
    for n, readings in enumerate(steps):
        tick, kept = assemble(kept, readings, moment(n), COST if n else None)
        ticks.append(tick)
    return ticks


def served(tick: Tick) -> list[DeploymentSample]:
    return [sample for sample in tick.samples if isinstance(sample, DeploymentSample)]


def counted(tick: Tick) -> dict[str, int]:
    return {sample.metric: sample.delta for sample in tick.samples if isinstance(sample, EngineCounterSample)}


def shares(tick: Tick) -> dict[tuple[int, bool], int]:
    samples = [sample for sample in tick.samples if isinstance(sample, DeviceShare)]
    return {(sample.device_id, sample.epoch_id == OTHER): sample.share_1e6 for sample in samples}


ELSEWHERE = Endpoint("vllm", "http://gpu-9:8000", "setting")


def elsewhere(generated: int, started_ms: int | None) -> EngineReading:
    return engine(generated, endpoint=ELSEWHERE, started_ms=started_ms, life_ms=started_ms)
