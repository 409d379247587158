"""State of one alert for one target, and its transitions."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Phase(StrEnum):
    """Phase of an alert. An alert whose condition is false has no state."""

    PENDING = "PENDING"
    """The condition holds, but not yet for long enough."""
    FIRING = "FIRING"
    """The condition held for long enough; the event was sent."""
    CLEARING = "CLEARING"
    """The condition ended after firing, but not yet for long enough."""


class Event(StrEnum):
    """Kind of event that is sent."""

    FIRED = "fired"
    RESOLVED = "resolved"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertState:
    """State of an alert for a target."""

    phase: Phase
    since_ts: int
    """When the phase began."""
    fired_ts: int | None = None


def advance(
    state: AlertState | None, holds: bool | None, now_ts: int, for_s: float
) -> tuple[AlertState | None, Event | None]:
    """Return the next state and the event to send. `holds` None: the figure is unknown, and the state stays."""
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
