"""Scheduler of agent and advisor: APScheduler, with retries and with states of jobs for other processes."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from pertoken.errors import PertokenError, limit_reached
from pertoken.schedule.jobs import Job, JobState

log = logging.getLogger("pertoken.schedule")
MAX_BESIDE = 8
"""Maximum threads for slow jobs. They start when needed, and each job uses at most one."""

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
        self._handed_over: set[str] = set()
        """Jobs that wait for the other thread."""
        self._runs: dict[str, tuple[float, float, str | None]] = {}
        """Last run by job name: its start (Unix seconds), duration (seconds) and error."""
        self._failures: dict[str, int] = {}
        """Consecutive failed runs by job name."""
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(MAX_BESIDE)
        self._scheduler = BackgroundScheduler(
            executors={"default": self._beside},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )

    def set(self, jobs: Iterable[Job]) -> None:
        """Replace all jobs. A job with an unchanged period keeps its schedule; a changed one starts from now."""
        present, self._jobs = self._jobs, {job.name: job for job in jobs}  # before a job that is due at once begins
        for name in present.keys() - self._jobs.keys():
            self._scheduler.remove_job(name)
        for name, job in self._jobs.items():
            if name not in present or present[name].every_s != job.every_s:
                first = self._now() + timedelta(seconds=job.wait_s(self._wall()))
                every = IntervalTrigger(seconds=job.every_s, start_date=first, timezone=UTC)
                self._scheduler.add_job(self._begin, every, [name], id=name, next_run_time=first, replace_existing=True)

    def start(self) -> None:
        """Start to run jobs."""
        self._scheduler.start()

    def stop(self) -> None:
        """Stop to run jobs, and wait for slow jobs that are running."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)  # waiting here would deadlock with a job that schedules its next run
        self._beside.shutdown(wait=True)

    def follow_clock(self) -> None:
        """Start the period of a job again if the wall clock was set back: it would stop for as long as that.

        Call this every few seconds. After a step forward, jobs that are due by the new time run once.
        """
        present = self._now()
        for scheduled in self._scheduler.get_jobs():
            job = self._jobs[scheduled.id]
            if scheduled.next_run_time > present + timedelta(seconds=max(job.first_s, job.every_s)):
                wait_s = job.every_s if job.phase_s is None else job.wait_s(self._wall())
                self._scheduler.modify_job(job.name, next_run_time=present + timedelta(seconds=wait_s))

    def states(self) -> tuple[JobState, ...]:
        """Return the state of each job."""
        states = []
        for name, job in self._jobs.items():
            scheduled = self._scheduler.get_job(name)
            if scheduled is None or getattr(scheduled, "next_run_time", None) is None:
                continue
            next_ts = scheduled.next_run_time.timestamp()
            with self._lock:
                last_ts, took_s, error = self._runs.get(name, (None, None, None))
            states.append(JobState(name, job.every_s, next_ts, last_ts, took_s, error))
        return tuple(states)

    def _begin(self, name: str) -> None:
        """Run a job that is due in this thread, or hand it over, unless it still waits there."""
        job = self._jobs.get(name)
        if job is None:
            return
        if job.beside:
            self._run(name)
            return
        with self._lock:
            waits = name in self._handed_over
            self._handed_over.add(name)
        if not waits:
            self._hand_over(partial(self._run, name))

    def _run(self, name: str) -> None:
        with self._lock:
            self._handed_over.discard(name)
        job = self._jobs.get(name)
        if job is None:
            return
        started_ts, started_s, error = self._wall(), self._monotonic(), None
        try:
            job.work()
        except self._fatal as fault:
            error = str(fault)
            self._hand_over(partial(_raise, fault))
        except Exception as fault:
            error = self._failed(name, fault)
        with self._lock:
            self._runs[name] = (started_ts, self._monotonic() - started_s, error)
            self._failures[name] = failures = 0 if error is None else self._failures.get(name, 0) + 1
        if failures and job.retry_s is not None:
            first_s, longest_s = job.retry_s
            wait_s = self._draw(0.0, min(longest_s, first_s * 2.0 ** min(failures - 1, 30)))
            with suppress(JobLookupError):  # the job was removed meanwhile
                self._scheduler.modify_job(name, next_run_time=self._now() + timedelta(seconds=wait_s))
        self._noted(self.states())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall(), UTC)

    def _failed(self, name: str, fault: Exception) -> str:
        """Log an error unless the previous run had the same, and return it as text."""
        limit = limit_reached(fault)
        has_message = isinstance(fault, PertokenError) or limit is not None
        error = str(limit or fault) if has_message else f"{type(fault).__name__}: {fault}"
        with self._lock:
            last_error = self._runs.get(name, (None, None, None))[2]
        if error != last_error:
            log.error("%s: %s", name, error, exc_info=None if has_message else fault)
        return error


def _raise(error: Exception) -> None:
    raise error
