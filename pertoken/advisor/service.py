"""The advisor as a service: periodic advice runs until it is stopped."""

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from pertoken.errors import StoreError, StoreInaccessible
from pertoken.process import when_parent_ends
from pertoken.schedule.jobs import ADVISOR, Job, JobState, write_states
from pertoken.schedule.scheduler import Scheduler
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.turn import AdvisorTurn

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
