"""Judging: verdicts on due changes and releases, the moves that follow, re-checks, and advice to go back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import Connection

from pertoken.catalog.knobs import flag_commands
from pertoken.config import Settings
from pertoken.costs.bill import Bill
from pertoken.costs.fleet import service_name
from pertoken.proof import verdicts
from pertoken.proof.judging import receipts
from pertoken.proof.judging.receipts import Kind, StoredReceipt, read_receipts
from pertoken.proof.judging.verifier import Verifier, limits, service_level
from pertoken.proof.receipt import NOT_MEASURED, NanoUsd, Receipt, ReceiptChange, ServiceLevel, kept, receipt
from pertoken.proof.recommendation import (
    GO_BACK,
    ChangeLine,
    Edit,
    Moved,
    Recommendation,
    State,
    Variant,
    identity,
    moved,
    short_id,
)
from pertoken.proof.stored import stored, write
from pertoken.proof.trials.trial import Trial, read_trials
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.question import WEEK_OF_HOURS, Cycle
from pertoken.proof.verification.verify import RECHECK_DAYS, Release, ReleaseQuestion, ServiceTokens, recheck
from pertoken.proof.verification.windows import MAX_BASELINE_DAYS
from pertoken.state.deployment import knobs
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.shared import stable_id
from pertoken.store.schema.telemetry import MINUTE
from pertoken.units import format_utc
from pertoken.window.inventory import STOPPED_S, Inventory, KnownEpoch
from pertoken.window.reading import Window

AFTER_DAYS = 7
"""Days after a release at which it is judged."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Hosts, devices and models that a recommendation releases."""

    devices: frozenset[int]
    hosts: frozenset[int]
    """Hosts that go with all of their devices."""
    extra: int
    """Devices of replicas that were promised to go without being named."""
    models: frozenset[str]
    """Models that they served."""


def releases(variant: Variant) -> bool:
    """Return whether a variant gives devices back."""
    fewer = variant.replicas is not None and variant.replicas[1] < variant.replicas[0]
    return bool(variant.released) or fewer or any(_stops(variant))


def due_releases(connection: Connection, rows: Iterable[Recommendation], now_ts: int, day_s: int) -> dict[int, int]:
    """Return the recommendations with a release to judge now, and when they were applied."""
    released = {}
    for row in rows:
        if row.state in (State.APPLIED, State.VERIFYING) and row.estimate is not None and releases(row.estimate):
            since = last_applied(connection, row.recommendation_id)
            if since is not None and now_ts >= since + AFTER_DAYS * day_s:
                released[row.recommendation_id] = since
    return released


def last_applied(connection: Connection, recommendation_id: int) -> int | None:
    """Return when a recommendation was last applied, epoch seconds; None: never."""
    moves = repository.transitions(connection, recommendation_id)
    applied = [int(move.ts) for move in moves if move.to_state == State.APPLIED.value]
    return applied[-1] if applied else None


