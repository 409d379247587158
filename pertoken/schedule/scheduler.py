"""Scheduler of agent and advisor: begins jobs that are due, with retries and with states of jobs for other processes.

Jobs are due by the monotonic clock, which no step of the wall clock moves.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from pertoken.errors import PertokenError, limit_reached
from pertoken.schedule.jobs import Job, JobState

log = logging.getLogger("pertoken.schedule")

HandOver = Callable[[Callable[[], None]], object]
"""Makes another thread run a call, such as the thread that ticks, between two ticks."""


class Scheduler:
    """Runs jobs, each at most once at a time; several missed runs are made up by one."""

    def __init__(
        self,
        hand_over: HandOver,
        noted: Callable[[tuple[JobState, ...]], None] = lambda states: None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        fatal: tuple[type[Exception], ...] = (),
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """`noted` is called after each run with the states of all jobs, by the thread that ran it.

        `fatal` errors of a job are raised in the thread of `hand_over`; `draw` returns a number between two bounds.
        """
        self._hand_over, self._noted, self._monotonic, self._wall = hand_over, noted, monotonic, wall
        self._fatal, self._draw = fatal, draw
        self._jobs: dict[str, Job] = {}
        self._due_s: dict[str, float] = {}
        """Next run by job name, by the monotonic clock."""
        self._under_way: dict[str, threading.Thread | None] = {}
        """Jobs that run or wait for the other thread; with its thread if a job runs beside it."""
        self._runs: dict[str, tuple[float, float, str | None]] = {}
        """Last run by job name: its start (Unix seconds), duration (seconds) and error."""
        self._failures: dict[str, int] = {}
        """Consecutive failed runs by job name."""
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="scheduler", daemon=True)

    def set(self, jobs: Iterable[Job]) -> None:
        """Replace all jobs. A job with an unchanged period keeps its schedule; a changed one starts from now."""
        with self._lock:
            previous, self._jobs = self._jobs, {job.name: job for job in jobs}
            self._due_s = {
                name: self._due_s[name]
                if name in previous and previous[name].every_s == job.every_s
                else self._monotonic() + job.first_s
                for name, job in self._jobs.items()
            }
        self._changed.set()

    def start(self) -> None:
        """Start to run jobs."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to run jobs, and wait for slow jobs that are running."""
        self._stopped = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            threads = [thread for thread in self._under_way.values() if thread is not None]
        for thread in threads:
            thread.join()

    def begin_due(self) -> float | None:
        """Begin each job that is due; return the seconds until the next one is, None without jobs."""
        with self._lock:
            now_s = self._monotonic()
            due = [job for name, job in self._jobs.items() if self._due_s[name] <= now_s]
            for job in due:
                self._due_s[job.name] += job.every_s * (1 + (now_s - self._due_s[job.name]) // job.every_s)
            next_s = min(self._due_s.values(), default=None)
            begun = [job for job in due if job.name not in self._under_way]
        for job in begun:
            self._begin(job)
        return None if next_s is None else next_s - now_s

    def states(self) -> tuple[JobState, ...]:
        """Return the state of each job."""
        with self._lock:
            ahead_s = self._wall() - self._monotonic()
            return tuple(
                JobState(name, job.every_s, ahead_s + self._due_s[name], *self._runs.get(name, ()))
                for name, job in self._jobs.items()
            )

    def _serve(self) -> None:
        while True:
            self._changed.clear()
            if self._stopped:
                return
            self._changed.wait(self.begin_due())

    def _begin(self, job: Job) -> None:
        """Run a job in a thread of its own, or hand it over."""
        run = partial(self._run, job.name)
        self._under_way[job.name] = thread = threading.Thread(target=run, name=job.name) if job.beside else None
        if thread is None:
            self._hand_over(run)
            return
        try:
            thread.start()
        except RuntimeError as fault:  # a limit of threads is reached
            self._finish(job.name, self._wall(), self._monotonic(), self._failed(job.name, fault))

    def _run(self, name: str) -> None:
        started_ts, started_s, error = self._wall(), self._monotonic(), None
        job = self._jobs.get(name)
        try:
            if job is not None:
                job.work()
        except self._fatal as fault:
            error = str(fault)
            self._hand_over(partial(_raise, fault))
        except Exception as fault:
            error = self._failed(name, fault)
        self._finish(name, started_ts, started_s, error)

    def _finish(self, name: str, started_ts: float, started_s: float, error: str | None) -> None:
        """Note a run that ended, and when its job is due again if that failed; not of one that was removed."""
        with self._lock:
            del self._under_way[name]
            job = self._jobs.get(name)
            if job is None:
                return
            now_s = self._monotonic()
            self._runs[name] = (started_ts, now_s - started_s, error)
            self._failures[name] = failures = 0 if error is None else self._failures.get(name, 0) + 1
            if failures and job.retry_s is not None:
                first_s, longest_s = job.retry_s
                wait_s = self._draw(0.0, min(longest_s, first_s * 2.0 ** min(failures - 1, 30)))
                self._due_s[name] = now_s + wait_s
                self._changed.set()
        self._noted(self.states())

    def _failed(self, name: str, fault: Exception) -> str:
        """Log an error unless the previous run had the same, and return it as text."""
        limit = limit_reached(fault)
        known = isinstance(fault, PertokenError) or limit is not None
        error = str(limit or fault) if known else f"{type(fault).__name__}: {fault}"
        with self._lock:
            last_error = self._runs.get(name, (None, None, None))[2]
        if error != last_error:
            log.error("%s: %s", name, error, exc_info=None if known else fault)
        return error


def _raise(error: Exception) -> None:
    raise error
