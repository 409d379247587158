"""The judge that verifies changes by stored hours, with a receipt each, and the provable saving of open advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from sqlalchemy import Connection

from pertoken.config import Settings
from pertoken.costs.bill import Bill
from pertoken.costs.fleet import objectives
from pertoken.costs.prices.book import PriceBook, PriceSubject
from pertoken.evidence import Comparison
from pertoken.proof.judging import receipts
from pertoken.proof.judging.receipts import Kind, StoredReceipt, regime
from pertoken.proof.receipt import NanoUsd, Receipt, ReceiptChange, ReceiptPrice, ServiceLevel, TrialFigures, receipt
from pertoken.proof.recommendation import PUT_OFF, Edit, Recommendation, State, Variant, short_id
from pertoken.proof.trials.trial import Trial
from pertoken.proof.verdicts import (
    BY_TRIAL,
    LIKE_HOURS,
    Judgement,
    Verdict,
    VerdictResult,
    names,
    promise_of,
    result_of,
)
from pertoken.proof.verification.adapter import acts_through, halves_of, meant, prospect, question
from pertoken.proof.verification.estimate import Interval
from pertoken.proof.verification.question import WEEK_OF_HOURS, Cycle, Question
from pertoken.proof.verification.verify import Detectable, VerifiedEffect, detectable
from pertoken.proof.verification.windows import MAX_BASELINE_DAYS, NotEstimable, washout_s
from pertoken.store.connect.open import Store
from pertoken.units import format_utc
from pertoken.window.epochs import HISTORY_S
from pertoken.window.like_for_like import compare
from pertoken.window.reading import DAY, Window

MIN_MEASURED = 0.9
"""Minimum share of the device time with measured energy."""
P95 = 0.95


def service_level(window: Window, deployment_ids: Sequence[int]) -> ServiceLevel:
    """Return the worst p95 latencies of deployments over a window, whatever epochs they had, and their energy."""
    details = window.details()
    ttft, tpot = (
        max(
            filter(None, (details.latency(deployment_id, metric, P95) for deployment_id in deployment_ids)),
            default=None,
        )
        for metric in ("ttft_s", "tpot_s")
    )
    return ServiceLevel(ttft, tpot, _j_per_token(window, deployment_ids))


def limits(served_model: str, settings: Settings) -> ServiceLevel:
    """Return the objectives for the service of a model, with None where none is set."""
    slo = objectives(served_model, settings)
    ttft, tpot = (None if value is None else value / 1000 for value in (slo.ttft_p95_ms, slo.tpot_p95_ms))
    return ServiceLevel(ttft, tpot)


def _j_per_token(window: Window, deployment_ids: Iterable[int]) -> float | None:
    inventory, energy = window.inventory, window.energy()
    led = [row.epoch_id for deployment_id in deployment_ids for row in inventory.epochs_of.get(deployment_id, ())]
    held = [*led, *(epoch for deployment_id in deployment_ids for epoch in inventory.workers_of.get(deployment_id, ()))]
    measured = [energy[allocation] for allocation in held if allocation in energy]
    if not measured or any(energy.measured_share < MIN_MEASURED for energy in measured):
        return None
    served = {row[0]: row[1] for row in window.tokens()}
    tokens = sum(served.get(epoch_id) or 0 for epoch_id in led)
    return sum(energy.joules for energy in measured) / tokens if tokens else None


FIRST_AFTER_DAYS = 7
"""Days after a change at which it is judged; `benchmarks.proof` measures verdicts of that day. To look again and again
until something shows would prove savings where there are none, so that there is one more look at most."""
LAST_AFTER_DAYS = 28
"""Days after a change at which it is judged again where more hours may decide it. Later hours are not used."""
MORE_HOURS_HELP = frozenset(
    {"wide-interval", "few-hours", "not-measured", "load-differs", "mix-differs", "cache-differs"}
)
"""Codes that a later check may change; all others depend on the hours before the change alone."""
LOOKS_DAYS = (FIRST_AFTER_DAYS, LAST_AFTER_DAYS)
LAST_DAYS = 7
"""Days that a re-check looks at."""
MAX_SIBLINGS = 8
"""Deployments that a change is compared with: more of them add little, and each is read."""
MAX_WINDOWS = 4
"""Windows with their inventory kept in memory."""


class Verifier:
    """Verifies changes of one database within a transaction that reads telemetry.

    Of replicas that changed together, windows are made once.
    """

    def __init__(
        self,
        store: Store,
        connection: Connection,
        stored_verdicts: Iterable[Verdict],
        recommendations: Mapping[int, Recommendation],
        settings: Settings,
        now_ts: int,
        cycle: Cycle = WEEK_OF_HOURS,
        trials: Iterable[Trial] = (),
    ) -> None:
        """`cycle`: length of the buckets that are compared, and of the week that load repeats in."""
        self._store, self._connection = store, connection
        self._settings, self._cycle = settings, cycle
        self._trials = {
            (trial.recommendation_id, trial.canary.deployment_id): trial for trial in trials if trial.result
        }
        self._recommendations, self._now_ts = recommendations, now_ts
        self._windows: dict[tuple[int, int], Window] = {}
        self._halves_of: dict[int, tuple[int, ...]] = {}
        self._next_change: dict[int, int] = {}
        """When the epoch of a verdict ended with another change, by epoch."""
        self._verdicts = tuple(stored_verdicts)
        ordered = sorted(self._verdicts, key=lambda verdict: (verdict.deployment_id, verdict.changed_ts))
        for change, next_change in pairwise(ordered):
            if change.deployment_id == next_change.deployment_id:
                self._next_change[change.epoch_id] = next_change.changed_ts

    def judge(self, verdict: Verdict, now_ts: int) -> tuple[Judgement, StoredReceipt | None]:
        """Return the verdict on a change, with its receipt: a week after it, else four weeks, or at the next change."""
        changed = verdict.changed_ts
        latest_ts = changed + LAST_AFTER_DAYS * self._cycle.day_s
        last_ts = min(latest_ts, self._next_change.get(verdict.epoch_id, latest_ts))
        due_ts = min(verdict.judgement.due_ts or changed + FIRST_AFTER_DAYS * self._cycle.day_s, last_ts)
        if now_ts < due_ts:
            if verdict.judgement.due_ts == due_ts:
                return verdict.judgement, None
            return _later("a week of hours after the change is collected", due_ts), None
        question = self._question(verdict, min(now_ts, latest_ts))
        if isinstance(question, NotEstimable):
            if now_ts < last_ts and question.code in MORE_HOURS_HELP:
                return _later(question.reason, last_ts), None
            return self._by_trial(verdict, Judgement(VerdictResult.INCONCLUSIVE, reason=question.reason)), None
        made = self._receipt(question, verdict, now_ts)
        if now_ts < last_ts and made.finding.code in MORE_HOURS_HELP:
            return _later(made.finding.reason or "not decided", last_ts), None
        judged = self._by_trial(verdict, judgement(question, made.finding))
        stored = self._to_store(question, made, verdict, Kind.VERDICT) if self._has_receipt(verdict) else None
        return judged, stored

    def _by_trial(self, verdict: Verdict, judged: Judgement) -> Judgement:
        """Return the judgement of a trial where the hours of the change decide nothing."""
        tried = self._trial(verdict)
        if judged.result is not VerdictResult.INCONCLUSIVE or tried is None or tried.result is None:
            return judged
        if tried.result.result is VerdictResult.INCONCLUSIVE:
            return judged
        reason = f"by its trial; the hours after the change prove nothing: {judged.reason}"
        return Judgement(tried.result.result, tried.result.effect, reason, BY_TRIAL)

    def again(self, verdict: Verdict, kind: Kind, now_ts: int) -> StoredReceipt | None:
        """Verify the last days of a proven saving against the same baseline; None where they cannot be read."""
        question = self._question(verdict, now_ts)
        if isinstance(question, NotEstimable):
            return None
        question = replace(question, after_from=now_ts - LAST_DAYS * self._cycle.day_s)
        return self._to_store(question, self._receipt(question, verdict, now_ts), verdict, kind)

    def _question(self, verdict: Verdict, until: int) -> Question | NotEstimable:
        changed = verdict.changed_ts
        window_before = self._window(changed - MAX_BASELINE_DAYS * self._cycle.day_s, changed)
        window_after = self._window(changed, until)
        return question(
            window_before,
            window_after,
            verdict.deployment_id,
            changed,
            halves=self._halves(verdict),
            siblings=siblings_of(window_after, verdict.deployment_id),
            promise=promise_of(self._estimate(verdict)),
            price_changes=self._price_changes(window_after, verdict, window_before.start, until),
            through=acts_through(names(verdict.edits)),
            cycle=self._cycle,
            meant=meant(names(verdict.edits)),
            checked=(tried := self._trial(verdict)) is not None and tried.quality_passed,
        )

    def _halves(self, verdict: Verdict) -> tuple[int, ...]:
        """Return the other deployments that share requests with one, before its change or after it."""
        changed, latest_ts = verdict.changed_ts, verdict.changed_ts + LAST_AFTER_DAYS * self._cycle.day_s
        if verdict.epoch_id not in self._halves_of:
            window_before = self._window(changed - MAX_BASELINE_DAYS * self._cycle.day_s, changed)
            window_after = self._window(changed, min(self._now_ts, latest_ts))
            self._halves_of[verdict.epoch_id] = halves_of((window_before, window_after), verdict.deployment_id)
        return self._halves_of[verdict.epoch_id]

    def _has_receipt(self, verdict: Verdict) -> bool:
        """Return whether a verdict stands for a change: of servers that share requests the first one does."""
        halves, apart_s = self._halves(verdict), washout_s(self._cycle)
        return not any(
            half.deployment_id in halves
            and half.deployment_id < verdict.deployment_id
            and abs(half.changed_ts - verdict.changed_ts) <= apart_s
            for half in self._verdicts
        )

    def _window(self, start: int, end: int) -> Window:
        if (start, end) not in self._windows:
            if len(self._windows) >= MAX_WINDOWS:
                self._windows.clear()
            self._windows[start, end] = Window(self._connection, start, end)
        return self._windows[start, end]

    def _receipt(self, question: Question, verdict: Verdict, now_ts: int) -> Receipt:
        after = self._window(verdict.changed_ts, question.until)
        service = self._service(verdict, question)
        objectives = limits(after.inventory.newest[verdict.deployment_id].served_model, self._settings)
        change, price = self._change(verdict, after), self._price(after, verdict)
        tried = trial_figures(self._trial(verdict))
        return receipt(question, change, now_ts, price, service, objectives, trial=tried)

    def _service(self, verdict: Verdict, question: Question) -> tuple[ServiceLevel, ServiceLevel]:
        """Return the service levels of the last days before the change, and of as many of those asked about."""
        days_s, changed = LAST_DAYS * self._cycle.day_s, verdict.changed_ts
        start = max(changed, question.after_from or 0, question.until - days_s)
        windows = self._window(changed - days_s, changed), self._window(start, question.until)
        served_by = [verdict.deployment_id, *self._halves(verdict)]
        level_before, level_after = (service_level(window, served_by) for window in windows)
        return level_before, level_after

    def _trial(self, verdict: Verdict) -> Trial | None:
        return self._trials.get((verdict.recommendation_id or 0, verdict.deployment_id))

    def _to_store(self, question: Question, made: Receipt, verdict: Verdict, kind: Kind) -> StoredReceipt:
        return receipts.to_stored(
            question,
            made,
            kind,
            deployment_id=verdict.deployment_id,
            epoch_id=verdict.epoch_id,
            recommendation_id=verdict.recommendation_id,
        )

    def _estimate(self, verdict: Verdict) -> Variant | None:
        row = self._recommendations.get(verdict.recommendation_id or 0)
        return None if row is None else row.estimate

    def _change(self, verdict: Verdict, after: Window) -> ReceiptChange:
        row, estimate = self._recommendations.get(verdict.recommendation_id or 0), self._estimate(verdict)
        halves = self._halves(verdict)
        return ReceiptChange(
            title=estimate.title if estimate is not None else edits_text(verdict.edits),
            target=verdict.name if not halves else f"{verdict.name}, with {len(halves)} that share its requests",
            before=ran_before(verdict),
            rule=None if row is None else row.rule_id,
            regime=regime(after.inventory, verdict.deployment_id),
            recommendation=None if row is None else short_id(row),
            correction=1.0 if estimate is None or estimate.record is None else estimate.record.ratio,
            estimated_per_month=None if estimate is None or not estimate.net else NanoUsd(*estimate.net),
            moving=() if estimate is None else estimate.moving,
        )

    def _payers(self, window: Window, verdict: Verdict) -> Sequence[PriceSubject]:
        """Return the priced devices of a deployment's newest epoch: whole devices in place of partitions.

        Devices of the servers that share its requests are among them.
        """
        inventory = window.inventory
        served_by = verdict.deployment_id, *self._halves(verdict)
        newest = [epochs[-1].epoch_id for key in served_by if (epochs := inventory.epochs_of.get(key))]
        ids = [device_id for epoch_id in newest for device_id in inventory.epoch_devices.get(epoch_id, ())]
        rows = [inventory.devices[device_id] for device_id in ids if device_id in inventory.devices]
        devices = [inventory.devices.get(row.parent_id, row) if row.parent_id is not None else row for row in rows]
        return [PriceSubject(row.kind, row.name, row.uuid) for row in devices]

    @cached_property
    def _book(self) -> PriceBook:
        window = Window(self._connection, self._now_ts - HISTORY_S, self._now_ts)
        return Bill(self._store, self._connection, window).prices

    def _price(self, window: Window, verdict: Verdict) -> ReceiptPrice | None:
        """Return the mean price of a deployment's devices at the change; None where one of them has none."""
        prices = self._book.each_at(self._payers(window, verdict), verdict.changed_ts)
        rates = [price.nano_usd_per_device_hour for price in prices if price is not None]
        known_rates = [nano_usd for nano_usd in rates if nano_usd is not None]
        if not prices or len(known_rates) < len(prices):
            return None
        sources = dict.fromkeys(price.note or f"set for {price.selector}" for price in prices if price is not None)
        return ReceiptPrice(round(sum(known_rates) / len(known_rates)), ", ".join(sources))

    def _price_changes(self, window: Window, verdict: Verdict, start: int, end: int) -> tuple[int, ...]:
        """Return when the price of one of a deployment's devices changed."""
        payers = self._payers(window, verdict)
        book = self._book
        return tuple(
            ts for ts in book.changes() if start <= ts < end and book.rates(payers, ts - 1) != book.rates(payers, ts)
        )