class Releases:
    """Judges releases within a transaction that reads telemetry."""

    def __init__(
        self, store: Store, connection: Connection, settings: Settings, now_ts: int, cycle: Cycle = WEEK_OF_HOURS
    ) -> None:
        self._store, self._connection, self._settings = store, connection, settings
        self._now_ts, self._cycle = now_ts, cycle

    def receipt(self, row: Recommendation, applied_ts: int, kind: Kind = Kind.VERDICT) -> tuple[Receipt, StoredReceipt]:
        """Return the receipt of a release by the present telemetry, and its stored form."""
        minute = applied_ts // MINUTE * MINUTE
        window_before = Window(self._connection, minute - MAX_BASELINE_DAYS * self._cycle.day_s, minute, dated=True)
        window_after = Window(self._connection, applied_ts, self._now_ts)
        assert row.estimate is not None
        gone = promised(row, row.estimate, window_before.inventory, applied_ts, self._settings)
        with_host, unheld = released(
            gone, window_before.inventory, window_after.inventory, applied_ts + self._cycle.day_s
        )
        levels = self._levels(gone.models, applied_ts)
        agreed = _strictest([limits(model, self._settings) for model in sorted(gone.models)])
        n_released = len(with_host) + len(unheld)
        more = _unheld(gone.models, window_before.inventory, window_after.inventory) - n_released if gone.extra else 0
        n_released += min(gone.extra, max(0, more))
        question = ReleaseQuestion(
            Release(len(gone.devices) + gone.extra, n_released, kept(levels[1], agreed)),
            self._served(gone.models, window_before, window_after) if gone.models else None,
            applied_ts,
            self._now_ts,
            self._nano_usd_per_hour(with_host, window_before, minute) if with_host else None,
            self._cycle,
        )
        estimated = row.estimate.net
        change = ReceiptChange(
            title=row.estimate.title,
            target=row.target,
            before=_more(len(gone.devices) + gone.extra),
            rule=row.rule_id,
            recommendation=short_id(row),
            estimated_per_month=NanoUsd(*estimated) if estimated else None,
            moving=row.estimate.moving,
        )
        made = receipt(question, change, self._now_ts, None, levels, agreed)
        stored = receipts.to_stored(
            question, made, kind, deployment_id=None, epoch_id=None, recommendation_id=row.recommendation_id
        )
        return made, stored

    def _levels(self, models: frozenset[str], applied_ts: int) -> tuple[ServiceLevel, ServiceLevel]:
        days_s = AFTER_DAYS * self._cycle.day_s
        levels = []
        for start, end in ((applied_ts - days_s, applied_ts), (self._now_ts - days_s, self._now_ts)):
            window = Window(self._connection, max(start, 0), end)
            ids = _serving(models, window.inventory)
            levels.append(service_level(window, ids) if ids else NOT_MEASURED)
        return levels[0], levels[1]

    def _served(self, models: frozenset[str], window_before: Window, window_after: Window) -> ServiceTokens:
        """Return the tokens of all deployments of some models, hour by hour."""
        tokens: dict[int, int] = {}
        for window in (window_before, window_after):
            for deployment_id in _serving(models, window.inventory):
                for ts, count in zip(*window.hourly_tokens(deployment_id, self._cycle.bucket_s), strict=True):
                    tokens[int(ts)] = tokens.get(int(ts), 0) + int(count)
        ordered = sorted(tokens)
        rates = [tokens[ts] / self._cycle.bucket_s for ts in ordered]
        return ServiceTokens(np.array(ordered, np.int64), np.array(rates, np.float64))

    def _nano_usd_per_hour(self, devices: Iterable[int], window: Window, applied_ts: int) -> int | None:
        prices = Bill(self._store, self._connection, window).prices
        rates = prices.rates((window.inventory.devices[device_id] for device_id in sorted(devices)), applied_ts - 1)
        known_rates = [nano_usd for nano_usd in rates if nano_usd is not None]
        return sum(known_rates) if len(known_rates) == len(rates) else None


def promised(row: Recommendation, variant: Variant, inventory: Inventory, applied_ts: int, settings: Settings) -> Gone:
    """Return the release that a variant promised, by the fleet before it was applied."""
    hosts = {host.host_id for host in inventory.hosts if host.name in variant.released}
    hosts |= {int(edit.target) for edit in variant.edits if edit.kind == "host" and edit.field == "running"}
    stopped = {int(target) for target in _stops(variant)}
    epochs = [
        served
        for served in inventory.served
        if served.start_ts < applied_ts and (served.end_ts is None or served.end_ts >= applied_ts - STOPPED_S)
    ]
    devices = {key for key, device in inventory.devices.items() if device.host_id in hosts and device.parent_id is None}
    models = set()
    for epoch in epochs:
        held = set(inventory.epoch_devices.get(epoch.epoch_id, ()))
        if epoch.deployment_id in stopped:
            devices |= held
        if epoch.deployment_id in stopped or held & devices:
            models.add(epoch.served_model)
    target_epochs = [
        epoch
        for epoch in epochs
        if row.target_kind == "service" and service_name(epoch.served_model, settings) == row.target_key
    ]
    models |= {epoch.served_model for epoch in target_epochs}
    extra = 0
    if variant.replicas is not None and target_epochs:
        fewer = variant.replicas[0] - variant.replicas[1]
        extra = max(0, fewer * len(inventory.epoch_devices.get(target_epochs[0].epoch_id, ())) - len(devices))
    return Gone(frozenset(devices & set(inventory.devices)), frozenset(hosts), extra, frozenset(models))


