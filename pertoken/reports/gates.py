"""Gates: figures compared with limits, for CI (`--fail-on`) and for alerts.

Front door: `read_gates` (comparisons as written), `Figures` (measured values) and `judge` (gates over them).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial

from pertoken.config import Settings
from pertoken.costs.bill import bill
from pertoken.costs.fleet import objectives, service_name
from pertoken.costs.ledger import together
from pertoken.costs.month import MonthSpend, RecentMonths
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import DeploymentLine, Figure, FleetReport, HostLine
from pertoken.costs.spend import OwnerUse, owner_use
from pertoken.errors import BadInput
from pertoken.metrics import FIGURES, HEADLINES
from pertoken.proof.recommendation import best_of_each_target, total
from pertoken.proof.stored import standing
from pertoken.proof.troubles import is_silent, is_unread, slo_ratios, stuck_s
from pertoken.proof.verdicts import VerdictResult, verdicts_of
from pertoken.settings.alerts import FLEET, FigureLimit, read_comparison
from pertoken.settings.owners import is_basis, read_owner
from pertoken.state.deployment import bases_of
from pertoken.state.service import Slo
from pertoken.store.connect.open import Store
from pertoken.units import NANO_USD
from pertoken.window.figures import per_mtok

NO_PRICE = Figure(None, "no device has a price: `pertoken prices set`")
NO_TOKENS = Figure(None, "no engine counted tokens")
NOT_MEASURED = Figure(None, "it was not measured")
NO_SLO = Figure(None, "no objective is set: [slo] or [services.NAME]")
NO_BUDGET = Figure(None, "no budget is set: budget.usd_per_month")
NOTHING_SERVED = Figure(None, "no target of that name was recorded")

Values = Mapping[str, Figure]
"""Figures by name of the target; the name of the fleet is empty."""


class Figures:
    """Figures of one window. Each source is read once, when a figure first needs it."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        window_s: int,
        now_ts: int,
        *,
        dated: bool = False,
        months: RecentMonths | None = None,
    ) -> None:
        """`months` are kept by callers that read figures again and again."""
        self._store, self._settings = store, settings
        self._window_s, self._now_ts, self._dated = window_s, now_ts, dated
        self._uses: dict[str, Mapping[str, OwnerUse]] = {}
        """By basis of owners."""
        self._months = months or RecentMonths()

    def of(self, figure: str, kind: str) -> Values:
        """Return a figure of each target of a kind. Raises StoreError, KeyError for an unknown figure."""
        if is_basis(kind) and "owner" in FIGURES[figure].kinds:
            return self._of_owners(figure, kind)
        if kind not in FIGURES[figure].kinds:
            reason = f"{figure} has values for {', '.join(FIGURES[figure].kinds)}, not for a {kind}"
            return {"": Figure(None, reason)}
        if kind == "host":
            return {host.name: self._of_host(figure, host) for host in self.report.hosts}
        if kind == "fleet":
            return {"": self._of_fleet(figure)}
        return {
            name: _of_lines(figure, lines, self._settings, self._window_s) for name, lines in self._by(kind).items()
        }

    def _of_owners(self, figure: str, basis: str) -> Values:
        if figure in ("budget_share", "budget_expected_share"):
            return self._of_owner_budgets(figure, basis)
        if basis not in self._uses:
            start = self._now_ts - self._window_s
            with bill(self._store, start, self._now_ts, dated=self._dated) as priced:
                self._uses[basis] = owner_use(priced, basis)
        return {name: _of_use(figure, use) for name, use in self._uses[basis].items()}

    def _of_owner_budgets(self, figure: str, basis: str) -> Values:
        """Return the share of each owner's budget; an owner without one has no value."""
        budgets = {
            name: usd
            for key, usd in self._settings.budget_owners
            for owner_basis, name in [read_owner(key)]
            if owner_basis == basis
        }
        months = self._months.spend(self._store, basis, self._now_ts, dated=self._dated) if budgets else {}
        values = {}
        for name, usd in budgets.items():
            month = months.get(name)
            values[name] = NOTHING_SERVED if month is None else _share_of_budget(figure, month, usd)
        return values

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """Bases by which a deployment of the window has an owner."""
        with bill(self._store, self._now_ts - self._window_s, self._now_ts, dated=self._dated) as priced:
            return bases_of([json.loads(row.knobs) for row in priced.inventory.epochs])

    @cached_property
    def report(self) -> FleetReport:
        """The fleet over the window, as the screens show it."""
        slo_of = partial(objectives, settings=self._settings)
        return fleet_report(self._store, self._window_s, self._now_ts, dated=self._dated, slo_of=slo_of)

    @property
    def recorded(self) -> bool:
        """Whether any host was recorded in the window."""
        return any(host.age_s is not None and host.age_s < self._window_s for host in self.report.hosts)

    def _by(self, kind: str) -> Mapping[str, Sequence[DeploymentLine]]:
        lines: dict[str, list[DeploymentLine]] = defaultdict(list)
        for line in self.report.deployments:
            lines[service_name(line.model, self._settings) if kind == "service" else line.model].append(line)
        return lines

    def _of_host(self, figure: str, host: HostLine) -> Figure:
        if figure == "telemetry_lost":
            return Figure(float(self._is_lost(host)))
        return NOT_MEASURED if host.age_s is None else Figure(float(host.age_s))

    def _is_lost(self, host: HostLine) -> bool:
        """Return whether *Now* shows telemetry of a host as lost: its agent stopped, or an engine cannot be read."""
        return is_silent(host) or any(is_unread(line) for line in self.report.deployments if line.host == host.name)

    def _of_fleet(self, figure: str) -> Figure:
        figure_readers: Mapping[str, Callable[[], Figure]] = {
            "usd": lambda: _usd(None if self.report.bill is None else self.report.bill.paid, NO_PRICE),
            "usd_per_mtok": lambda: _usd(self.report.nano_usd_per_mtok, self._no_mtok()),
            "usd_per_hour": lambda: _usd(self.report.nano_usd_per_hour, NO_PRICE),
            "idle_usd": self._idle_usd,
            "idle_share": self._idle_share,
            "power_w": lambda: _known(self.report.power_w),
            "generated_tok_s": lambda: _known(self.report.generated_tok_s_now),
            "stale_s": self._stale_s,
            "telemetry_lost": lambda: Figure(float(sum(map(self._is_lost, self.report.hosts)))),
            "price_lost": lambda: Figure(float(sum(lost.devices for lost in self.report.lost_prices))),
            "budget_share": lambda: self._of_budget("budget_share"),
            "budget_expected_share": lambda: self._of_budget("budget_expected_share"),
            "bankable_usd_per_month": self._bankable,
            "regressions": lambda: self._verdicts(VerdictResult.DEARER),
            "output_changes": lambda: self._verdicts(VerdictResult.OUTPUT_CHANGED),
        }
        return (
            figure_readers[figure]()
            if figure in figure_readers
            else _of_lines(figure, tuple(self.report.deployments), self._settings, self._window_s)
        )

    def _no_mtok(self) -> Figure:
        return NO_PRICE if self.report.bill is None else NO_TOKENS

    def _idle_usd(self) -> Figure:
        bill = self.report.bill
        return NO_PRICE if bill is None else Figure((bill.idle + bill.unallocated) / NANO_USD)

    def _idle_share(self) -> Figure:
        bill = self.report.bill
        return NO_PRICE if bill is None or not bill.paid else Figure((bill.idle + bill.unallocated) / bill.paid)

    def _stale_s(self) -> Figure:
        ages = [host.age_s for host in self.report.hosts]
        known_ages = [age for age in ages if age is not None]
        return Figure(float(max(known_ages))) if known_ages and len(known_ages) == len(ages) else NOT_MEASURED

    def _of_budget(self, figure: str) -> Figure:
        budget = self._settings.budget_usd_per_month
        if budget is None:
            return NO_BUDGET
        month = self._months.spend(self._store, None, self._now_ts, dated=self._dated)[""]
        return _share_of_budget(figure, month, budget)

    def _bankable(self) -> Figure:
        rows = standing(self._store, self._now_ts if self._dated else None)
        money = total(row.best.net for row in best_of_each_target(rows) if row.best)
        if not rows:
            return Figure(None, "no rule has run: `pertoken advise`")
        return Figure((money[1] if money else 0) / NANO_USD)

    def _verdicts(self, result: VerdictResult) -> Figure:
        start = self._now_ts - self._window_s
        verdicts = verdicts_of(self._store, start, self._now_ts, self._now_ts if self._dated else None)
        return Figure(float(sum(verdict.judgement.result is result for verdict in verdicts)))


