"""All figures of a report, read once: the bill, models, tenants, savings and verdicts of a period."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pertoken.config import Settings
from pertoken.costs.bill import Bill, bill
from pertoken.costs.fleet import objectives
from pertoken.costs.hours import ModelHour, ModelHours, model_hours
from pertoken.costs.ledger import BillTotal, Served, together
from pertoken.costs.report.figures import EnergyTerms, ModelFigures, model_figures
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import Trouble
from pertoken.costs.spend import Spend, naming, spend_of, with_shared
from pertoken.proof.judging.receipts import Banked, StoredReceipt, banked, read_receipts
from pertoken.proof.recommendation import Money, Recommendation, State, best_of_each_target, total
from pertoken.proof.stored import standing
from pertoken.proof.troubles import WINDOW_S, with_troubles
from pertoken.proof.verdicts import Result, Verdict, verdicts_of
from pertoken.reports.charges import Charges, charges
from pertoken.reports.period import DAY, Period
from pertoken.state.deployment import bases_of
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR
from pertoken.text.advice_table import Folded, folded, open_advice, paying_more
from pertoken.text.amounts import in_dollars, price
from pertoken.window.columns import per_mtok
from pertoken.window.inventory import Inventory, shown_place

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
    """Open recommendations whose bill rises by less than their capacity is worth; they are in no sum."""
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
    served: Served
    """Their dollars and tokens."""
    tokens: int
    savings: Savings
    troubles: tuple[Trouble, ...]
    """What was wrong at the end of the period, the most urgent first."""
    verdicts: tuple[Verdict, ...]
    """Verdicts passed in the period, and those pending on changes in it, newest change first."""

    @property
    def regressions(self) -> tuple[Verdict, ...]:
        """Verdicts on changes after which a token costs more."""
        return tuple(verdict for verdict in self.verdicts if verdict.judgement.result is Result.DEARER)

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
    known = {
        model_row.model: hour
        for model_row in hours
        if (hour := model_row.together).nano_usd is not None and hour.tokens
    }
    nano = sum((hour.nano_usd or 0) - hour.uncounted_nano_usd for hour in known.values())
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
        nano_usd_per_mtok=per_mtok(nano, sum(hour.tokens or 0 for hour in known.values())),
        served=together(hour.served._replace(good_share=good_share.get(model)) for model, hour in known.items()),
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
    """Read what is wrong at a time, the most urgent first. Raises StoreError."""
    report = fleet_report(store, WINDOW_S, end_ts, dated=dated)
    return with_troubles(report, store, partial(objectives, settings=settings), end_ts if dated else None).troubles


def read_savings(store: Store, period: Period, troubles: Sequence[Trouble], hour_rate: float) -> Savings:
    """Read the advice as it stood at the end of a period. `hour_rate`: dollars an hour of work. Raises StoreError."""
    rows = standing(store, period.end if period.dated else None)
    receipts: tuple[StoredReceipt, ...] = ()
    if store.advice is not None:
        with store.read("advice") as connection:
            receipts = tuple(receipt for receipt in read_receipts(connection) if receipt.created_ts <= period.end)
    proposed = best_of_each_target(rows)
    return Savings(
        proposed,
        tuple(row for row in open_advice(rows) if row.unconfirmed is not None),
        tuple(paying_more(rows)),
        tuple(row for row in rows if row.state in TAKEN),
        banked(receipts, rows),
        tuple(row for row in rows if row.state in (State.REFUSED, State.BLOCKED, State.FAILED)),
        folded(proposed, troubles, hour_rate),
    )


def _by_day(model: ModelHours) -> list[tuple[int, int | None]]:
    days: dict[int, list[ModelHour | None]] = {}
    for n, hour in enumerate(model.hours):
        days.setdefault((model.start_ts + n * HOUR) // DAY * DAY, []).append(hour)
    return [(day, price(ModelHours(model.model, day, tuple(hours)).together)) for day, hours in days.items()]