def released(gone: Gone, old: Inventory, new: Inventory, silent_ts: int) -> tuple[frozenset[int], frozenset[int]]:
    """Return the devices that were released with their host, and those that no epoch holds any more.

    A host is gone if it has reported nothing since `silent_ts`: one that reports is paid for, whatever runs on it.
    """
    newest = {row.host_id: row.newest_ts for row in new.hosts}
    held = {device_id for row in new.running.values() for device_id in new.epoch_devices.get(row.epoch_id, ())}
    host_of = {device: old.devices[device].host_id for device in gone.devices}
    with_host = frozenset(device_id for device_id, host in host_of.items() if (newest.get(host) or 0) < silent_ts)
    unheld = {device_id for device_id, host in host_of.items() if device_id not in held and host not in gone.hosts}
    return with_host, frozenset(unheld) - with_host


def _stops(variant: Variant) -> Iterator[int | str]:
    for edit in variant.edits:
        if edit.kind == "deployment" and edit.field == "running" and edit.after is False:
            yield edit.target


def _unheld(models: frozenset[str], old: Inventory, new: Inventory) -> int:
    """Return how many devices fewer hold the models of a release."""
    held_before, held_after = (
        {
            device_id
            for row in inventory.running.values()
            if row.served_model in models
            for device_id in inventory.epoch_devices.get(row.epoch_id, ())
        }
        for inventory in (old, new)
    )
    return max(0, len(held_before) - len(held_after))


def _serving(models: frozenset[str], inventory: Inventory) -> tuple[int, ...]:
    return tuple(sorted(key for key, row in inventory.newest.items() if row.served_model in models))


def _strictest(agreed: list[ServiceLevel]) -> ServiceLevel:
    ttft_s = (level.ttft_p95_s for level in agreed if level.ttft_p95_s is not None)
    tpot_s = (level.tpot_p95_s for level in agreed if level.tpot_p95_s is not None)
    return ServiceLevel(min(ttft_s, default=None), min(tpot_s, default=None))


def _more(devices: int) -> str:
    return "1 more device" if devices == 1 else f"{devices} more devices"


def sentence(made: Receipt, applied_ts: int) -> str:
    """Return why a release got its verdict."""
    assert made.release is not None
    release = made.release
    figures = (
        f"{release.released_devices} of {release.promised_devices} devices released since {format_utc(applied_ts)}"
    )
    return figures if made.finding.reason is None else f"{figures}: {made.finding.reason}"


KINDS = dict(zip(RECHECK_DAYS, (Kind.AFTER_7_DAYS, Kind.AFTER_30_DAYS), strict=True))
MAX_LATE_DAYS = 14
"""Days after a re-check is due during which it is made: later its hours may not be stored any more."""
WHO = "verification"
"""Who makes the moves of proof."""
_PROVEN = (State.REALIZED, State.PARTIAL)


@dataclass(frozen=True, slots=True)
class Due:
    """One re-check that is due."""

    row: Recommendation
    days: int
    """Since the verdict."""
    judged_ts: int
    verdict: Verdict | None
    """The verdict on the change; None: devices were released."""
    applied_ts: int | None = None
    """When the devices were released."""


def due_rechecks(
    connection: Connection, stored_verdicts: Iterable[Verdict], rows: Iterable[Recommendation], now_ts: int, day_s: int
) -> tuple[Due, ...]:
    """Return the re-checks of proven savings that are due and have no receipt yet."""
    proven = {row.recommendation_id: row for row in rows if row.state in _PROVEN}
    if not proven:
        return ()
    made = repository.receipt_kinds(connection)
    of_changes = {(receipt.deployment_id, receipt.epoch_id, receipt.kind) for receipt in made}
    of_releases = {(receipt.recommendation_id, receipt.kind) for receipt in made}
    judged_ts = {receipt.recommendation_id: receipt.created_ts for receipt in made if receipt.kind == Kind.VERDICT}
    due = []
    for verdict in stored_verdicts:
        row = proven.get(verdict.recommendation_id or 0)
        if row is None or verdict.judgement.result is not VerdictResult.CHEAPER or verdict.judged_ts is None:
            continue
        for days in _days_due(verdict.judged_ts, now_ts, day_s):
            if (verdict.deployment_id, verdict.epoch_id, KINDS[days]) not in of_changes:
                due.append(Due(row, days, verdict.judged_ts, verdict))
    for key, row in proven.items():
        if key not in judged_ts or row.estimate is None or not releases(row.estimate):
            continue
        for days in _days_due(judged_ts[key], now_ts, day_s):
            since = None if (key, KINDS[days]) in of_releases else last_applied(connection, key)
            if since is not None:
                due.append(Due(row, days, judged_ts[key], None, since))
    return tuple(due)


