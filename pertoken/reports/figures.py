"""Everything that a report shows of a period, read once: the bill, models, tenants, savings and verdicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pertoken.config import Settings
from pertoken.costs.fleet import objectives
from pertoken.costs.hours.hour import ModelHours
from pertoken.costs.hours.model_hours import model_hours
from pertoken.costs.hours.spend import Spend, spend_of
from pertoken.costs.ledger import Bill
from pertoken.costs.priced import PricedWindow
from pertoken.costs.prices.stored import price_book
from pertoken.costs.report.figures import ModelFigures, model_figures
from pertoken.proof.judging.banked import Banked, banked
from pertoken.proof.judging.receipts import StoredReceipt, read_receipts
from pertoken.proof.recommendation import Money, Recommendation, State
from pertoken.proof.stored import standing
from pertoken.proof.verdicts import Result, Verdict, standing_verdicts
from pertoken.reports.charges import Charges, charges
from pertoken.reports.period import DAY, Period
from pertoken.store.connect.open import Store
from pertoken.store.schema.rollup_tables import HOUR
from pertoken.window.figures import per_mtok
from pertoken.window.inventory import Inventory
from pertoken.window.reading import Window

TAKEN = (State.ACCEPTED, State.APPLIED, State.VERIFYING, State.REALIZED, State.PARTIAL)
"""States of advice that somebody acts on or acted on, and that stands."""


@dataclass(frozen=True, slots=True)
class Savings:
    """Advice by how far it came. Money is nano-USD per month, as (low, likely, high)."""

    found: tuple[Recommendation, ...]
    """Open, the dearest first; of several that touch the same service or host only the best one."""
    taken: tuple[Recommendation, ...]
    proven: Banked
    refused: tuple[Recommendation, ...]
    """Rules that looked and had nothing to propose, or that could not look."""

    @property
    def bankable(self) -> Money | None:
        """Bankable dollars of `found` together; None where nothing has any."""
        return total(each.best.bankable for each in self.found if each.best)

    @property
    def taken_bankable(self) -> Money | None:
        """Bankable dollars of `taken` together, as estimated when each was accepted."""
        return total(each.chosen.bankable for each in self.taken if each.chosen)


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """A period in figures. None is unknown."""

    period: Period
    source: str
    """The database, with no password in it."""
    bill: Bill | None
    """None where no device has a price."""
    charges: Charges
    there: Inventory
    hours: tuple[ModelHours, ...]
    """Models by the hour of the clock, dearest first."""
    models: Spend
    tenants: Spend
    teams: Spend
    figures: tuple[ModelFigures, ...]
    nano_usd_per_mtok: int | None
    """Of all models whose dollars and tokens are known."""
    tokens: int
    savings: Savings
    verdicts: tuple[Verdict, ...]
    """On changes within the period, newest first."""

    @property
    def regressions(self) -> tuple[Verdict, ...]:
        """Changes after which a token costs more."""
        return tuple(each for each in self.verdicts if each.judgement.result is Result.DEARER)

    def daily_per_mtok(self, models: int) -> Mapping[str, Sequence[tuple[int, int | None]]]:
        """Return (day, nano-USD per Mtok) of the dearest models."""
        return {each.model: _by_day(each) for each in self.hours[:models]}


def read_figures(store: Store, settings: Settings, period: Period) -> ReportFigures:
    """Read a period. Raises StoreError."""
    teams = {each.name: each.team for each in settings.tenants}
    with store.read() as connection:
        window = Window(connection, period.start, period.end, dated=period.dated)
        prices = price_book(store, connection, window.inventory)
        totals = window.totals(window.pieces(prices.changes()))
        priced = PricedWindow(window, totals, window.recent(), window.details(), prices)
        served = model_hours(window, prices)
        by = {name: spend_of(window, priced.money, served, name, teams) for name in ("model", "tenant", "team")}
        figures = model_figures(priced, window.energy(), partial(objectives, settings=settings))
        daily = charges(priced)
    hours = sorted(
        (ModelHours(model, period.start // HOUR * HOUR, tuple(each)) for model, each in served.items()),
        key=lambda each: (-(each.together.nano_usd or 0), each.model),
    )
    together = [each.together for each in hours]
    known = [each for each in together if each.nano_usd is not None and each.tokens]
    nano = sum((each.nano_usd or 0) - each.uncounted_nano_usd for each in known)
    return ReportFigures(
        period=period,
        source=str(store.location),
        bill=daily.money.bill(),
        charges=daily,
        there=window.inventory,
        hours=tuple(hours),
        models=by["model"],
        tenants=by["tenant"],
        teams=by["team"],
        figures=figures,
        nano_usd_per_mtok=per_mtok(nano, sum(each.tokens or 0 for each in known)),
        tokens=sum(each.tokens or 0 for each in hours),
        savings=read_savings(store, period),
        verdicts=_verdicts(store, period),
    )


def _verdicts(store: Store, period: Period) -> tuple[Verdict, ...]:
    """Return the verdicts on changes of a period, as they stood at its end where that is dated."""
    stored = standing_verdicts(store, period.end if period.dated else None)
    return tuple(each for each in stored if period.start <= each.changed_ts < period.end)


def read_savings(store: Store, period: Period) -> Savings:
    """Read the advice as it stood at the end of a period. Raises StoreError."""
    rows = standing(store, period.end if period.dated else None)
    receipts: tuple[StoredReceipt, ...] = ()
    if store.advice is not None:
        with store.read("advice") as connection:
            receipts = tuple(each for each in read_receipts(connection) if each.created_ts <= period.end)
    return Savings(
        best_of_each_target(rows),
        tuple(each for each in rows if each.state in TAKEN),
        banked(receipts),
        tuple(each for each in rows if each.state in (State.REFUSED, State.BLOCKED, State.FAILED)),
    )


def best_of_each_target(rows: Sequence[Recommendation]) -> tuple[Recommendation, ...]:
    """Return what is open, best first, without what touches a service or host that a better one touches already."""
    touched: set[str] = set()
    kept = []
    for each in sorted((row for row in rows if row.state is State.OPEN), key=_worth):
        here = set(each.best.touches if each.best else ()) or {f"{each.target_kind}:{each.target_key}"}
        if not here & touched:
            touched |= here
            kept.append(each)
    return tuple(kept)


def _worth(each: Recommendation) -> tuple[int, int, int]:
    bankable = each.best.bankable if each.best else None
    capacity = each.best.capacity if each.best else None
    return -(bankable[1] if bankable else 0), -(capacity[1] if capacity else 0), each.recommendation_id


def total(monies: Iterable[Money | None]) -> Money | None:
    """Return the sum of what is known; None where nothing is."""
    known = [each for each in monies if each is not None]
    if not known:
        return None
    low, likely, high = (sum(column) for column in zip(*known, strict=True))
    return low, likely, high


def _by_day(model: ModelHours) -> list[tuple[int, int | None]]:
    days: dict[int, list[int]] = {}
    for n, hour in enumerate(model.hours):
        day = days.setdefault((model.start_ts + n * HOUR) // DAY * DAY, [0, 0])
        if hour is not None and hour.nano_usd is not None and hour.tokens:
            day[0] += hour.nano_usd - hour.uncounted_nano_usd
            day[1] += hour.tokens
    return [(day, per_mtok(nano, tokens)) for day, (nano, tokens) in days.items()]