def _share_of_budget(figure: str, month: MonthSpend, budget_usd: float) -> Figure:
    nano_usd = month.nano_usd if figure == "budget_share" else month.total and month.total[1]
    if nano_usd is None:
        return Figure(None, month.reason or "the spend of the month is unknown")
    return Figure(nano_usd / NANO_USD / budget_usd)


def _of_use(figure: str, use: OwnerUse) -> Figure:
    if figure in ("usd", "idle_usd"):
        return _usd(use.nano_usd if figure == "usd" else use.idle_nano_usd, NO_PRICE)
    if figure == "idle_share":
        no_share = use.idle_nano_usd is None or not use.nano_usd
        return NO_PRICE if no_share else Figure((use.idle_nano_usd or 0) / (use.nano_usd or 1))
    if figure == "tokens":
        return NO_TOKENS if use.tokens is None else Figure(float(use.tokens))
    headline = _HEADLINE_OF[figure]
    return _usd(use.served.price(headline), NO_PRICE if use.nano_usd is None else _MISSING.get(figure, NO_TOKENS))


def _of_lines(figure: str, lines: Sequence[DeploymentLine], settings: Settings, window_s: int) -> Figure:
    if not lines:
        return NOTHING_SERVED
    if figure == "usd_per_generated_mtok":
        nano, generated = _sum(lines, "nano_usd"), _sum(lines, "generated_tokens")
        missing = NO_PRICE if nano is None else NO_TOKENS
        return _usd(per_mtok(_whole(nano), _whole(generated)), missing)
    if figure in _HEADLINE_OF:
        price = together(line.served for line in lines).price(_HEADLINE_OF[figure])
        return _usd(price, NO_PRICE if _any(lines, "nano_usd") is None else _MISSING[figure])
    if figure in ("usd", "idle_usd", "usd_per_hour"):
        stored = {"usd": "nano_usd", "idle_usd": "idle_nano_usd", "usd_per_hour": "nano_usd_per_hour"}[figure]
        return _usd(_whole(_sum(lines, stored)), NO_PRICE)
    if figure == "idle_share":
        nano, idle = _sum(lines, "nano_usd"), _sum(lines, "idle_nano_usd")
        return NO_PRICE if not nano or idle is None else Figure(idle / nano)
    if figure == "tokens":
        prompt, generated = _sum(lines, "prompt_tokens"), _sum(lines, "generated_tokens")
        return NO_TOKENS if prompt is None or generated is None else Figure(prompt + generated)
    if figure == "stuck":
        return Figure(float(sum(stuck_s(line, window_s) is not None for line in lines)))
    if figure == "slo_ratio":
        ratios = [ratio for line in lines for ratio in slo_ratios(line, objectives(line.model, settings)).values()]
        return Figure(max(ratios)) if ratios else _no_slo(lines, settings)
    stored, scale = _WORST.get(figure, (_NOW.get(figure, ""), 1.0))
    measured = [value for line in lines if not line.ended and (value := getattr(line, stored)) is not None]
    if not measured:
        return NOT_MEASURED
    return Figure(scale * (max(measured) if figure in _WORST else sum(measured)))