def _days_due(judged_ts: int, now_ts: int, day_s: int) -> Iterator[int]:
    for days in RECHECK_DAYS:
        if 0 <= now_ts - judged_ts - days * day_s < MAX_LATE_DAYS * day_s:
            yield days


def recheck_all(
    target: AdviceRepository,
    verifier: Verifier,
    released: Releases,
    due: Iterable[Due],
    rows: Mapping[int, Recommendation],
    now_ts: int,
) -> None:
    """Check proven savings again, store the receipts, and move decayed recommendations."""
    made: list[StoredReceipt] = []
    moves: dict[int, Moved] = {}
    for due_recheck in due:
        row, verdict = due_recheck.row, due_recheck.verdict
        with target.writing() as connection:
            of_change = read_receipts(connection, row.recommendation_id)
        epoch_id = None if verdict is None else verdict.epoch_id
        first = next((old for old in of_change if old.kind is Kind.VERDICT and old.epoch_id == epoch_id), None)
        again = None if first is None else _again(due_recheck, first.read(), verifier, released, now_ts)
        if first is None or again is None:
            continue
        made.append(again)
        lost = _lost(first.read(), again.read())
        if lost is not None:
            since = f"{due_recheck.days} days after the verdict of {format_utc(due_recheck.judged_ts)}"
            why = f"{since} the saving is gone or smaller: {lost}"
            name = "" if verdict is None else f" ({verdict.name})"
            moves[row.recommendation_id] = moved(row, "decayed", f"{why}{name}", now_ts, reason=why)
    if made:
        with target.writing() as connection:
            receipts.add(connection, made)
            write(connection, moves.values(), rows, WHO)


def _again(
    due_recheck: Due, first: Receipt, verifier: Verifier, released: Releases, now_ts: int
) -> StoredReceipt | None:
    """Return the receipt of a re-check; None where the hours that it needs are not stored any more."""
    if due_recheck.verdict is not None:
        return verifier.again(due_recheck.verdict, KINDS[due_recheck.days], now_ts)
    assert due_recheck.applied_ts is not None
    made, stored = released.receipt(due_recheck.row, due_recheck.applied_ts, KINDS[due_recheck.days])
    assert first.release is not None and made.release is not None
    return stored if made.release.promised_devices == first.release.promised_devices else None


def _lost(first: Receipt, later: Receipt) -> str | None:
    """Return the present state of a decayed saving; None if it did not decay."""
    if first.release is not None and later.release is not None:
        if later.finding.verdict is EffectVerdict.REGRESSED:
            return str(later.finding.reason)
        n_first, n_later = first.release.released_devices, later.release.released_devices
        return f"{n_later} of {n_first} released devices are still released" if n_later < n_first else None
    if recheck(first.finding, later.finding) is not EffectVerdict.DECAYED:
        return None
    saving = later.finding.saving_90
    return (
        "its interval is not known"
        if saving is None
        else f"{saving.likely:.1%} ({saving.low:.1%} to {saving.high:.1%}) is saved"
    )


Judge = Callable[[Verdict, int], tuple[Judgement, StoredReceipt | None]]
"""Judges a verdict as of a time (epoch seconds); with a receipt where the change was verified."""
_UNDER_WAY = (State.APPLIED, State.VERIFYING)


@dataclass(frozen=True, slots=True)
class AdviceHistory:
    """Advice as it is stored, with the changes and trials that followed it."""

    rows: Mapping[int, Recommendation]
    """Every recommendation by id, earlier lives included."""
    verdicts: tuple[Verdict, ...]
    """Verdicts on changes, recommended or not; oldest change first."""
    trials: tuple[Trial, ...]


def read_history(connection: Connection) -> AdviceHistory:
    """Return stored advice with its verdicts and trials."""
    rows = {recommendation.recommendation_id: recommendation for recommendation in stored(connection)}
    return AdviceHistory(rows, verdicts.read_verdicts(connection), read_trials(connection))


