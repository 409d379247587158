"""Cold starts: how long an engine takes from the start of its process, weights loaded, until it can be read."""

from collections.abc import Mapping

from pertoken.agent.readings import EngineReading
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.store.schema.rows import EngineRow


def load(tick_state: TickState, reading: EngineReading, engine: EngineRow, moment: Moment) -> Mapping[str, int]:
    """Return the counts of one load where this is the first page of a process whose start this agent watched.

    The time is an upper bound: a server is found some seconds after it answers. Nothing of a process that began before
    this agent did, of one that only listens for a server, and of one that serves several models.
    """
    endpoint, start_ms = reading.endpoint, reading.endpoint.process_start_ms
    if start_ms is None or not endpoint.certain or endpoint.model is not None or not reading.counters:
        return {}
    known = tick_state.counters.get(engine.engine_id, {}).values()
    if start_ms < tick_state.watching_since_ms + tick_state.away_ms or any(key.life == engine.life for key in known):
        return {}
    return {"loads": 1, "load_s": max(1, -(-(moment.monotonic_ms - start_ms) // 1000))}