_HEADLINE_OF = {spec.figure: name for name, spec in HEADLINES.items()}
_MISSING = {
    "usd_per_mtok": NO_TOKENS,
    "usd_per_1000_requests": Figure(None, "no engine counted ended requests"),
    "usd_per_good_mtok": Figure(None, "the share of requests within the SLO is not known: `costs --figures` shows why"),
}
_WORST = {"ttft_p95_ms": ("ttft_p95_s", 1000.0), "tpot_p50_ms": ("tpot_p50_s", 1000.0)}
_NOW = {"waiting": "waiting_now", "generated_tok_s": "generated_tok_s_now", "power_w": "power_w"}


def _no_slo(lines: Sequence[DeploymentLine], settings: Settings) -> Figure:
    slos = [objectives(line.model, settings) for line in lines]
    return NOT_MEASURED if any(slo != Slo() for slo in slos) else NO_SLO


def _sum(lines: Sequence[DeploymentLine], name: str) -> float | None:
    values = [getattr(line, name) for line in lines]
    return None if None in values else sum(values)


def _any(lines: Sequence[DeploymentLine], name: str) -> float | None:
    return next((value for line in lines if (value := getattr(line, name)) is not None), None)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _usd(nano_usd: int | None, missing: Figure) -> Figure:
    return missing if nano_usd is None else Figure(nano_usd / NANO_USD)