def judge_changes(
    store: Store,
    history: AdviceHistory,
    target: AdviceRepository,
    settings: Settings,
    now_ts: int,
    cycle: Cycle = WEEK_OF_HOURS,
) -> int:
    """Judge due changes, and check proven savings again. Return how many verdicts were decided.

    More is read only where there is something to judge, and of the deployments concerned. Raises AdviceChanged if
    somebody else changed advice since `history` was read, StoreError if a database cannot be read or written.
    """
    rows = history.rows
    pending = any(verdict.judgement.result is VerdictResult.PENDING for verdict in history.verdicts)
    if not pending and not any(row.state in (*_UNDER_WAY, *_PROVEN) for row in rows.values()):
        return 0
    with store.read("advice") as connection:
        given_back = due_releases(connection, rows.values(), now_ts, cycle.day_s)
        due = due_rechecks(connection, history.verdicts, rows.values(), now_ts, cycle.day_s)
    if not due and not given_back and not pending:
        return 0
    with store.read() as connection:
        verifier = Verifier(store, connection, history.verdicts, rows, settings, now_ts, cycle, history.trials)
        decided = judge_pending(target, verifier.judge, now_ts)
        judged = Releases(store, connection, settings, now_ts, cycle)
        decided += _judge_releases(target, judged, given_back, now_ts)
        recheck_all(target, verifier, judged, due, rows, now_ts)
    return decided


def judge_pending(target: AdviceRepository, judge: Judge, now_ts: int) -> int:
    """Judge every verdict that is pending, and move the recommendations they belong to. Return how many were decided.

    Raises AdviceChanged if somebody else changed one meanwhile, StoreError if the database cannot be written.
    """
    with target.writing() as connection:
        stored_verdicts = verdicts.read_verdicts(connection)
        rows = {recommendation.recommendation_id: recommendation for recommendation in stored(connection)}
    after: list[Verdict] = []
    changed: list[Verdict] = []
    made: list[StoredReceipt] = []
    for known_verdict in stored_verdicts:
        new = known_verdict
        if known_verdict.judgement.result is VerdictResult.PENDING:
            judgement, receipt = judge(known_verdict, now_ts)
            new = verdicts.with_judgement(known_verdict, judgement, now_ts)
            made += [receipt] if receipt is not None else []
        after.append(new)
        changed += [new] if new != known_verdict else []
    with target.writing() as connection:
        verdicts.write(connection, changed)
        receipts.add(connection, made)
        write(connection, _judged(after, rows.values(), now_ts), rows, WHO)
    return sum(verdict.judged_ts is not None for verdict in changed)


def _judged(stored_verdicts: Iterable[Verdict], rows: Iterable[Recommendation], now_ts: int) -> Iterator[Moved]:
    verdicts_by_recommendation: dict[int, list[Verdict]] = {}
    for verdict in stored_verdicts:
        if verdict.recommendation_id is not None:
            verdicts_by_recommendation.setdefault(verdict.recommendation_id, []).append(verdict)
    for row in rows:
        mine = verdicts_by_recommendation.get(row.recommendation_id, ())
        if not mine or row.state not in _UNDER_WAY:
            continue
        if row.estimate is not None and releases(row.estimate):
            continue  # its dollars are those of the devices, not of the tokens on the others
        if row.state is State.APPLIED:
            begun = moved(row, "verifying", "hours after the change are collected", now_ts)
            yield begun
            row = begun.recommendation
        code = verdicts.move_code(row.estimate, (verdict.judgement for verdict in mine))
        if code is not None:
            why = "; ".join(_sentence(verdict) for verdict in mine)
            yield moved(row, code, why, now_ts, reason=why)


def _judge_releases(target: AdviceRepository, judged: Releases, given_back: Mapping[int, int], now_ts: int) -> int:
    """Judge releases, store their receipts and move their recommendations. Return how many were judged."""
    if not given_back:
        return 0
    with target.writing() as connection:
        rows = {recommendation.recommendation_id: recommendation for recommendation in stored(connection)}
    moves: list[Moved] = []
    made: list[StoredReceipt] = []
    for key, applied_ts in given_back.items():
        row = rows[key]
        receipt, to_store = judged.receipt(row, applied_ts)
        made.append(to_store)
        if row.state is State.APPLIED:
            moves.append(moved(row, "verifying", "hours after the release were collected", now_ts))
            row = moves[-1].recommendation
        why = sentence(receipt, applied_ts)
        code = receipt.finding.verdict.value.replace("_", "-").lower()
        moves.append(moved(row, code, why, now_ts, reason=why))
    with target.writing() as connection:
        receipts.add(connection, made)
        write(connection, moves, rows, WHO)
    return len(made)


def _sentence(verdict: Verdict) -> str:
    effect, reason = verdict.judgement.effect, verdict.judgement.reason
    figures = None if effect is None else f"{effect[1]:+.1%} ({effect[0]:+.1%} to {effect[2]:+.1%}) per token"
    return f"{', '.join(filter(None, (figures, reason)))} ({verdict.name})"


