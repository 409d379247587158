"""Scheduler of agent and advisor: APScheduler on a monotonic clock."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from pertoken.errors import PertokenError, limit_reached
from pertoken.schedule.jobs import Job, JobState

log = logging.getLogger("pertoken.schedule")
MAX_BESIDE = 8
"""Maximum threads for slow jobs. They start when needed, and each job uses at most one."""

HandOver = Callable[[Callable[[], None]], object]
"""Makes another thread run a call, such as the thread that ticks, between two ticks."""


class SteadyTime(tzinfo):
    """UTC at the start, advanced by the monotonic clock: a change of the wall clock does not move jobs.

    APScheduler asks `datetime.now(timezone)` for the time, and that asks `timezone.fromutc`.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._start = datetime.now(UTC).replace(tzinfo=self) - timedelta(seconds=monotonic())

    def now(self) -> datetime:
        """Return the time by this clock."""
        return self._start + timedelta(seconds=self._monotonic())

    def fromutc(self, wall: datetime) -> datetime:
        """Return the time by this clock, independent of the wall clock."""
        return self.now()

    def utcoffset(self, at: datetime | None) -> timedelta:
        """Return no offset."""
        return timedelta(0)

    def dst(self, at: datetime | None) -> timedelta:
        """Return no offset."""
        return timedelta(0)

    def tzname(self, at: datetime | None) -> str:
        """Return the name of the time zone at the start."""
        return "UTC"


class _Every(BaseTrigger):  # type: ignore[misc]
    """Trigger with a first delay and a fixed period. IntervalTrigger would convert times by `SteadyTime`."""

    def __init__(self, first_s: float, every_s: float) -> None:
        self._first, self._every = timedelta(seconds=first_s), timedelta(seconds=every_s)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        return now + self._first if previous_fire_time is None else previous_fire_time + self._every


class _HandedOver(BaseExecutor):  # type: ignore[misc]
    """Runs jobs in another thread, and reports each finished run."""

    def __init__(self, hand_over: HandOver, ended: Callable[[str], None]) -> None:
        super().__init__()
        self._hand_over, self._ended = hand_over, ended

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        self._hand_over(lambda: self._run(job, run_times))

    def _run(self, job: Any, run_times: list[datetime]) -> None:
        self._run_job_success(job.id, run_job(job, job._jobstore_alias, run_times, self._logger.name))
        self._ended(job.id)


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
        self._time = SteadyTime(monotonic)
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, tuple[float, float, str | None]] = {}
        """Last run by job name: its start (Unix seconds), duration (seconds) and error."""
        self._failures: dict[str, int] = {}
        """Consecutive failed runs by job name."""
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(MAX_BESIDE, "job")
        self._scheduler = BackgroundScheduler(
            executors={
                "beside": _HandedOver(self._beside.submit, self._ended),
                "between": _HandedOver(hand_over, self._ended),
            },
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=self._time,
        )

    def set(self, jobs: Iterable[Job]) -> None:
        """Replace all jobs. A job with an unchanged period keeps its schedule; a changed one starts from now."""
        wanted = {job.name: job for job in jobs}
        for name in self._jobs.keys() - wanted.keys():
            self._scheduler.remove_job(name)
        for name, job in wanted.items():
            known = self._jobs.get(name)
            if known is None or known.every_s != job.every_s:
                self._scheduler.add_job(
                    partial(self._run, name),
                    _Every(job.first_s, job.every_s),
                    id=name,
                    executor="beside" if job.beside else "between",
                    replace_existing=True,
                )
        self._jobs = wanted

    def start(self) -> None:
        """Start to run jobs."""
        self._scheduler.start()

    def stop(self) -> None:
        """Stop to run jobs, and wait for slow jobs that are running."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)  # waiting here would deadlock with a job that schedules its next run
        self._beside.shutdown(wait=True, cancel_futures=True)

    def states(self) -> tuple[JobState, ...]:
        """Return the state of each job."""
        now, now_ts = self._time.now(), self._wall()
        states = []
        for name, job in self._jobs.items():
            scheduled = self._scheduler.get_job(name)
            if scheduled is None or getattr(scheduled, "next_run_time", None) is None:
                continue
            next_ts = now_ts + (scheduled.next_run_time - now).total_seconds()
            with self._lock:
                last_ts, took_s, error = self._runs.get(name, (None, None, None))
            states.append(JobState(name, job.every_s, next_ts, last_ts, took_s, error))
        return tuple(states)

    def _run(self, name: str) -> None:
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
            self._failures[name] = 0 if error is None else self._failures.get(name, 0) + 1

    def _ended(self, name: str) -> None:
        """Schedule the retry of a failed job, and report the states of all jobs."""
        job = self._jobs.get(name)
        with self._lock:
            failures = self._failures.get(name, 0)
        if failures and job is not None and job.retry_s is not None:
            first_s, longest_s = job.retry_s
            wait_s = self._draw(0.0, min(longest_s, first_s * 2.0 ** min(failures - 1, 30)))
            with suppress(JobLookupError):  # the job was removed meanwhile
                self._scheduler.modify_job(name, next_run_time=self._time.now() + timedelta(seconds=wait_s))
        self._noted(self.states())

    def _failed(self, name: str, fault: Exception) -> str:
        """Log an error unless the previous run had the same, and return it as text."""
        limit = limit_reached(fault)
        known = isinstance(fault, PertokenError) or limit is not None
        error = str(limit or fault) if known else f"{type(fault).__name__}: {fault}"
        with self._lock:
            before = self._runs.get(name, (None, None, None))[2]
        if error != before:
            log.error("%s: %s", name, error, exc_info=None if known else fault)
        return error


def _raise(error: Exception) -> None:
    raise error
