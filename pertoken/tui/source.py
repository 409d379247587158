"""Values that the screens last read from their source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from pertoken.errors import PertokenError
from pertoken.text.study import Detail, RuleList, ShownPlan

if TYPE_CHECKING:  # modules that the first frame does not need
    from pertoken.advisor.planning import PlanRequest
    from pertoken.agent.doctor import Finding
    from pertoken.costs.hours import ModelHours
    from pertoken.costs.report.lines import FleetReport
    from pertoken.costs.spend import Spend
    from pertoken.proof.judging.receipts import Banked
    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.track_record import Record
    from pertoken.tui.store_source import StoreSource
    from pertoken.window.course import Course, Subject
    from pertoken.window.timeline import Timeline

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TIMELINE_S = 60
"""Age in seconds at which the timeline is read again while the present is shown."""


@dataclass(frozen=True, slots=True)
class Query:
    """Window, time and parts that the screens need from a source."""

    window_s: int
    at: int | None = None
    """Whole minute in the past to show, epoch seconds; None: the newest time."""
    hours: bool = False
    spend_by: str | None = None
    """`tenant` or a basis of owners, by which the fleet page divides the bill."""
    subject: Subject | None = None
    """Host or deployment of the open page."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T_co]):
    """A value with the time of its reading (epoch seconds), and the error of the newest reading if that failed."""

    value: T_co | None = None
    ts: float | None = None
    error: str | None = None
    query: Query | None = None
    """Query that the value was read for; a newer one may have failed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The last reading of every part."""

    database: Read[str] = field(default_factory=Read)
    query: Query | None = None
    """Query of this reading."""
    fleet: Read[FleetReport] = field(default_factory=Read)
    advice: Read[tuple[Recommendation, ...]] = field(default_factory=Read)
    no_advice: Read[str | None] = field(default_factory=Read)
    """Why no rule has run; read while there is no advice."""
    hours: Read[tuple[ModelHours, ...]] = field(default_factory=Read)
    spend: Read[Spend] = field(default_factory=Read)
    banked: Read[Banked] = field(default_factory=Read)
    course: Read[Course] = field(default_factory=Read)
    timeline: Read[Timeline] = field(default_factory=Read)


@dataclass(frozen=True, slots=True)
class Study:
    """Values that take seconds to compute, and are computed only when their inputs have changed."""

    plan: Read[ShownPlan] = field(default_factory=Read)
    records: Read[Mapping[str, Record]] = field(default_factory=Read)
    rules: Read[RuleList] = field(default_factory=Read)
    detail: Read[Detail] = field(default_factory=Read)
    findings: Read[Sequence[Finding]] = field(default_factory=Read)
    """Findings of `pertoken doctor` on this host, made if nothing is served."""


@dataclass(frozen=True, slots=True)
class ScreenView:
    """Everything that pages show. `window_s` is the chosen window, `paused` is True while figures are frozen."""

    reading: Reading
    window_s: int
    paused: bool
    now_ts: float
    notice: str | None = None
    """Sentence to show above every page, such as that the agent was killed."""
    at: int | None = None
    """The chosen instant, epoch seconds; None: the newest time."""
    recorded_until: int | None = None
    """End of a recording, epoch seconds; None: more is being recorded."""
    study: Study = field(default_factory=Study)
    working: Mapping[str, str] = field(default_factory=dict)
    """Progress of the fields of the study that are being computed, by field."""
    request: PlanRequest | None = None
    """Limits and assumptions of the plan now; the shown plan may still be that of the previous request."""
    hour_rate: float | None = None
    """Dollars of an hour of work, by which advice with a late payback is folded; None: the default."""

    def past(self, part: Read[object]) -> int | None:
        """Return the past instant that a part describes; None: it describes the time of its reading."""
        shown_ts = part.query.at if part.query is not None else self.at
        return self.recorded_until if shown_ts is None else shown_ts

    @property
    def older_s(self) -> float:
        """Age in seconds of the figures of the fleet; 0 while the past is shown, which does not age."""
        fleet = self.reading.fleet
        if fleet.value is None or self.past(fleet) is not None:
            return 0.0
        return max(0.0, self.now_ts - fleet.value.now_ts)


def read(
    source: StoreSource,
    query: Query,
    clock: Callable[[], float],
    last: Reading,
    on_part_read: Callable[[Reading], None] = lambda _: None,
) -> Reading:
    """Read every part once; hours and the divided bill only if the query needs them.

    A part that cannot be read keeps its last value, with the error. `on_part_read` is called as soon as the part that a
    person waits for is read, and may wait until it is drawn: the history of a page that was just opened, and the first
    fleet report.
    """
    shown_ts, subject, by = query.at, query.subject, query.spend_by

    def part(call: Callable[[], T], last: Read[T]) -> Read[T]:
        return attempt(call, clock, last, query)

    same = last.query is not None and last.query.subject == subject
    course: Read[Course] = last.course if same else Read()
    if subject is not None:
        course = part(lambda: source.course(subject, query.window_s, shown_ts), course)
        if not same:
            on_part_read(replace(last, course=course))
    database = part(source.describe, last.database)
    fleet = part(lambda: source.fleet(query.window_s, shown_ts), last.fleet)
    if last.fleet.value is None and fleet.value is not None:
        on_part_read(replace(last, database=database, query=query, fleet=fleet, course=course))
    advice = part(lambda: source.advice(shown_ts), last.advice)
    timeline = last.timeline
    if shown_ts is not None or timeline.ts is None or clock() - timeline.ts > TIMELINE_S:
        timeline = part(lambda: source.timeline(int(clock())), timeline)
    return Reading(
        database=database,
        query=query,
        fleet=fleet,
        advice=advice,
        no_advice=Read() if advice.value else part(source.no_advice, last.no_advice),
        hours=part(lambda: source.hours(shown_ts), last.hours) if query.hours else last.hours,
        spend=last.spend if by is None else part(lambda: source.spend(query.window_s, by, shown_ts), last.spend),
        banked=part(source.banked, last.banked),
        course=course,
        timeline=timeline,
    )


def attempt(call: Callable[[], T], clock: Callable[[], float], last: Read[T], query: Query | None = None) -> Read[T]:
    """Return a new value with its time; if the call fails, the last value with the error."""
    try:
        return Read(call(), clock(), query=query)
    except PertokenError as error:
        return replace(last, error=str(error))
    except Exception as error:  # screens must survive any fault of a reading: the error is shown until one succeeds
        return replace(last, error=f"unexpected {type(error).__name__}: {error}")
