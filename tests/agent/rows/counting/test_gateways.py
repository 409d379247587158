"""Pages of gateways as rows: deltas of tenants' counters, and nothing that no page can prove."""

from pertoken.agent.readings import GatewayReading
from pertoken.agent.rows.assemble import Readings
from pertoken.store.schema.rows import EngineCounterSample, Tick
from tests.agent.rows.ticks import counted, run
from tests.agent.values import probe

ALPHA, BETA = 'tenant_prompt_tokens{key="alpha"}', 'tenant_prompt_tokens{key="beta"}'


def page(started_ms: int | None = 1, **counts: int) -> GatewayReading:
    """Return counts by series; those of one letter are of alpha, of two of beta."""
    metric_of = {series: ALPHA if len(series) == 1 else BETA for series in counts}
    return GatewayReading("litellm", "http://gateway:4000", dict(counts), metric_of, started_ms)


def ticks(*pages: GatewayReading | None) -> list[Tick]:
    return run(*(Readings(probe(), gateways=() if page is None else (page,)) for page in pages))


def test_tokens_grow_from_the_first_page_on_and_a_key_that_appears_later_counts_from_0() -> None:
    rows = ticks(None, page(a=100, b=10), page(a=130, b=15, bb=7), None, page(a=131, b=15, bb=7))
    assert [counted(tick) for tick in rows] == [{}, {}, {ALPHA: 35, BETA: 7}, {}, {ALPHA: 1}]


def test_a_page_that_had_counted_nothing_yet_is_where_counting_begins() -> None:
    rows = ticks(None, page(), page(a=12))
    assert counted(rows[-1]) == {ALPHA: 12}


def test_a_gateway_is_an_engine_that_serves_no_model_and_its_epoch_lasts() -> None:
    _, first, second = ticks(None, page(a=1), page(a=2))
    assert [(engine.kind, engine.found_by) for engine in second.engines] == [("litellm", "gateway")]
    assert len(first.epochs) == 1
    assert second.epochs == () and first.engines[0].life == second.engines[0].life != None  # noqa: E711
    (sample,) = (sample for sample in second.samples if isinstance(sample, EngineCounterSample))
    assert sample.epoch_id == first.epochs[0].epoch_id


def test_a_gateway_that_was_restarted_counts_from_0() -> None:
    later_ms = 10**13
    rows = ticks(None, page(a=100), page(started_ms=later_ms, a=30))
    assert counted(rows[-1]) == {ALPHA: 30}


def test_processes_that_answer_in_turn_are_not_counted_and_that_is_an_event() -> None:
    rows = ticks(None, page(started_ms=1, a=100), page(started_ms=2, a=90), page(started_ms=1, a=101))
    assert [counted(tick) for tick in rows] == [{}, {}, {}, {}]
    assert [event.kind for event in rows[-1].events] == ["gateway_in_turn"]


def test_a_counter_that_falls_in_a_living_process_counts_nothing() -> None:
    rows = ticks(None, page(a=100), page(a=40), page(a=45))
    assert [counted(tick) for tick in rows][2:] == [{}, {ALPHA: 5}]