def go_back(
    verdicts: Iterable[Verdict],
    receipts: Iterable[StoredReceipt],
    rows: Mapping[int, Recommendation],
    inventory: Inventory,
    now_ts: int,
) -> tuple[Recommendation, ...]:
    """Return a recommendation for each deployment that runs a change for the worse. `rows`: by id."""
    made = {
        (receipt.deployment_id, receipt.epoch_id): receipt.read()
        for receipt in receipts
        if receipt.kind is Kind.VERDICT
    }
    proposals = []
    for verdict in verdicts:
        row = inventory.running.get(verdict.deployment_id)
        if row is None or row.epoch_id != verdict.epoch_id or not verdict.edits:
            continue
        reasons = list(_reasons(verdict, made.get((verdict.deployment_id, verdict.epoch_id))))
        if reasons:
            proposals.append(_recommendation(verdict, rows.get(verdict.recommendation_id or 0), row, reasons, now_ts))
    return tuple(proposals)


def _reasons(verdict: Verdict, receipt: Receipt | None) -> Iterator[str]:
    since = f"since {format_utc(verdict.changed_ts)}"
    if verdict.judgement.result is VerdictResult.DEARER and verdict.judgement.effect is not None:
        low, likely, high = verdict.judgement.effect
        yield f"{since} a token takes {likely:+.1%} ({low:+.1%} to {high:+.1%}) device time at like load"
    if receipt is not None and (guard := receipt.finding.guard) is not None and guard.changed:
        yield f"{since} {guard.sentence}: check their quality before you keep it"
    if receipt is not None and receipt.objective_missed_since:
        yield f"{since} an objective is missed that was kept before"


def _recommendation(
    verdict: Verdict, applied: Recommendation | None, row: KnownEpoch, reasons: list[str], now_ts: int
) -> Recommendation:
    back = tuple(replace(edit, before=edit.after, after=edit.before) for edit in verdict.edits)
    undo = applied.estimate.undo if applied is not None and applied.estimate is not None else ()
    commands = undo or tuple(_commands(verdict, row))
    effect = verdict.judgement.effect if verdict.judgement.result is VerdictResult.DEARER else None
    title = "go back: " + ", ".join(f"{edit.field} {_text(edit.before)} → {_text(edit.after)}" for edit in back)
    variant = Variant(
        key=f"{stable_id('go back', verdict.deployment_id, verdict.epoch_id) % 2**64:016x}",
        title=title,
        changes=tuple(ChangeLine(verdict.name, edit.field, _text(edit.before), _text(edit.after)) for edit in back),
        edits=back,
        commands=commands,
        undo=("apply the change again, as it runs now",),
        throughput_ratio=None if effect is None else (1 + effect[0], 1 + effect[1], 1 + effect[2]),
        risk="availability",
        effort="medium",
        touches=(f"deployment:{verdict.deployment_id}",),
        provenance="measured",
        unpriced="it restores what ran before; its worth is the regression that was measured",
        assumptions=("load and mix of the weeks to come are those of the weeks compared",),
    )
    key = str(verdict.deployment_id)
    return Recommendation(
        recommendation_id=identity(GO_BACK, "deployment", key),
        rule_id=GO_BACK,
        state=State.OPEN,
        title=title,
        target=verdict.name,
        target_kind="deployment",
        target_key=key,
        deployment_id=verdict.deployment_id,
        reason="; ".join(reasons),
        variants=(variant,),
        created_ts=now_ts,
        updated_ts=now_ts,
    )


def _commands(verdict: Verdict, row: KnownEpoch) -> Iterator[str]:
    """Yield how to set each field back, by the flags of the engine where they are known."""
    present = json.loads(row.knobs)
    for edit in verdict.edits:
        if edit.field == "engine_version":
            version = verdict.version_before or "the version that ran before"
            yield f"install {row.engine_kind} {version} again and restart"
        elif edit.field in knobs() and knobs()[edit.field].scope == "engine":
            staying = {name: value for name, value in present.items() if name in knobs() and name != edit.field}
            written = flag_commands(row.engine_kind, {edit.field: (edit.after, edit.before)}, staying)
            yield from (*written.apply, *written.manual)
        else:
            yield f"set {_label(edit)} back to {_text(edit.before)}"


def _label(edit: Edit) -> str:
    return knobs()[edit.field].label if edit.field in knobs() else edit.field.replace("_", " ")


def _text(value: object) -> str:
    return "not set" if value is None else str(value)
