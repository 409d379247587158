"""All figures of a report, read once: the bill, models, tenants, savings and verdicts of a period."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pertoken.config import Settings
from pertoken.costs.bill import Bill, bill
from pertoken.costs.fleet import objectives
from pertoken.costs.hours import ModelHour, ModelHours, model_hours
from pertoken.costs.ledger import BillTotal, ServedCost, together
from pertoken.costs.lines import USES, AllocatedLine
from pertoken.costs.report.figures import EnergyTerms, ModelFigures, model_figures
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import Trouble
from pertoken.costs.spend import Spend, naming, spend_of, with_shared
from pertoken.errors import BadInput
from pertoken.proof.judging.receipts import Banked, all_receipts, banked
from pertoken.proof.recommendation import Money, Recommendation, State, best_of_each_target, total
from pertoken.proof.stored import standing
from pertoken.proof.troubles import WINDOW_S, with_troubles
from pertoken.proof.verdicts import Verdict, VerdictResult, verdicts_of
from pertoken.state.deployment import bases_of
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR
from pertoken.text.advice_table import Folded, folded, open_advice, paying_more
from pertoken.text.amounts import in_dollars, price
from pertoken.units import format_utc, parse_time
from pertoken.window.columns import NULL, Columns
from pertoken.window.figures import per_mtok
from pertoken.window.inventory import Inventory, shown_place
from pertoken.window.reading import ServedBuckets

DAY = 86_400
DEFAULT_DAYS = 30


@dataclass(frozen=True, slots=True)
class Period:
    """[start, end), epoch seconds; it starts at a full hour of the clock."""

    start: int
    end: int
    dated: bool
    """Whether its end was given: everything is as of that end, without later rows."""

    @property
    def seconds(self) -> int:
        """Length."""
        return self.end - self.start

    @property
    def hours(self) -> int:
        """Hours of the clock, the one that its end lies in included, as `pertoken costs --hours` counts them."""
        return -(-self.end // HOUR) - self.start // HOUR

    @property
    def at(self) -> str:
        """Its end as `--at` takes it: `2026-11-21T10:00Z`."""
        return format_utc(self.end).replace(" ", "T")

    @property
    def text(self) -> str:
        """`2026-10-22 00:00Z to 2026-11-21 10:00Z`."""
        return f"{format_utc(self.start)} to {format_utc(self.end)}"

    def days(self) -> range:
        """Return the starts of the days of the calendar (UTC) it touches."""
        return range(self.start // DAY * DAY, self.end, DAY)

    def part_days(self) -> frozenset[int]:
        """Return the days that it covers in part; none where it covers no day wholly, so that all are alike."""
        part = frozenset(day for day in self.days() if day < self.start or day + DAY > self.end)
        return part if len(part) < len(self.days()) else frozenset()

    def preceding(self) -> Period:
        """Return the period of the same length before this one."""
        return Period(self.start - self.seconds, self.start, dated=True)


def period_of(start: str | None, end: str | None, now_ts: int, *, dated: bool) -> Period:
    """Return the period of `--from` and `--to`; `now_ts` is `--at`, or now. Raises BadInput.

    Without `--to` it ends now; without `--from` it starts `DEFAULT_DAYS` before.
    """
    until = now_ts if end is None else _time("--to", end, now_ts)
    if until > now_ts:
        raise BadInput(f"--to {end}: lies after {format_utc(now_ts)}, the end of the report")
    until = until // 60 * 60 if end is not None else until
    first = until - DEFAULT_DAYS * DAY if start is None else _time("--from", start, now_ts)
    first = first // HOUR * HOUR
    if first >= until:
        raise BadInput(f"--from {start}: begins at {format_utc(first)}, not before the end at {format_utc(until)}")
    return Period(first, until, dated=dated or end is not None)


def _time(option: str, text: str, now_ts: int) -> int:
    try:
        return parse_time(text, now_ts)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None


@dataclass(frozen=True, slots=True)
class DayTokens:
    """Tokens of one epoch on one day; None: not counted."""

    prompt: int | None
    cached: int | None
    generated: int | None


@dataclass(frozen=True, slots=True)
class Charges:
    """The bill of a window, day by day."""

    lines: tuple[AllocatedLine, ...]
    """By device and day. Their sum by use is that of the bill."""
    time_ms: Mapping[tuple[int, int], int]
    """(start of a line, device) -> device time."""
    tokens: Mapping[tuple[int, int], DayTokens]
    """(start of a line, epoch) -> tokens."""

    def by_day(self) -> dict[int, dict[str, int]]:
        """Return nano-USD by start of the day and use."""
        days: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(USES, 0))
        for line in self.lines:
            days[line.start_ts // DAY * DAY][line.use] += line.nano_usd
        return dict(days)


def charges(bill: Bill) -> Charges:
    """Return the cost of each device with a price on each day of a window."""
    billed, order, first_ts = bill.by_bucket(DAY), bill.inventory.order, bill.window.start
    lines = sorted(
        billed.lines(),
        key=lambda line: (line.start_ts, order[line.device_id], USES.index(line.use), line.epoch_id or 0),
    )
    return Charges(tuple(lines), _time_ms(billed.device_buckets, first_ts), _tokens(billed.parts, first_ts))


def _time_ms(parts: Iterable[Columns], first_ts: int) -> dict[tuple[int, int], int]:
    time_ms: dict[tuple[int, int], int] = defaultdict(int)
    for part in parts:
        columns = (part.ints(name).tolist() for name in ("device_id", "ts", "duration_ms"))
        for device_id, ts, duration_ms in zip(*columns, strict=True):
            time_ms[max(first_ts, ts // DAY * DAY), device_id] += duration_ms
    return dict(time_ms)


def _tokens(parts: Iterable[ServedBuckets], first_ts: int) -> dict[tuple[int, int], DayTokens]:
    tokens: dict[tuple[int, int], DayTokens] = {}
    names = ("epoch_id", "ts", "prompt_tokens", "cached_tokens", "generated_tokens")
    for part in parts:
        columns = (part.served.ints(name).tolist() for name in names)
        for epoch_id, ts, *counts in zip(*columns, strict=True):
            key = max(first_ts, ts // DAY * DAY), epoch_id
            total = tokens.get(key, DayTokens(None, None, None))
            prompt, cached, generated = (None if count == NULL else count for count in counts)
            tokens[key] = DayTokens(
                _plus(total.prompt, prompt), _plus(total.cached, cached), _plus(total.generated, generated)
            )
    return tokens


def _plus(total: int | None, count: int | None) -> int | None:
    return count if total is None else total + (count or 0)


TAKEN = (State.ACCEPTED, State.APPLIED, State.VERIFYING, State.REALIZED, State.PARTIAL)
"""States of advice that was accepted or applied, and was not undone."""


@dataclass(frozen=True, slots=True)
class Savings:
    """Advice by progress. Money is nano-USD per month, as (low, likely, high)."""

    proposed: tuple[Recommendation, ...]
    """Open recommendations, largest sure saving first: one for each service or host where nothing was accepted."""
    unconfirmed: tuple[Recommendation, ...]
    """Open recommendations that the last advice run did not confirm; they are in no sum."""
    paying_more: tuple[Recommendation, ...]
    """Open recommendations that raise the bill by less than the worth of their capacity; they are in no sum."""
    taken: tuple[Recommendation, ...]
    proven: Banked
    refused: tuple[Recommendation, ...]
    """Refusals of rules, and rules that were blocked or failed."""
    folds: Folded
    """The proposals that are listed, and those that are folded away: no figure, or a payback of over a year."""

    @property
    def bankable(self) -> Money | None:
        """Summed bankable dollars of `proposed`; None if no recommendation has any."""
        return total(row.best.net for row in self.proposed if row.best)

    @property
    def taken_bankable(self) -> Money | None:
        """Summed bankable dollars of `taken`, as estimated at acceptance."""
        return total(row.chosen.net for row in self.taken if row.chosen and not row.pays_more)


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """Figures of a period; None is unknown."""

    period: Period
    source: str
    """The database, without a password."""
    bill: BillTotal | None
    """None if no device has a price."""
    charges: Charges
    inventory: Inventory
    hours: tuple[ModelHours, ...]
    """Models by hour of the clock, most expensive first."""
    models: Spend
    tenants: Spend
    teams: Spend
    owners: tuple[Spend, ...]
    """By each basis of `settings.owners` by which a deployment has an owner."""
    figures: tuple[ModelFigures, ...]
    energy_terms: EnergyTerms
    nano_usd_per_mtok: int | None
    """Of all models with known dollars and tokens."""
    served: ServedCost
    """Their dollars and tokens."""
    tokens: int
    savings: Savings
    troubles: tuple[Trouble, ...]
    """Troubles at the end of the period, the most urgent first."""
    verdicts: tuple[Verdict, ...]
    """Verdicts passed in the period, and those pending on changes in it, newest change first."""

    @property
    def regressions(self) -> tuple[Verdict, ...]:
        """Verdicts on changes after which a token costs more."""
        return tuple(verdict for verdict in self.verdicts if verdict.judgement.result is VerdictResult.DEARER)

    def daily_prices(self, models: int) -> Mapping[str, Sequence[tuple[int, int | None]]]:
        """Return (day, nano-USD by the headline) of the most expensive models."""
        return {model.model: _by_day(model) for model in self.hours[:models]}


@in_dollars()
def read_figures(store: Store, settings: Settings, period: Period) -> ReportFigures:
    """Read a period. Raises StoreError."""
    teams = {tenant.name: tenant.team for tenant in settings.tenants}
    with bill(store, period.start, period.end, dated=period.dated) as priced:
        served = model_hours(priced)
        by = {name: spend_of(priced, served, name, teams) for name in ("model", "tenant", "team")}
        by = {name: with_shared(lines, settings.shared) for name, lines in by.items()}
        owners = tuple(with_shared(lines, settings.shared) for lines in _owners(priced))
        terms = EnergyTerms.of(settings)
        figures = model_figures(priced, priced.window.energy(), partial(objectives, settings=settings), terms)
        daily = charges(priced)
        source = shown_place(store.location, priced.inventory)
    hours = sorted(
        (ModelHours(model, period.start // HOUR * HOUR, tuple(model_hour)) for model, model_hour in served.items()),
        key=lambda model_row: (-(model_row.together.nano_usd or 0), model_row.model),
    )
    priced_hours = {
        model_row.model: hour
        for model_row in hours
        if (hour := model_row.together).nano_usd is not None and hour.tokens
    }
    nano = sum((hour.nano_usd or 0) - hour.uncounted_nano_usd for hour in priced_hours.values())
    troubles = read_troubles(store, settings, period.end, period.dated)
    good_share = {figure.model: figure.good_share.low for figure in figures}
    return ReportFigures(
        period=period,
        source=source,
        bill=priced.money.bill(),
        charges=daily,
        inventory=priced.inventory,
        hours=tuple(hours),
        models=by["model"],
        tenants=by["tenant"],
        teams=by["team"],
        owners=owners,
        figures=figures,
        energy_terms=terms,
        nano_usd_per_mtok=per_mtok(nano, sum(hour.tokens or 0 for hour in priced_hours.values())),
        served=together(hour.served._replace(good_share=good_share.get(model)) for model, hour in priced_hours.items()),
        tokens=sum(model_row.tokens or 0 for model_row in hours),
        savings=read_savings(store, period, troubles, settings.advisor_hour_rate),
        troubles=troubles,
        verdicts=verdicts_of(store, period.start, period.end, period.end if period.dated else None),
    )


def _owners(priced: Bill) -> Iterator[Spend]:
    """Yield the bill by each kind of owner that a deployment of the period has."""
    for by in bases_of([json.loads(row.knobs) for row in priced.inventory.epochs]):
        yield spend_of(priced, model_hours(priced, naming(priced.inventory, by)), by, {})


def read_troubles(store: Store, settings: Settings, end_ts: int, dated: bool = False) -> tuple[Trouble, ...]:
    """Read the troubles at a time, the most urgent first. Raises StoreError."""
    report = fleet_report(store, WINDOW_S, end_ts, dated=dated)
    return with_troubles(report, store, partial(objectives, settings=settings), end_ts if dated else None).troubles


def read_savings(store: Store, period: Period, troubles: Sequence[Trouble], hour_rate: float) -> Savings:
    """Read the advice as it stood at the end of a period. `hour_rate`: dollars an hour of work. Raises StoreError."""
    rows = standing(store, period.end if period.dated else None)
    proposed = best_of_each_target(rows)
    return Savings(
        proposed,
        tuple(row for row in open_advice(rows) if row.unconfirmed is not None),
        tuple(paying_more(rows)),
        tuple(row for row in rows if row.state in TAKEN),
        banked(all_receipts(store, period.end), rows),
        tuple(row for row in rows if row.state in (State.REFUSED, State.BLOCKED, State.FAILED)),
        folded(proposed, troubles, hour_rate),
    )


def _by_day(model: ModelHours) -> list[tuple[int, int | None]]:
    days: dict[int, list[ModelHour | None]] = {}
    for n, hour in enumerate(model.hours):
        days.setdefault((model.start_ts + n * HOUR) // DAY * DAY, []).append(hour)
    return [(day, price(ModelHours(model.model, day, tuple(hours)).together)) for day, hours in days.items()]
