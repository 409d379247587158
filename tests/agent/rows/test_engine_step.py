"""The rows of one engine's step."""

from pertoken.agent.rows.assemble import Readings
from tests.agent.rows.ticks import run, served
from tests.agent.values import engine, probe


def test_a_gauge_beyond_what_a_column_holds_is_unknown_and_costs_only_itself() -> None:
    absurd = engine(510, gauges={"running": 1e18, "waiting": 3.0, "kv_use": float("nan")})
    _, tick = run(Readings(probe(), (engine(500),)), Readings(probe(), (absurd,)))
    (row,) = served(tick)
    assert (row.generated_tokens, row.running_1e2, row.waiting_1e2, row.kv_use_1e4) == (10, None, 300, None)
