"""The advisor as a service: periodic advice runs until it is stopped, and the telemetry before the first one."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from pertoken.advisor.configuration import stored_configuration
from pertoken.errors import CorruptStore, NewerStore, StoreError, StoreInaccessible
from pertoken.process import when_parent_ends
from pertoken.schedule.jobs import ADVISOR, Job, JobState, write_states
from pertoken.schedule.scheduler import Scheduler
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.connect.turn import AdvisorTurn, is_served
from pertoken.units import format_duration
from pertoken.window.reading import recorded_interval

log = logging.getLogger("pertoken.advisor")
JOB = "advice run"
LOOK_S = 1.0
"""Interval between checks whether the first run may start, or the other advisor ended, seconds."""
CLOCK_S = 10.0
"""Interval between checks whether the wall clock was set and the turn is still held, seconds."""
Calls = SimpleQueue[Callable[[], None] | None]
"""Runs for the main thread, because rules may need it. None: stop."""


def serve(
    where: StoreLocation,
    advise: Callable[[], None],
    every_s: float,
    *,
    ready: Callable[[], bool] = lambda: True,
    with_parent: bool = False,
    beside: Sequence[Job] = (),
) -> None:
    """Call `advise` once `ready`, then every `every_s` until SIGTERM, SIGINT or (`with_parent`) the end of stdin.

    While another advisor serves the database, wait until it ends. A failed run is logged once per reason, and the next
    run starts as scheduled. Jobs of `beside` run in other threads, from the start. The states of jobs are written to
    the folder of the advice. Raises StoreInaccessible if that folder cannot be written.
    """
    logging.basicConfig(level=logging.WARNING, format="pertoken advise: %(message)s", stream=sys.stderr)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    calls: Calls = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: calls.put(None))
    if with_parent:
        when_parent_ends(lambda: calls.put(None))
    turn = AdvisorTurn(where)
    try:
        while _await_turn(turn, calls):
            scheduler = Scheduler(calls.put, partial(_write, where))
            scheduler.set(beside)
            scheduler.start()
            try:
                if not _run_jobs(scheduler, turn, calls, ready, [Job(JOB, advise, every_s), *beside]):
                    return
            finally:
                scheduler.stop()
    finally:
        turn.release()


def _await_turn(turn: AdvisorTurn, calls: Calls) -> bool:
    """Wait until this process has the turn; return False if it is to stop."""
    reported: str | None = None
    while True:
        try:
            if turn.take():
                return True
            reason = "another advisor serves this database; this one takes over when it ends"
        except StoreInaccessible:
            raise
        except StoreError as error:
            reason = str(error)
        if reason != reported:
            log.warning("%s", reason)
        reported = reason
        with suppress(Empty):
            if calls.get(timeout=LOOK_S) is None:  # a call of a turn that was lost is dropped
                return False


def _run_jobs(
    scheduler: Scheduler, turn: AdvisorTurn, calls: Calls, ready: Callable[[], bool], jobs: Sequence[Job]
) -> bool:
    """Run jobs as they are due; return True when the turn is lost, False if this process is to stop."""
    begun = False
    while True:
        try:
            turn.take()
        except StoreError as error:
            log.error("the turn of this advisor is lost: %s", error)
            return True
        if not begun and ready():
            scheduler.set(jobs)
            begun = True
        scheduler.follow_clock()
        with suppress(Empty):
            call = calls.get(timeout=CLOCK_S if begun else LOOK_S)
            if call is None:
                return False
            call()


def _write(where: StoreLocation, states: tuple[JobState, ...]) -> None:
    if where.folder is not None:
        with suppress(OSError):  # a full disk is reported when advice is stored
            write_states(where.file("advice").parent, states, ADVISOR)


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
        """Return when rules run first, and how to run them if nothing does."""
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
    """Return the state before the first run; None if rules have run. Raises StoreError."""
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
