"""Where screens get what they show, and what was last read of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pertoken.errors import PertokenError
from pertoken.tui.study import Detail, RuleList, ShownPlan

if TYPE_CHECKING:  # the first frame waits for no module that only computes what is shown later
    from pertoken.advisor.planning import PlanRequest
    from pertoken.costs.hours.hour import ModelHours
    from pertoken.costs.hours.spend import Spend
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.judging.banked import Banked
    from pertoken.proof.recommendation import Recommendation
    from pertoken.proof.track_record import Record
    from pertoken.window.course.course import Course, Subject
    from pertoken.window.course.timeline import Timeline
    from pertoken.window.progress import Progress

T = TypeVar("T")

TIMELINE_S = 60
"""Age at which what happened is read again while the present is shown."""


class Source(Protocol):
    """A database as screens see it. Every call may block, and may raise PertokenError.

    `decide` and `set_price` change it, nothing else does.

    `at` is a whole minute in the past of which everything is shown; None is the newest time there is.
    """

    def fleet(self, window_s: int, at: int | None = None) -> FleetReport:
        """Return what the fleet did and cost over the last `window_s` seconds."""
        ...

    def advice(self, at: int | None = None) -> tuple[Recommendation, ...]:
        """Return all advice as it stands, or stood and has not changed since."""
        ...

    def hours(self, at: int | None = None) -> tuple[ModelHours, ...]:
        """Return what a million tokens cost, by model and hour of the last day."""
        ...

    def tenants(self, window_s: int, at: int | None = None) -> Spend:
        """Return the dollars of each tenant over the whole hours that cover the window."""
        ...

    def banked(self) -> Banked:
        """Return what receipts of changes measured so far."""
        ...

    def course(self, subject: Subject, window_s: int, at: int | None = None) -> Course:
        """Return what one host or deployment did over the window, slice by slice."""
        ...

    def timeline(self, now_ts: int) -> Timeline:
        """Return what is recorded, from when to when, and what happened in it."""
        ...

    def records(self) -> Mapping[str, Record]:
        """What each rule realised of what it promised, by the id of the rule."""
        ...

    def plan(
        self, rows: Sequence[Recommendation], request: PlanRequest | None, progress: Progress, *, fresh: bool = False
    ) -> ShownPlan:
        """Compose the plan of some advice, as a person asks for it; without a request the best there is.

        `fresh` reads telemetry again where that of the last plan would do. It may take seconds.
        """
        ...

    def rules(self) -> RuleList:
        """Load every rule, files of the drop-in folder included. It may take seconds."""
        ...

    def switch(self, rule_id: str, on: bool) -> str:
        """Switch a rule off or on for every later run, and return what that means."""
        ...

    def detail(
        self, rows: Sequence[Recommendation], each: Recommendation, values: Mapping[str, float], progress: Progress
    ) -> Detail:
        """All that is computed of one recommendation, with other numbers in place of some assumptions."""
        ...

    def set_price(self, selector: str, nano_usd: int) -> str:
        """Store what an hour of a device costs, and return what that means."""
        ...

    def decide(self, each: Recommendation, decision: str) -> str:
        """Make one of `keys.DECISIONS` on a recommendation as it was read, and return how it stands."""
        ...

    @property
    def recorded_until(self) -> int | None:
        """End of a recording, or the instant of `--at`; None: more is recorded."""
        ...

    @property
    def read_only(self) -> str | None:
        """Why nothing may be decided, switched or written here, as a sentence; None: it may."""
        ...

    def describe(self) -> str:
        """Which database it is, with no password in it."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What the screens ask a source for."""

    window_s: int
    at: int | None = None
    """Whole minute in the past that everything is of; None: the newest."""
    hours: bool = False
    tenants: bool = False
    subject: Subject | None = None
    """Host or deployment whose page is open."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A value with the time it was read (epoch seconds), and why the newest reading failed, if it did."""

    value: T | None = None
    ts: float | None = None
    error: str | None = None
    asked: Asked | None = None
    """The question that the value answers; a newer one may have failed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was last read."""

    place: Read[str] = field(default_factory=Read)
    asked: Asked | None = None
    """What this reading answers."""
    fleet: Read[FleetReport] = field(default_factory=Read)
    advice: Read[tuple[Recommendation, ...]] = field(default_factory=Read)
    hours: Read[tuple[ModelHours, ...]] = field(default_factory=Read)
    tenants: Read[Spend] = field(default_factory=Read)
    banked: Read[Banked] = field(default_factory=Read)
    course: Read[Course] = field(default_factory=Read)
    timeline: Read[Timeline] = field(default_factory=Read)


