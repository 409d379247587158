"""What the screens show, read from a pertoken database: the fleet, its advice, and its history."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from pertoken.config import Settings
from pertoken.errors import StoreError
from pertoken.store.connect.changes import changes
from pertoken.store.connect.open import Store, open_store
from pertoken.tui.process.pace import Pace

if TYPE_CHECKING:  # the first frame waits for no module that only reads what is shown later
    from pertoken.advisor.planning import Planner
    from pertoken.costs.hours.hour import ModelHours
    from pertoken.costs.hours.spend import Spend
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.judging.banked import Banked
    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.watch import ChangeWatch
    from pertoken.state.service import Slo
    from pertoken.store.connect.location import StoreLocation
    from pertoken.window.course.course import Course, Subject
    from pertoken.window.course.timeline import Timeline

T = TypeVar("T")

_BANKED_S = 60
"""Age at which receipts are read again: each holds all hours that it compares."""
_HOUR = 3600


class StoredReadings:
    """The readings of a `Source` over a database.

    The database is opened again while a part of it is missing: an agent or advisor may just have started.
    """

    def __init__(
        self,
        place: StoreLocation,
        as_of: int | None = None,
        watch: Callable[[], ChangeWatch] | None = None,
        settings: Settings | None = None,
        teams: Mapping[str, str] | None = None,
        objectives: Callable[[str], Slo] | None = None,
        shown_as: str | None = None,
        recorded_from: int | None = None,
        read_only: str | None = None,
    ) -> None:
        """`as_of`: a whole minute in the past that everything is shown of; None: the present.

        `watch` makes what looks for changes of configuration and for verdicts that are due, each time that advice is
        read.
        `settings` are those of plans and rules. `teams` are the teams of keys and namespaces of gateways; `objectives`
        returns those of a served model. `shown_as` is how people call the database, where it is not by its place.
        `recorded_from` is the start of a recording, which cannot be decided on. `read_only`: see `Source.read_only`.
        """
        self._place = place
        self._as_of = as_of
        self._new_watch = watch
        self._watch: ChangeWatch | None = None
        self._settings = settings or Settings()
        self._teams = teams or {}
        self._objectives = objectives
        self._shown_as = shown_as
        self._recorded_from = recorded_from
        self._read_only = read_only
        self._store: Store | None = None
        self._schema: object = None
        self._pace = Pace()
        self._banked: tuple[float, Banked] | None = None
        self._described: str | None = None
        self._planner: Planner | None = None
        self._planning = Lock()

    @property
    def recorded_until(self) -> int | None:
        """The instant that everything is shown of; None: the present."""
        return self._as_of

    @property
    def read_only(self) -> str | None:
        """Why nothing may be changed, as a sentence."""
        return self._read_only

    def describe(self) -> str:
        """Return how people call the database, without a password, and whether it is a demo. Raises StoreError."""
        if self._shown_as is not None:
            return self._shown_as
        if self._described is None:
            from pertoken.window.inventory import read_inventory, shown_place

            store, now_ts = self._opened(), self._now_ts()
            with store.read() as connection:
                self._described = shown_place(self._place, read_inventory(connection, now_ts, now_ts))
        return self._described

    def fleet(self, window_s: int, at: int | None = None) -> FleetReport:
        """Return the fleet over the last `window_s` seconds, with the verdicts on its changes as events.

        Raises StoreError.
        """
        from pertoken.costs.report.fleet_report import fleet_report

        def read(store: Store) -> FleetReport:
            report = fleet_report(store, window_s, self._now_ts(at), dated=self._past(at) is not None)
            report = _with_verdicts(report, store, self._as_of)
            return report if self._shown_as is None else replace(report, source=self._shown_as)

        def outdated(last: FleetReport) -> bool:
            return self._past(at) is None and _turned_stale(last, self._now_ts())

        return self._paced("fleet", (window_s, self._past(at)), read, outdated)

    def hours(self, at: int | None = None) -> tuple[ModelHours, ...]:
        """Return the last 24 hours, model by model. Raises StoreError."""
        from pertoken.costs.hours.hourly import hourly
        from pertoken.tui.text.hours import HOURS

        def read(store: Store) -> tuple[ModelHours, ...]:
            return hourly(store, HOURS, self._now_ts(at), dated=self._past(at) is not None)

        return self._paced("hours", self._past(at), read)

    def advice(self, at: int | None = None) -> tuple[Recommendation, ...]:
        """Return all advice as it stands, or stood and has not changed since. Raises StoreError."""
        from pertoken.proof.stored import standing

        past = self._past(at)
        if self._new_watch is not None and past is None:
            self._watch = self._watch or self._new_watch()
            self._watch.look(self._opened(), self._now_ts())
        return self._paced("advice", past, lambda store: standing(store, past))

    def tenants(self, window_s: int, at: int | None = None) -> Spend:
        """Return the dollars of each tenant over the hours of the clock that cover the window. Raises StoreError."""
        from pertoken.costs.hours.spend import spend

        def read(store: Store) -> Spend:
            now_ts = self._now_ts(at)
            hours = -(-now_ts // _HOUR) - (now_ts - window_s) // _HOUR
            return spend(store, "tenant", hours, now_ts, self._teams, dated=self._past(at) is not None)

        return self._paced("tenants", (window_s, self._past(at)), read)

    def banked(self) -> Banked:
        """Return what receipts measured, at most `_BANKED_S` old. Raises StoreError."""
        from pertoken.proof.judging.banked import Banked, banked
        from pertoken.proof.judging.receipts import read_receipts

        store, now_s = self._opened(), time.monotonic()
        if self._banked is None or now_s - self._banked[0] > _BANKED_S:
            if store.advice is None:
                return Banked()
            with store.read("advice") as connection:
                self._banked = now_s, banked(read_receipts(connection))
        return self._banked[1]

    def course(self, subject: Subject, window_s: int, at: int | None = None) -> Course:
        """Return what a host or deployment did over the window, with verdicts on its changes. Raises StoreError."""

        def read(store: Store) -> Course:
            return self._course(store, subject, window_s, at)

        return self._paced("course", (subject, window_s, self._past(at)), read)

    def _course(self, store: Store, subject: Subject, window_s: int, at: int | None) -> Course:
        from pertoken.proof.verdicts import read_verdicts
        from pertoken.tui.text.lifecycle import verdict_line
        from pertoken.window.course.course import Mark, read_course

        now_ts = self._now_ts(at)
        start = now_ts - window_s
        with store.read() as connection:
            found = read_course(connection, subject, start, now_ts, dated=self._past(at) is not None)
        if self._objectives is not None and len(found.models) == 1:
            found = replace(found, slo=self._objectives(found.models[0]))
        if store.advice is None:
            return found
        with store.read("advice") as connection:
            verdicts = [each for each in read_verdicts(connection) if each.deployment_id in found.deployment_ids]
        marks = [
            Mark(each.changed_ts, "verdict", verdict_line(each).partition("  ")[2])
            for each in verdicts
            if start <= each.changed_ts <= now_ts
        ]
        return replace(found, marks=tuple(sorted((*found.marks, *marks), key=lambda mark: mark.ts)))

    def timeline(self, now_ts: int) -> Timeline:
        """Return from when to when the database reaches, and what happened in it. Raises StoreError."""
        from pertoken.window.course.timeline import read_timeline

        found = read_timeline(self._opened(), self._as_of or now_ts)
        if self._recorded_from is None or found.first_ts is None:
            return found
        first = max(found.first_ts, self._recorded_from)
        return replace(found, first_ts=first, happenings=tuple(each for each in found.happenings if each.ts >= first))

    def _past(self, at: int | None) -> int | None:
        return self._as_of if at is None else at

    def _now_ts(self, at: int | None = None) -> int:
        past = self._past(at)
        return int(time.time()) if past is None else past

    def _paced(
        self,
        kind: str,
        key: Hashable,
        read: Callable[[Store], T],
        outdated: Callable[[T], bool] = lambda _: False,
    ) -> T:
        """Return what was last read of a kind while that will do. Raises StoreError, and opens the database anew then:
        it may be another one, or of another version."""
        store = self._opened()
        try:
            known = changes(store)
            if known is not None:
                if self._schema not in (None, known.tables):  # migrated meanwhile
                    store = self._reopened()
                    known = changes(store)
                self._schema = None if known is None else known.tables
            return self._pace.get(kind, key, None if known is None else known.commits, lambda: read(store), outdated)
        except StoreError:
            self._store = self._schema = None
            raise

    def _opened(self) -> Store:
        if self._store is None or self._store.advice is None:
            self._store = open_store(self._place, keep=True)
        return self._store

    def _reopened(self) -> Store:
        self._store = self._schema = None
        self._pace.forget()
        return self._opened()


def _with_verdicts(report: FleetReport, store: Store, as_of: int | None) -> FleetReport:
    """Add verdicts on changes to the events; who has none does not load what reads them."""
    from pertoken.store import repository

    if store.advice is None:
        return report
    with store.read("advice") as connection:
        if not repository.verdicts(connection):
            return report
    from pertoken.proof.verdicts import standing_verdicts
    from pertoken.tui.text.proof.events import with_verdicts

    return with_verdicts(report, standing_verdicts(store, as_of))


def _turned_stale(report: FleetReport, now_ts: int) -> bool:
    """Return whether a host of a report has become stale since, so that its figures of now are no more."""
    from pertoken.window.observed import STALE_TICKS

    later_s = now_ts - report.now_ts
    return any(
        not host.stale and host.age_s is not None and host.age_s + later_s > STALE_TICKS * host.interval_s
        for host in report.hosts
    )
