"""Source of the screens over a database, with the calls that store decisions, prices and switches."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from pertoken.config import Settings
from pertoken.errors import BadInput, StoreError
from pertoken.store.connect.open import Store, changes, open_store
from pertoken.text.study import Detail, ListedRule, RuleList, ShownPlan

if TYPE_CHECKING:
    from pertoken.advisor.planning import Planner, PlanRequest
    from pertoken.costs.hours import ModelHours
    from pertoken.costs.report.lines import FleetReport
    from pertoken.costs.spend import Spend
    from pertoken.proof.detection import ChangeWatch
    from pertoken.proof.judging.receipts import Banked
    from pertoken.proof.recommendation import Moved, Recommendation
    from pertoken.proof.track_record import Record
    from pertoken.state.service import Slo
    from pertoken.store.connect.location import StoreLocation
    from pertoken.window.course import Course, Subject
    from pertoken.window.figures import Progress
    from pertoken.window.timeline import Timeline


T = TypeVar("T")

MAX_SHARE = 0.015
"""Share of one core for each kind of reading: the result of 0.3 s of CPU is used for 20 s."""
MAX_AGE_S = 60.0
"""Age in seconds at which a value is read again without a commit: a window ends at the time of its reading."""


@dataclass(frozen=True, slots=True)
class _KeptReading:
    key: Hashable
    changes: object
    value: Any
    read_s: float
    cost_s: float


class Pace:
    """Cache of the last reading of each kind. `clock` returns wall seconds, `cpu` CPU seconds of the calling thread."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self._kept: dict[str, _KeptReading] = {}

    def get(
        self,
        kind: str,
        key: Hashable,
        changes: object,
        read: Callable[[], T],
        outdated: Callable[[T], bool] = lambda _: False,
    ) -> T:
        """Return the last value of a kind if it was read for the same key and is recent enough; else read it.

        `changes` stays equal while nothing is committed; None: commits cannot be observed. A value for which `outdated`
        returns True is read again in any case.
        """
        last = self._kept.get(kind)
        if last is not None and last.key == key and not self._due(last, changes) and not outdated(last.value):
            value: T = last.value
            return value
        began_s = self._cpu()
        value = read()
        self._kept[kind] = _KeptReading(key, changes, value, self._clock(), self._cpu() - began_s)
        return value

    def forget(self) -> None:
        """Drop all values."""
        self._kept.clear()

    def _due(self, last: _KeptReading, changes: object) -> bool:
        age_s = self._clock() - last.read_s
        if changes is not None and changes == last.changes:
            return age_s >= max(MAX_AGE_S, last.cost_s / MAX_SHARE)
        return age_s >= last.cost_s / MAX_SHARE


_BANKED_S = 60
"""Age in seconds at which receipts are read again: they are large, as each holds all hours that it compares."""
_HOUR = 3600