@dataclass(frozen=True, slots=True)
class Study:
    """What takes seconds to compute, and is computed only when what it is of has changed."""

    plan: Read[ShownPlan] = field(default_factory=Read)
    records: Read[Mapping[str, Record]] = field(default_factory=Read)
    rules: Read[RuleList] = field(default_factory=Read)
    detail: Read[Detail] = field(default_factory=Read)
    findings: Read[Sequence[Any]] = field(default_factory=Read)
    """Of `pertoken doctor` on this host, where nothing is served."""


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows: the newest reading, the window asked for, whether figures are frozen, and a notice."""

    reading: Reading
    window_s: int
    paused: bool
    now_ts: float
    notice: str | None = None
    """Sentence about what feeds the database, such as an agent that was killed."""
    at: int | None = None
    """The instant that was asked for; None: the newest."""
    recorded_until: int | None = None
    """End of a recording, which never changes; None: more is recorded."""
    study: Study = field(default_factory=Study)
    working: Mapping[str, str] = field(default_factory=dict)
    """By field of the study, what is done for it right now."""
    request: PlanRequest | None = None
    """What a person asks of the plan now; the plan that is shown may be of the request before."""

    def past(self, part: Read[Any]) -> int | None:
        """Return the instant in the past that a part is of; None: it is of the time it was read."""
        at = part.asked.at if part.asked is not None else self.at
        return self.recorded_until if at is None else at

    @property
    def older_s(self) -> float:
        """Seconds by which the fleet's figures are older than now; 0 while the past is shown, which does not age."""
        fleet = self.reading.fleet
        if fleet.value is None or self.past(fleet) is not None:
            return 0.0
        return max(0.0, self.now_ts - fleet.value.now_ts)


def read(
    source: Source,
    asked: Asked,
    now: Callable[[], float],
    last: Reading,
    begun: Callable[[Reading], None] = lambda _: None,
) -> Reading:
    """Read everything once, and what only some pages show where it is asked for.

    What cannot be read keeps its last value, with the error. `begun` is given what a person waits for as soon as it is
    read, and may take the time to show it: the history of a page that was just opened, and the first fleet there is.
    """
    at, subject = asked.at, asked.subject

    def part(call: Callable[[], T], last: Read[T]) -> Read[T]:
        return attempt(call, now, last, asked)

    same = last.asked is not None and last.asked.subject == subject
    course: Read[Course] = last.course if same else Read()
    if subject is not None:
        course = part(lambda: source.course(subject, asked.window_s, at), course)
        if not same:
            begun(replace(last, course=course))
    place, fleet = part(source.describe, last.place), part(lambda: source.fleet(asked.window_s, at), last.fleet)
    if last.fleet.value is None and fleet.value is not None:
        begun(replace(last, place=place, asked=asked, fleet=fleet, course=course))
    timeline = last.timeline
    if at is not None or timeline.ts is None or now() - timeline.ts > TIMELINE_S:
        timeline = part(lambda: source.timeline(int(now())), timeline)
    return Reading(
        place=place,
        asked=asked,
        fleet=fleet,
        advice=part(lambda: source.advice(at), last.advice),
        hours=part(lambda: source.hours(at), last.hours) if asked.hours else last.hours,
        tenants=part(lambda: source.tenants(asked.window_s, at), last.tenants) if asked.tenants else last.tenants,
        banked=part(source.banked, last.banked),
        course=course,
        timeline=timeline,
    )


def attempt(call: Callable[[], T], now: Callable[[], float], last: Read[T], asked: Asked | None = None) -> Read[T]:
    """Return a new value with its time, or the last one with the error that stood in the way."""
    try:
        return Read(call(), now(), asked=asked)
    except PertokenError as error:
        return replace(last, error=str(error))
    except Exception as error:  # a screen outlives what reads for it: shown until a reading succeeds
        return replace(last, error=f"unexpected {type(error).__name__}: {error}")
