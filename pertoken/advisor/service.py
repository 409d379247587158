"""The advisor as a service: periodic advice runs until it is stopped."""

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from pertoken.errors import StoreError
from pertoken.parent import when_parent_ends
from pertoken.schedule.jobs import ADVISOR, Job, JobState, write_states
from pertoken.schedule.scheduler import Scheduler
from pertoken.store.connect.location import ProgramLock, StoreLocation

JOB = "advice run"
LOOK_S = 1.0
"""Interval between checks whether the first run may start, seconds."""
CLOCK_S = 10.0
"""Interval between checks whether the wall clock was set, seconds."""


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

    A failed run is logged once per reason, and the next run starts as scheduled. For `doctor`, the states of jobs are
    written to the folder of the advice; of several advisors of one folder only the first does so. Jobs of `beside` run
    in other threads.
    """
    logging.basicConfig(level=logging.WARNING, format="pertoken advise: %(message)s", stream=sys.stderr)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    """Runs for this thread, because rules may need the main thread. None: stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: calls.put(None))
    if with_parent:
        when_parent_ends(lambda: calls.put(None))
    while not ready():
        with suppress(Empty):
            if calls.get(timeout=LOOK_S) is None:
                return
    with ExitStack() as resources:
        scheduler = Scheduler(calls.put, _state_writer(where, resources))
        scheduler.set([Job(JOB, advise, every_s), *beside])
        scheduler.start()
        resources.callback(scheduler.stop)
        while True:
            scheduler.follow_clock()
            with suppress(Empty):
                call = calls.get(timeout=CLOCK_S)
                if call is None:
                    return
                call()


def _state_writer(where: StoreLocation, resources: ExitStack) -> Callable[[tuple[JobState, ...]], None]:
    """Return a function that writes the states of jobs. Closing `resources` releases the lock that names this process.

    It does nothing for an advisor that cannot take the lock.
    """
    if where.folder is not None and (folder := where.file("advice").parent).is_dir():
        lock = ProgramLock(folder, ADVISOR)
        with suppress(StoreError):  # another advisor holds the lock, or this user may not write here
            lock.acquire()
            resources.callback(lock.release)
            return partial(_write, folder)
    return lambda states: None


def _write(folder: Path, states: tuple[JobState, ...]) -> None:
    with suppress(OSError):  # a full disk is reported when advice is stored
        write_states(folder, states, ADVISOR)