def _known(value: float | None) -> Figure:
    return NOT_MEASURED if value is None else Figure(float(value))


KEPT, BROKEN, UNKNOWN = 0, 1, 3
"""Exit status of the worst gate; broken is worse than not measurable."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate of one target, judged."""

    gate: str
    figure: str
    target: str
    """`fleet`, or `service=chat`."""
    value: float | None
    operator: str
    limit: float
    unit: str
    status: str
    """`kept`, `broken` or `not measurable`."""
    reason: str | None = None

    @property
    def line(self) -> str:
        """The gate as a sentence."""
        if self.value is None:
            return f"gate {self.gate}: not measurable for {self.target}: {self.reason}"
        return f"gate {self.gate}: {self.status}: {self.figure} of {self.target} is {self.value:g} {self.unit}"

    def values(self) -> dict[str, object]:
        """Return the gate as values for JSON."""
        return asdict(self)


def judge(comparisons: Sequence[FigureLimit], figures: Figures) -> tuple[Gate, ...]:
    """Return each gate for each of its targets. A gate is broken where its comparison is true. Raises StoreError."""
    return tuple(gate for comparison in comparisons for gate in _judged(comparison, figures))


def _judged(comparison: FigureLimit, figures: Figures) -> Iterable[Gate]:
    scope = comparison.scope or FLEET
    by_target = figures.of(comparison.figure, scope.kind)
    values = {name: value for name, value in by_target.items() if scope.kind == "fleet" or scope.covers(name)}
    for name, figure in (values or {scope.target: NOTHING_SERVED}).items():
        broken = figure.value is not None and comparison.holds(figure.value)
        status = "not measurable" if figure.value is None else "broken" if broken else "kept"
        yield Gate(
            gate=str(comparison),
            figure=comparison.figure,
            target="the fleet" if scope.kind == "fleet" else f"{scope.kind}={name}",
            value=figure.value,
            operator=comparison.operator,
            limit=comparison.limit,
            unit=FIGURES[comparison.figure].unit,
            status=status,
            reason=figure.reason,
        )


def exit_status(gates: Iterable[Gate]) -> int:
    """Return the exit status of some gates."""
    statuses = {gate.status for gate in gates}
    return BROKEN if "broken" in statuses else UNKNOWN if "not measurable" in statuses else KEPT


def read_gates(texts: Iterable[str]) -> tuple[FigureLimit, ...]:
    """Return the gates of `--fail-on`. Raises BadInput."""
    gates = []
    for text in texts:
        try:
            gates.append(read_comparison(text))
        except ValueError as error:
            raise BadInput(f"--fail-on {text!r}: {error}") from None
        check_figure(gates[-1], f"--fail-on {text!r}")
    return tuple(gates)


def check_figure(comparison: FigureLimit, where: str) -> None:
    """Raise BadInput for an unknown figure, or one without values for that kind of target."""
    spec = FIGURES.get(comparison.figure)
    if spec is None:
        from difflib import get_close_matches

        near = get_close_matches(comparison.figure, FIGURES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(FIGURES)}"
        raise BadInput(f"{where}: no figure is named {comparison.figure}; {hint}")
    kind = (comparison.scope or FLEET).kind
    if kind not in spec.kinds and not (is_basis(kind) and "owner" in spec.kinds):
        raise BadInput(f"{where}: {comparison.figure} has values for {', '.join(spec.kinds)}, not for a {kind}")
