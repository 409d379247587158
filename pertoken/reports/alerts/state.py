"""The state of one alert of one target, and how it moves."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Phase(StrEnum):
    """Where an alert is. One that does not hold has no state."""

    PENDING = "PENDING"
    """It holds, not yet for long enough."""
    FIRING = "FIRING"
    """It held for long enough, and was sent."""
    CLEARING = "CLEARING"
    """It fired and does not hold, not yet for long enough."""


class Event(StrEnum):
    """What is sent."""

    FIRED = "fired"
    RESOLVED = "resolved"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertState:
    """An alert of a target."""

    phase: Phase
    since_ts: int
    """When the phase began."""
    fired_ts: int | None = None


def advance(
    state: AlertState | None, holds: bool | None, now_ts: int, for_s: float
) -> tuple[AlertState | None, Event | None]:
    """Return the next state and what is to be sent. `holds` None: the figure is not known, and nothing moves."""
    if holds is None:
        return state, None
    if state is None:
        if not holds:
            return None, None
        state = AlertState(Phase.PENDING, now_ts)
    if holds:
        if state.phase is Phase.CLEARING:
            return replace(state, phase=Phase.FIRING, since_ts=state.fired_ts or now_ts), None
        if state.phase is Phase.PENDING and now_ts - state.since_ts >= for_s:
            return AlertState(Phase.FIRING, now_ts, now_ts), Event.FIRED
        return state, None
    if state.phase is Phase.PENDING:
        return None, None
    if state.phase is Phase.FIRING:
        state = replace(state, phase=Phase.CLEARING, since_ts=now_ts)
    if now_ts - state.since_ts >= for_s:
        return None, Event.RESOLVED
    return state, None