def _later(why: str, due_ts: int) -> Judgement:
    return Judgement(VerdictResult.PENDING, reason=f"{why}; judged from {format_utc(due_ts)} on", due_ts=due_ts)


def trial_figures(trial: Trial | None) -> TrialFigures | None:
    """Return a trial's figures for a receipt; None without a trial that had a result."""
    result = None if trial is None else trial.result
    if trial is None or result is None or result.effect is None:
        return None
    low, likely, high = result.effect
    return TrialFigures(trial.design.value, result.minutes, Interval(-high, -likely, -low))


def judgement(question: Question, finding: VerifiedEffect) -> Judgement:
    """Return the judgement on a finding. If the history is too short, its effect comes from like hours."""
    result = result_of(finding.verdict)
    if finding.saving_90 is not None:
        saving = finding.saving_90
        return Judgement(result, (-saving.high, -saving.likely, -saving.low), finding.reason)
    compared = _like_hours(question)
    if compared.ratio is None:
        return Judgement(result, reason=finding.reason)
    low, likely, high = (value - 1 for value in compared.ratio)
    reason = f"not proven: {finding.reason}; the figures are of like hours of both epochs alone"
    return Judgement(result, (low, likely, high), reason, LIKE_HOURS)


def _like_hours(question: Question) -> Comparison:
    """Return the hours between the change and its neighbours, compared without a baseline."""
    hours, events = question.deployment, [event.ts for event in question.events if event.kind.splits]
    first = max((ts for ts in events if ts <= question.changed_at), default=0)
    last = min((ts for ts in events if ts > question.changed_at), default=question.until)
    hours_before = (hours.ts >= first) & (hours.ts < question.changed_at)
    hours_after = (hours.ts >= question.changed_at) & (hours.ts < last)
    return compare(hours.where(hours_before), hours.where(hours_after))


