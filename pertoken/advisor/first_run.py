"""The first advice run of a database: whether it can start, and what it waits for."""

from dataclasses import dataclass

from pertoken.advisor.configuration import stored_configuration
from pertoken.errors import CorruptStore, NewerStore, StoreError, StoreInaccessible
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.connect.turn import is_served
from pertoken.units import format_duration
from pertoken.window.reading import recorded_interval

FIRST_TELEMETRY_S = 300.0
"""Telemetry that a service waits for before its first run, where `advisor.every` is not shorter. A run over less
finds nothing, and the next one is hours away."""


@dataclass(frozen=True, slots=True)
class FirstRun:
    """State of a database in which no rule has run."""

    recorded_s: float
    required_s: float
    served: bool
    """Whether an advisor serves the database."""

    @property
    def wait_s(self) -> float:
        """Telemetry that is missing, seconds."""
        return max(0.0, self.required_s - self.recorded_s)

    def sentence(self) -> str:
        """Return when rules run first, and what to do if nothing runs them."""
        missing = f"{format_duration(self.recorded_s)} of {format_duration(self.required_s)} of telemetry are recorded"
        if self.served:
            due = f"in {format_duration(self.wait_s)}: {missing}" if self.wait_s else "now, which takes up to a minute"
            return f"No rule has run yet. The advisor runs the rules {due}."
        due = f"have enough in {format_duration(self.wait_s)}: {missing}" if self.wait_s else "have enough telemetry"
        return (
            f"No rule has run yet, and no advisor runs here; rules {due}. `pertoken advise` runs them once, "
            "`pertoken up` or `sudo pertoken advisor install` runs them again and again."
        )


def first_run(location: StoreLocation, every_s: float) -> FirstRun | None:
    """Return what the first run waits for; None if rules have run. Raises StoreError."""
    if stored_configuration(location) is not None:
        return None
    return FirstRun(_recorded_s(location), min(FIRST_TELEMETRY_S, every_s), is_served(location))


def may_start(location: StoreLocation, every_s: float) -> bool:
    """Return whether there is enough telemetry for a first run; False while the database cannot be read."""
    try:
        return _recorded_s(location) >= min(FIRST_TELEMETRY_S, every_s)
    except StoreError:
        return False


def reason_to_wait(location: StoreLocation) -> str | None:
    """Return why telemetry cannot be read yet, None if it can. Raises StoreError where waiting does not help."""
    try:
        _recorded_s(location)
    except (CorruptStore, NewerStore, StoreInaccessible):
        raise
    except StoreError as error:
        return str(error)
    return None


def _recorded_s(location: StoreLocation) -> float:
    first_ts, last_ts = recorded_interval(open_store(location))
    return 0.0 if first_ts is None or last_ts is None else float(last_ts - first_ts)
