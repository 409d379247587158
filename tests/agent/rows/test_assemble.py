"""From readings to rows, by hand: what is counted, what is not, and who held what."""

from pertoken.agent.rows.assemble import Readings
from pertoken.store.schema.rows import (
    CounterState,
)
from tests.agent.rows.ticks import run, served
from tests.agent.values import CPU, engine, probe, tick_state


def test_the_baseline_stores_who_is_there_and_no_sample() -> None:
    (tick,) = run(Readings(probe(), (engine(500),)))
    assert tick.samples == ()
    assert [row.name for row in tick.devices] == [CPU.name]
    assert [row.served_model for row in tick.deployments] == ["tiny"]
    assert {state.series: state.value for state in tick.counters}["generated_tokens"] == 500


def test_an_agent_that_comes_back_counts_what_grew_while_it_was_away() -> None:
    ticks = run(Readings(probe(), (engine(500),)), Readings(probe(), (engine(510),)))
    states: dict[int, dict[str, CounterState]] = {}
    for tick in ticks:
        for state in tick.counters:
            states.setdefault(state.owner_id, {})[state.series] = state
    owners = frozenset([ticks[0].host.host_id, *(row.deployment_id for row in ticks[0].deployments)])
    back = tick_state(counters=states, away_ms=90_000, known_owners=owners)
    _, tick = run(Readings(probe(), (engine(560),)), Readings(probe(), (engine(570),)), start=back)
    *away, row = served(tick)
    assert (row.generated_tokens, row.complete) == (60, True)
    assert {state.generated_tokens for state in away} == {None}
    assert sum(sample.duration_ms for sample in served(tick)) == 100_000
    assert sum(sample.observed_ms for sample in served(tick)) == 10_000


def test_the_agent_records_its_own_cost() -> None:
    from pertoken.store.schema.rows import AgentSample

    _, tick = run(Readings(probe()), Readings(probe()))
    (row,) = [s for s in tick.samples if isinstance(s, AgentSample)]
    assert (row.cpu_ms, row.rss_bytes, row.driver_calls) == (11, 50_001_000, 9)