def siblings_of(window: Window, deployment_id: int) -> tuple[int, ...]:
    """Return other deployments of the same model."""
    newest = window.inventory.newest
    own_epoch = newest.get(deployment_id)
    if own_epoch is None:
        return ()
    alike = (key for key, row in newest.items() if key != deployment_id and row.served_model == own_epoch.served_model)
    return tuple(sorted(alike))[:MAX_SIBLINGS]


def edits_text(edits: Iterable[Edit]) -> str:
    """Return the changed fields as text: `tp 1 → 2`."""
    return ", ".join(f"{edit.field} {_value(edit.before)} → {_value(edit.after)}" for edit in edits) or "configuration"


def ran_before(verdict: Verdict) -> str:
    """Return the previous values of the changed fields: `engine 0.31.0, tp 1`."""
    values = [f"{edit.field} {_value(edit.before)}" for edit in verdict.edits if edit.field != "engine_version"]
    return ", ".join([f"engine {verdict.version_before or 'of an unknown version'}", *values])


def _value(value: object) -> str:
    return "not known" if value is None else str(value)


MAX_DEPLOYMENTS = 4
"""Maximum number of deployments of a recommendation that are examined."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """Smallest saving of a change made now that the history of one deployment could prove."""

    name: str
    """Deployment and host as people call them."""
    detectable: Detectable
    promised: float | None
    """Likely saving as a fraction of the device-seconds per token; None where none is promised."""

    def values(self) -> dict[str, object]:
        """Return it as JSON values."""
        smallest = {f"smallest_after_{days}_days": self.detectable.after(days) for days in LOOKS_DAYS}
        return {
            "deployment": self.name,
            **smallest,
            "promised": self.promised,
            "days_to_proof": self.detectable.days_to_proof,
            "code": self.detectable.code,
            "reason": self.detectable.reason,
        }


def prospects(store: Store, row: Recommendation, now_ts: int) -> tuple[Prospect, ...]:
    """Return the provable saving of an open recommendation at each deployment it changes.

    Raises StoreError.
    """
    variant = row.chosen
    if variant is None or row.state not in (State.OPEN, *PUT_OFF):
        return ()
    targets = dict.fromkeys(int(edit.target) for edit in variant.edits if edit.kind == "deployment")
    ids = [*targets] or [deployment_id for deployment_id in (row.deployment_id,) if deployment_id is not None]
    promise, through = promise_of(variant), acts_through(names(variant.edits))
    rows = []
    with store.read() as connection:
        window = Window(connection, now_ts - MAX_BASELINE_DAYS * DAY, now_ts)
        newest = window.inventory.newest
        for deployment_id in [deployment_id for deployment_id in ids if deployment_id in newest][:MAX_DEPLOYMENTS]:
            others = siblings_of(window, deployment_id)
            question = prospect(window, deployment_id, siblings=others, promise=promise, through=through)
            result = (
                Detectable(code=question.code, reason=question.reason)
                if isinstance(question, NotEstimable)
                else detectable(question)
            )
            name = f"{newest[deployment_id].served_model} on {newest[deployment_id].host_name}"
            rows.append(Prospect(name, result, None if promise is None else promise.likely))
    return tuple(rows)