class StoreSource:
    """A database as the screens use it, opened again while its advice is missing: the advisor may create it.

    Every call may block, and may raise PertokenError. `decide`, `set_price` and `switch` store something; all other
    calls only read. `shown_ts` is the time that figures describe, a whole minute as epoch seconds; None: the newest.
    """

    def __init__(
        self,
        location: StoreLocation,
        as_of: int | None = None,
        watch: Callable[[], ChangeWatch] | None = None,
        settings: Settings | None = None,
        teams: Mapping[str, str] | None = None,
        objectives: Callable[[str], Slo] | None = None,
        shown_as: str | None = None,
        recorded_from: int | None = None,
        read_only: str | None = None,
    ) -> None:
        """`as_of`: a whole minute in the past to show, epoch seconds; None: the present.

        `watch` makes the object that looks for changes of configuration and for due verdicts on every reading of
        advice. `settings` apply to plans and rules. `teams` maps keys and namespaces of gateways to teams;
        `objectives` returns the SLO of a served model. `shown_as` is the name of the database for people; None: its
        location. `recorded_from` is the start of a recording, epoch seconds; a recording takes no decisions.
        `read_only` is the reason why nothing may be changed.
        """
        self._location = location
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
        """The past instant that is shown, epoch seconds; None: the present."""
        return self._as_of

    @property
    def read_only(self) -> str | None:
        """Reason why nothing may be changed, as a sentence; None: it may."""
        return self._read_only

    def describe(self) -> str:
        """Return the name of the database without a password, marked if it is a demo. Raises StoreError."""
        if self._shown_as is not None:
            return self._shown_as
        if self._described is None:
            from pertoken.window.inventory import read_inventory, shown_place

            store, now_ts = self._opened(), self._now_ts()
            with store.read() as connection:
                self._described = shown_place(self._location, read_inventory(connection, now_ts, now_ts))
        return self._described

    def fleet(self, window_s: int, shown_ts: int | None = None) -> FleetReport:
        """Return the fleet over the last `window_s` seconds, with alerts and verdicts on its changes as events.

        Raises StoreError.
        """
        from pertoken.costs.report.fleet_report import fleet_report
        from pertoken.proof.troubles import with_troubles

        def read(store: Store) -> FleetReport:
            slo_of, dated = self._objectives_of(), self._past(shown_ts) is not None
            good = slo_of if self._settings.headline == "good" else None  # it takes the histograms of all deployments
            report = fleet_report(store, window_s, self._now_ts(shown_ts), dated=dated, slo_of=good)
            report = with_troubles(report, store, slo_of, self._past(shown_ts))
            report = _with_advice_events(report, store, self._as_of)
            return report if self._shown_as is None else replace(report, source=self._shown_as)

        def outdated(last: FleetReport) -> bool:
            return self._past(shown_ts) is None and _turned_stale(last, self._now_ts())

        return self._paced("fleet", (window_s, self._past(shown_ts)), read, outdated)

    def _objectives_of(self) -> Callable[[str], Slo]:
        from pertoken.costs.fleet import objectives

        return self._objectives or partial(objectives, settings=self._settings)

    def hours(self, shown_ts: int | None = None) -> tuple[ModelHours, ...]:
        """Return the last 24 hours by model. Raises StoreError."""
        from pertoken.costs.hours import hourly
        from pertoken.text.costs import HOURS

        def read(store: Store) -> tuple[ModelHours, ...]:
            return hourly(store, HOURS, self._now_ts(shown_ts), dated=self._past(shown_ts) is not None)

        return self._paced("hours", self._past(shown_ts), read)

    def advice(self, shown_ts: int | None = None) -> tuple[Recommendation, ...]:
        """Return all advice in its present state; at a past time, what has not changed since. Raises StoreError."""
        from pertoken.proof.stored import standing

        past = self._past(shown_ts)
        if self._new_watch is not None and past is None:
            self._watch = self._watch or self._new_watch()
            self._watch.look(self._opened(), self._now_ts())
        return self._paced("advice", past, lambda store: standing(store, past))

    def no_advice(self) -> str | None:
        """Return why no rule has run, and when it will; None if rules have run. Raises StoreError."""
        from pertoken.advisor.service import first_run

        if self._as_of is not None or self._recorded_from is not None:
            return "No rule had run by then."
        state = first_run(self._location, self._settings.advisor_every)
        return None if state is None else state.sentence()

    def spend(self, window_s: int, by: str, shown_ts: int | None = None) -> Spend:
        """Return the dollars of each tenant, or of each owner of a basis, over the whole hours that cover the window.

        Raises StoreError.
        """
        from pertoken.costs.spend import spend

        def read(store: Store) -> Spend:
            now_ts = self._now_ts(shown_ts)
            hours = -(-now_ts // _HOUR) - (now_ts - window_s) // _HOUR
            return spend(store, by, hours, now_ts, self._teams, dated=self._past(shown_ts) is not None)

        return self._paced("spend", (window_s, by, self._past(shown_ts)), read)

    def banked(self) -> Banked:
        """Return the dollars that left a bill, at most `_BANKED_S` old. Raises StoreError."""
        from pertoken.proof.judging.receipts import Banked, banked, read_receipts
        from pertoken.proof.stored import stored

        store, now_s = self._opened(), time.monotonic()
        if self._banked is None or now_s - self._banked[0] > _BANKED_S:
            if store.advice is None:
                return Banked()
            with store.read("advice") as connection:
                self._banked = now_s, banked(read_receipts(connection), stored(connection))
        return self._banked[1]

    def course(self, subject: Subject, window_s: int, shown_ts: int | None = None) -> Course:
        """Return the history of a host or deployment, with verdicts on its changes. Raises StoreError."""
        key = (subject, window_s, self._past(shown_ts))
        return self._paced("course", key, lambda store: self._course(store, subject, window_s, shown_ts))

    def _course(self, store: Store, subject: Subject, window_s: int, shown_ts: int | None) -> Course:
        from pertoken.proof.verdicts import read_verdicts
        from pertoken.text.lifecycle import verdict_line
        from pertoken.window.course import Mark, read_course

        now_ts = self._now_ts(shown_ts)
        start = now_ts - window_s
        with store.read() as connection:
            course = read_course(connection, subject, start, now_ts, dated=self._past(shown_ts) is not None)
        if self._objectives is not None and len(course.models) == 1:
            course = replace(course, slo=self._objectives(course.models[0]))
        if store.advice is None:
            return course
        with store.read("advice") as connection:
            verdicts = read_verdicts(connection)
        marks = [
            Mark(verdict.changed_ts, "verdict", verdict_line(verdict).partition("  ")[2])
            for verdict in verdicts
            if verdict.deployment_id in course.deployment_ids and start <= verdict.changed_ts <= now_ts
        ]
        return replace(course, marks=tuple(sorted((*course.marks, *marks), key=lambda mark: mark.ts)))

    def timeline(self, now_ts: int) -> Timeline:
        """Return the recorded interval and its events. Raises StoreError."""
        from pertoken.window.timeline import read_timeline

        timeline = read_timeline(self._opened(), self._as_of or now_ts)
        if self._recorded_from is None or timeline.first_ts is None:
            return timeline
        first_ts = max(timeline.first_ts, self._recorded_from)
        happenings = tuple(happening for happening in timeline.happenings if happening.ts >= first_ts)
        return replace(timeline, first_ts=first_ts, happenings=happenings)

    def _past(self, shown_ts: int | None) -> int | None:
        return self._as_of if shown_ts is None else shown_ts

    def _now_ts(self, shown_ts: int | None = None) -> int:
        past = self._past(shown_ts)
        return int(time.time()) if past is None else past

    def _paced(
        self,
        kind: str,
        key: Hashable,
        read: Callable[[Store], T],
        outdated: Callable[[T], bool] = lambda _: False,
    ) -> T:
        """Return the last value of a kind while it is recent enough, else read it.

        Raises StoreError; the database is then opened again, because it may have been replaced or migrated.
        """
        store = self._opened()
        try:
            counters = changes(store)
            if counters is not None:
                if self._schema not in (None, counters.tables):  # migrated meanwhile
                    store = self._reopened()
                    counters = changes(store)
                self._schema = None if counters is None else counters.tables
            return self._pace.get(
                kind, key, None if counters is None else counters.commits, lambda: read(store), outdated
            )
        except StoreError:
            self._store = self._schema = None
            raise

    def _opened(self) -> Store:
        if self._store is None or self._store.advice is None:
            self._store = open_store(self._location, keep=True)
        return self._store

    def _reopened(self) -> Store:
        self._store = self._schema = None
        self._pace.forget()
        return self._opened()

    def records(self) -> Mapping[str, Record]:
        """Return the track record of each rule, by rule id. Raises StoreError."""
        from pertoken.proof.judging.receipts import all_receipts, records

        made = all_receipts(open_store(self._location), self._as_of)
        return {rule.rule: rule.record for rule in records(made)}

    def plan(
        self, rows: Sequence[Recommendation], request: PlanRequest | None, progress: Progress, *, fresh: bool = False
    ) -> ShownPlan:
        """Compose the plan of some advice. Raises StoreError, and BadInput for assumptions that are impossible."""
        from pertoken.advisor.planning import PlanRequest

        with self._planning:
            if fresh:
                self._planner = None
            planner = self._planner_of()
            plan = planner.plan(open_store(self._location), rows, request or PlanRequest(), progress)
        return ShownPlan(plan, request, planner.window_s)

    def rules(self) -> RuleList:
        """Load every rule. Raises BadInput for a list of disabled rules that cannot be read."""
        from pertoken.advisor.rules.discovery import DROP_IN
        from pertoken.advisor.rules.listing import entries, listed, page

        candidates = listed(self._settings)
        rules = tuple(ListedRule(entry, page(entry.id, candidates)) for entry in entries(candidates))
        return RuleList(rules, str(self._settings.folder / DROP_IN))

    def detail(
        self,
        rows: Sequence[Recommendation],
        recommendation: Recommendation,
        values: Mapping[str, float],
        progress: Progress,
    ) -> Detail:
        """Compute the detail of one recommendation. Raises StoreError."""
        from pertoken.proof.detection import journal
        from pertoken.proof.judging.receipts import read_receipts
        from pertoken.proof.judging.verifier import prospects
        from pertoken.proof.trials.look import last_trial

        store = open_store(self._location)
        provable = prospects(store, recommendation, self._now_ts())
        with store.read("advice") as connection:
            entries = journal(connection, recommendation.recommendation_id)
            receipts = read_receipts(connection, recommendation.recommendation_id)
        trial, seen = last_trial(store, recommendation, self._settings, self._now_ts())
        tested, untested = None, None
        if recommendation.chosen is not None:
            try:
                with self._planning:
                    tested = self._planner_of().tested(store, rows, recommendation, values, progress)
            except BadInput as error:
                untested = str(error)
        return Detail(
            recommendation.recommendation_id, dict(values), tested, untested, provable, receipts, entries, trial, seen
        )

    def _planner_of(self) -> Planner:
        from pertoken.advisor.planning import Planner

        self._planner = self._planner or Planner(self._settings, self._as_of)
        return self._planner

    def switch(self, rule_id: str, on: bool) -> str:
        """Switch a rule off or on for all later runs with these settings. Raises BadInput."""
        from pertoken.advisor.rules import discovery

        self._check_writable("switch rules")
        try:
            (discovery.enable if on else discovery.disable)(self._settings.folder, rule_id)
        except OSError as error:
            raise BadInput(f"{self._settings.folder / discovery.SWITCHES}: {error.strerror or error}") from None
        return f"{rule_id} {'runs again' if on else 'is off'} from the next run on."

    def set_price(self, selector: str, nano_usd: int) -> str:
        """Store the price of a device-hour as `pertoken prices set` does by default. Raises BadInput, StoreError.

        It applies from the beginning if no device that the selector names had a price, else from the next minute.
        """
        from pertoken.costs.repricing import read_prices
        from pertoken.migrations import upgrade
        from pertoken.store import repository
        from pertoken.store.repository import AdviceRepository
        from pertoken.text.amounts import amount

        self._check_writable("set a price")
        now_ts = int(time.time())
        upgrade(self._location, "advice")
        prices = read_prices(self._location, now_ts)
        from_ts = 0 if prices.unpriced(selector) else (now_ts // 60 + 1) * 60
        with AdviceRepository(self._location).writing() as connection:
            repository.add_price(
                connection,
                read_seq=prices.seq,
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

    def decide(self, recommendation: Recommendation, decision: str) -> str:
        """Store a decision; return the new state as a sentence. Raises BadInput, StoreError.

        Raises AdviceChanged if the recommendation was changed since it was read.
        """
        from pertoken.proof.stored import store_acts
        from pertoken.store.repository import AdviceRepository
        from pertoken.text.lifecycle import acted

        self._check_writable("decide")
        if decision == "trial":
            return self._try(recommendation)
        acts = _acts(decision, recommendation, self._now_ts())
        rows = store_acts(AdviceRepository(self._location), recommendation, acts, getpass.getuser())
        self._pace.forget()  # so that the next reading shows the decision
        return acted(rows[-1])

    def _check_writable(self, purpose: str) -> None:
        """Raise BadInput if nothing may be changed: the screens are read-only, of a recording, or of the past."""
        if self._read_only is not None:
            raise BadInput(self._read_only)
        if self._recorded_from is not None:
            raise BadInput("this is a recording: it is read-only")
        if self._as_of is not None:
            raise BadInput(f"this is the past: leave --at out to {purpose}")

    def _try(self, recommendation: Recommendation) -> str:
        """Begin the trial of a recommendation, or look at the running one; return its state as a sentence."""
        from pertoken.proof.trials.look import begin_or_look
        from pertoken.store.repository import AdviceRepository
        from pertoken.text.lifecycle import stands

        now_ts, store = self._now_ts(), open_store(self._location)
        row, trial, seen = begin_or_look(
            store, AdviceRepository(self._location), recommendation, self._settings, now_ts, getpass.getuser()
        )
        self._pace.forget()
        return stands(row, trial, seen, now_ts)


def _with_advice_events(report: FleetReport, store: Store, as_of: int | None) -> FleetReport:
    """Add events of alerts and verdicts on changes; their modules are imported only if there are any."""
    from pertoken.store import repository

    if store.advice is None:
        return report
    with store.read("advice") as connection:
        alerts = [(row.body, row.ts) for row in repository.alert_events(connection, report.now_ts - report.window_s)]
        has_verdicts = bool(repository.verdicts(connection))
    if alerts:
        from pertoken.reports.alerts import with_alerts

        report = with_alerts(report, alerts)
    if has_verdicts:
        from pertoken.proof.verdicts import standing_verdicts
        from pertoken.text.lifecycle import with_verdicts

        report = with_verdicts(report, standing_verdicts(store, as_of))
    return report


def _turned_stale(report: FleetReport, now_ts: int) -> bool:
    """Return whether a host of a report has become stale since, so that its present figures are outdated."""
    from pertoken.window.figures import STALE_TICKS

    later_s = now_ts - report.now_ts
    return any(
        not host.stale and host.age_s is not None and host.age_s + later_s > STALE_TICKS * host.interval_s
        for host in report.hosts
    )


def _acts(decision: str, recommendation: Recommendation, now_ts: int) -> Sequence[Moved]:
    from pertoken.proof.recommendation import DISMISS_S, SNOOZE_S, accept, declare, dismiss, reopen, roll_back, snooze

    by_decision: dict[str, Callable[[], Sequence[Moved]]] = {
        "accept": lambda: accept(recommendation, now_ts),
        "snooze": lambda: snooze(recommendation, now_ts, now_ts + SNOOZE_S),
        "dismiss": lambda: dismiss(recommendation, now_ts, now_ts + DISMISS_S),
        "reopen": lambda: reopen(recommendation, now_ts),
        "applied": lambda: declare(recommendation, now_ts),
        "undo": lambda: roll_back(recommendation, now_ts),
    }
    return by_decision[decision]()
