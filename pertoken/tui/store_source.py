"""What the screens show, read from a pertoken database."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from pertoken.config import Settings
from pertoken.errors import BadInput, StoreError
from pertoken.store.connect.changes import changes
from pertoken.store.connect.open import Store, open_store
from pertoken.tui.process.pace import Pace
from pertoken.tui.study import Detail, ListedRule, RuleList, ShownPlan

if TYPE_CHECKING:  # the first frame waits for no module that only reads what is shown later
    from pertoken.advisor.planning import Planner, PlanRequest
    from pertoken.costs.hours.hour import ModelHours
    from pertoken.costs.hours.spend import Spend
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.judging.banked import Banked
    from pertoken.proof.lifecycle import Moved
    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.track_record import Record
    from pertoken.proof.watch import ChangeWatch
    from pertoken.state.service import Slo
    from pertoken.store.connect.location import StoreLocation
    from pertoken.window.course.course import Course, Subject
    from pertoken.window.course.timeline import Timeline
    from pertoken.window.progress import Progress

T = TypeVar("T")

_BANKED_S = 60
"""Age at which receipts are read again: each holds all hours that it compares."""
_HOUR = 3600


class StoreSource:
    """A `Source` over a database. It opens it anew while it lacks something: an agent or advisor may just begin."""

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

    def records(self) -> Mapping[str, Record]:
        """What each rule realised of what it promised, by its id. Raises StoreError."""
        from pertoken.proof.judging.receipts import read_receipts
        from pertoken.proof.judging.record import records

        store = open_store(self._place)
        if store.advice is None:
            return {}
        with store.read("advice") as connection:
            found = [
                each for each in read_receipts(connection) if self._as_of is None or each.created_ts <= self._as_of
            ]
        return {each.rule: each.record for each in records(found)}

    def plan(
        self, rows: Sequence[Recommendation], request: PlanRequest | None, progress: Progress, *, fresh: bool = False
    ) -> ShownPlan:
        """Compose the plan of some advice. Raises StoreError, and BadInput for assumptions that are impossible."""
        from pertoken.advisor.planning import PlanRequest

        with self._planning:
            if fresh:
                self._planner = None
            planner = self._planner_of()
            found = planner.plan(open_store(self._place), rows, request or PlanRequest(), progress)
        return ShownPlan(found, request, planner.window_s)

    def rules(self) -> RuleList:
        """Load every rule. Raises BadInput for a list of disabled rules that cannot be read."""
        from pertoken.advisor.rules.discovery import DROP_IN
        from pertoken.advisor.rules.listing import entries, listed, page

        known = listed(self._settings)
        rules = tuple(ListedRule(each, page(each.id, known)) for each in entries(known))
        return RuleList(rules, str(self._settings.folder / DROP_IN))

    def switch(self, rule_id: str, on: bool) -> str:
        """Switch a rule off or on for every later run with these settings. Raises BadInput."""
        from pertoken.advisor.rules import switches

        if self._read_only is not None:
            raise BadInput(self._read_only)
        if self._as_of is not None:
            raise BadInput("this is the past: leave --at out to switch rules")
        try:
            (switches.enable if on else switches.disable)(self._settings.folder, rule_id)
        except OSError as error:
            raise BadInput(f"{self._settings.folder / switches.FILE}: {error.strerror or error}") from None
        return f"{rule_id} {'runs again' if on else 'is off'} from the next run on."

    def detail(
        self, rows: Sequence[Recommendation], each: Recommendation, values: Mapping[str, float], progress: Progress
    ) -> Detail:
        """All that is computed of one recommendation. Raises StoreError."""
        from pertoken.proof.journal import journal
        from pertoken.proof.judging.prospect import prospects
        from pertoken.proof.judging.receipts import read_receipts
        from pertoken.proof.trials.look import last_trial

        store = open_store(self._place)
        provable = prospects(store, each, self._now_ts())
        with store.read("advice") as connection:
            entries = journal(connection, each.recommendation_id)
            receipts = read_receipts(connection, each.recommendation_id)
        trial, seen = last_trial(store, each, self._settings, self._now_ts())
        tested, untested = None, None
        if each.chosen is not None:
            try:
                with self._planning:
                    tested = self._planner_of().tested(store, rows, each, values, progress)
            except BadInput as error:
                untested = str(error)
        return Detail(each.recommendation_id, dict(values), tested, untested, provable, receipts, entries, trial, seen)

    def _planner_of(self) -> Planner:
        from pertoken.advisor.planning import Planner

        self._planner = self._planner or Planner(self._settings, self._as_of)
        return self._planner

    def set_price(self, selector: str, nano_usd: int) -> str:
        """Store the price of a device-hour as `pertoken prices set` does by default. Raises BadInput, StoreError.

        It counts from the beginning where nothing that the selector names had a price, else from now on.
        """
        from pertoken.costs.prices.repricing import read_prices
        from pertoken.migrations import upgrade
        from pertoken.store import repository
        from pertoken.store.repository import AdviceRepository
        from pertoken.tui.amounts import amount

        if self._read_only is not None:
            raise BadInput(self._read_only)
        if self._recorded_from is not None:
            raise BadInput("this is a recording: it is read-only")
        if self._as_of is not None:
            raise BadInput("this is the past: leave --at out to set a price")
        now_ts = int(time.time())
        upgrade(self._place, "advice")
        known = read_prices(self._place, now_ts)
        from_ts = 0 if known.unpriced(selector) else (now_ts // 60 + 1) * 60
        with AdviceRepository(self._place).writing() as connection:
            repository.add_price(
                connection,
                read_seq=known.seq,
                selector=selector,
                nano_usd_per_device_hour=nano_usd,
                from_ts=from_ts,
                set_ts=now_ts,
                set_by=getpass.getuser(),
                note="set on the screens",
            )
        self._pace.forget()
        since = "now on" if from_ts else "the beginning"
        return f"{selector}: {amount(nano_usd)} an hour from {since}; `pertoken prices set` changes it."

    def decide(self, each: Recommendation, decision: str) -> str:
        """Store a decision; return how the recommendation stands. Raises BadInput, StoreError.

        Raises AdviceChanged if somebody else changed the recommendation since it was read.
        """
        from pertoken.proof.stored import store_acts
        from pertoken.store.repository import AdviceRepository
        from pertoken.tui.text.lifecycle import acted

        if self._read_only is not None:
            raise BadInput(self._read_only)
        if self._recorded_from is not None:
            raise BadInput("this is a recording: it is read-only")
        if self._as_of is not None:
            raise BadInput("this is the past: leave --at out to decide")
        if decision == "trial":
            return self._try(each)
        rows = store_acts(AdviceRepository(self._place), each, _acts(decision, each, self._now_ts()), getpass.getuser())
        self._pace.forget()  # a person sees at once what was decided
        return acted(rows[-1])

    def _try(self, each: Recommendation) -> str:
        """Begin the trial of a recommendation, or look at the one that runs; return how it stands."""
        from pertoken.proof.trials.look import begin_or_look
        from pertoken.store.repository import AdviceRepository
        from pertoken.tui.text.proof.trial import stands

        now_ts, store = self._now_ts(), open_store(self._place)
        row, trial, seen = begin_or_look(
            store, AdviceRepository(self._place), each, self._settings, now_ts, getpass.getuser()
        )
        self._pace.forget()
        return stands(row, trial, seen, now_ts)

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


def _acts(decision: str, each: Recommendation, now_ts: int) -> Sequence[Moved]:
    from pertoken.proof import acts

    by_decision: dict[str, Callable[[], Sequence[Moved]]] = {
        "accept": lambda: acts.accept(each, now_ts),
        "snooze": lambda: acts.snooze(each, now_ts, now_ts + acts.SNOOZE_S),
        "dismiss": lambda: acts.dismiss(each, now_ts, now_ts + acts.DISMISS_S),
        "reopen": lambda: acts.reopen(each, now_ts),
        "applied": lambda: acts.declare(each, now_ts),
        "undo": lambda: acts.roll_back(each, now_ts),
    }
    return by_decision[decision]()
