"""Source that returns fixed values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

from pertoken.advisor.plan.plan import Plan
from pertoken.advisor.planning import PlanRequest
from pertoken.costs.hours import ModelHours
from pertoken.costs.report.lines import (
    FleetReport,
)
from pertoken.costs.spend import Spend
from pertoken.errors import StoreError
from pertoken.proof.judging.receipts import Banked
from pertoken.proof.recommendation import (
    Recommendation,
)
from pertoken.proof.track_record import Record
from pertoken.text.study import Detail, ListedRule, RuleList, ShownPlan
from pertoken.tui.store_source import StoreSource
from pertoken.window.course import Course, Subject
from pertoken.window.figures import Progress
from pertoken.window.timeline import Timeline
from tests.tui.figures import RICH
from tests.tui.histories import BANKED, COURSE, DAY, TENANTS, TIMELINE
from tests.tui.proposals import ADVICE
from tests.tui.studies import PLAN, RULES, shown_detail, shown_plan


@dataclass
class FixedSource(StoreSource):
    """Source with fixed values. `error` makes every call fail; `wait` blocks every call until it is set."""

    report: FleetReport = RICH
    recommendations: tuple[Recommendation, ...] = ADVICE
    error: Callable[[], Exception] | None = None
    wait: Event | None = None
    windows: list[int] = field(default_factory=list)
    day: tuple[ModelHours, ...] = DAY
    hours_asked: int = 0
    decisions: list[tuple[int, str]] = field(default_factory=list)
    planned: Plan = PLAN
    requests: list[tuple[PlanRequest | None, bool]] = field(default_factory=list)
    details: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    rules_asked: int = 0
    off: set[str] = field(default_factory=set)
    moments: list[int | None] = field(default_factory=list)
    subjects: list[Subject] = field(default_factory=list)
    bill: Spend = TENANTS
    saved: Banked = BANKED
    history: Course = COURSE
    recorded: Timeline = TIMELINE
    recorded_until: int | None = None
    priced: list[tuple[str, int]] = field(default_factory=list)
    read_only: str | None = None
    listed: tuple[ListedRule, ...] = RULES

    def _before(self) -> None:
        if self.wait is not None:
            self.wait.wait(30)
        if self.error is not None:
            raise self.error()

    def fleet(self, window_s: int, shown_ts: int | None = None) -> FleetReport:
        self._before()
        self.windows.append(window_s)
        self.moments.append(shown_ts)
        return replace(self.report, window_s=window_s, now_ts=shown_ts or self.report.now_ts)

    def spend(self, window_s: int, by: str, shown_ts: int | None = None) -> Spend:
        self._before()
        return self.bill if by == "tenant" else replace(self.bill, by=by)

    def banked(self) -> Banked:
        self._before()
        return self.saved

    def course(self, subject: Subject, window_s: int, shown_ts: int | None = None) -> Course:
        self._before()
        self.subjects.append(subject)
        return self.history

    def timeline(self, now_ts: int) -> Timeline:
        self._before()
        return self.recorded

    def no_advice(self) -> str | None:
        self._before()
        return None if self.recommendations else "No rule has run yet. The advisor runs the rules in 3m 20s."

    def hours(self, shown_ts: int | None = None) -> tuple[ModelHours, ...]:
        self._before()
        self.hours_asked += 1
        return self.day

    def advice(self, shown_ts: int | None = None) -> tuple[Recommendation, ...]:
        self._before()
        return self.recommendations

    def records(self) -> Mapping[str, Record]:
        self._before()
        return {"quantize-weights": Record(4, 0.92, 0.11, 0.3)}

    def plan(
        self, rows: Sequence[Recommendation], request: PlanRequest | None, progress: Progress, *, fresh: bool = False
    ) -> ShownPlan:
        self._before()
        self.requests.append((request, fresh))
        return ShownPlan(shown_plan(request, self.planned), request, 604_800)

    def rules(self) -> RuleList:
        self._before()
        self.rules_asked += 1
        return RuleList(
            tuple(
                replace(rule, entry=replace(rule.entry, state="disabled")) if rule.entry.id in self.off else rule
                for rule in self.listed
            ),
            "/etc/pertoken/rules.d",
        )

    def set_price(self, selector: str, nano_usd: int) -> str:
        self.priced.append((selector, nano_usd))
        return f"{selector}: priced"

    def switch(self, rule_id: str, on: bool) -> str:
        self._before()
        (self.off.discard if on else self.off.add)(rule_id)
        return f"{rule_id}: {'on' if on else 'off'}"

    def detail(
        self,
        rows: Sequence[Recommendation],
        recommendation: Recommendation,
        values: Mapping[str, float],
        progress: Progress,
    ) -> Detail:
        self._before()
        self.details.append((recommendation.recommendation_id, dict(values)))
        return shown_detail(recommendation, values)

    def decide(self, recommendation: Recommendation, decision: str) -> str:
        self._before()
        self.decisions.append((recommendation.recommendation_id, decision))
        return f"{decision}: stored"

    def describe(self) -> str:
        self._before()
        return self.report.source


def locked() -> Exception:
    return StoreError("/var/lib/pertoken/telemetry.db: locked by pid 4211 [b]: stop it, or wait\nsecond line")
