"""Re-checks of proven savings: a receipt 7 and 30 days after the verdict, and a move where the saving has decayed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from pertoken.proof.judging import receipts
from pertoken.proof.judging.receipts import Kind, StoredReceipt, read_receipts
from pertoken.proof.judging.releases import Releases, last_applied, releases
from pertoken.proof.judging.verifier import Verifier
from pertoken.proof.lifecycle import Moved, moved
from pertoken.proof.receipts.receipt import Receipt
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import write
from pertoken.proof.verdicts import Result, Verdict
from pertoken.proof.verification.recheck import RECHECK_DAYS, recheck
from pertoken.proof.verification.verdict import Verdict as Proven
from pertoken.store import repository
from pertoken.store.repository import AdviceRepository
from pertoken.units import format_utc

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


def due(
    connection: Connection, known: Iterable[Verdict], rows: Iterable[Recommendation], now_ts: int, day_s: int
) -> tuple[Due, ...]:
    """Return the re-checks of proven savings that are due and have no receipt yet."""
    proven = {row.recommendation_id: row for row in rows if row.state in _PROVEN}
    if not proven:
        return ()
    stored = repository.receipt_kinds(connection)
    return (
        *_changes_due(stored, known, proven, now_ts, day_s),
        *_releases_due(connection, stored, proven, now_ts, day_s),
    )


def _changes_due(
    stored: Sequence[Any], known: Iterable[Verdict], proven: Mapping[int, Recommendation], now_ts: int, day_s: int
) -> Iterator[Due]:
    standing = {(row.deployment_id, row.epoch_id, row.kind) for row in stored}
    for verdict in known:
        row = proven.get(verdict.recommendation_id or 0)
        if row is None or verdict.judgement.result is not Result.CHEAPER or verdict.judged_ts is None:
            continue
        for days in _days_due(verdict.judged_ts, now_ts, day_s):
            if (verdict.deployment_id, verdict.epoch_id, KINDS[days]) not in standing:
                yield Due(row, days, verdict.judged_ts, verdict)


def _releases_due(
    connection: Connection, stored: Sequence[Any], proven: Mapping[int, Recommendation], now_ts: int, day_s: int
) -> Iterator[Due]:
    standing = {(row.recommendation_id, row.kind) for row in stored}
    judged = {row.recommendation_id: row.created_ts for row in stored if row.kind == Kind.VERDICT}
    for key, row in proven.items():
        if key not in judged or row.estimate is None or not releases(row.estimate):
            continue
        for days in _days_due(judged[key], now_ts, day_s):
            since = None if (key, KINDS[days]) in standing else last_applied(connection, key)
            if since is not None:
                yield Due(row, days, judged[key], None, since)


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
    """Check proven savings again, store the receipts, and move what decayed."""
    made: list[StoredReceipt] = []
    moves: dict[int, Moved] = {}
    for one in due:
        with target.writing() as connection:
            of_change = read_receipts(connection, one.row.recommendation_id)
        epoch_id = None if one.verdict is None else one.verdict.epoch_id
        first = next((old for old in of_change if old.kind is Kind.VERDICT and old.epoch_id == epoch_id), None)
        again = None if first is None else _again(one, first.read(), verifier, released, now_ts)
        if first is None or again is None:
            continue
        made.append(again)
        lost = _lost(first.read(), again.read())
        if lost is not None:
            since = f"{one.days} days after the verdict of {format_utc(one.judged_ts)} the saving is gone or smaller"
            why = f"{since}: {lost}"
            name = "" if one.verdict is None else f" ({one.verdict.name})"
            moves[one.row.recommendation_id] = moved(one.row, "decayed", f"{why}{name}", now_ts, reason=why)
    if made:
        with target.writing() as connection:
            receipts.add(connection, made)
            write(connection, moves.values(), rows, WHO)


def _again(one: Due, first: Receipt, verifier: Verifier, released: Releases, now_ts: int) -> StoredReceipt | None:
    """Return the receipt of a re-check; None where the hours that it needs are not stored any more."""
    if one.verdict is not None:
        return verifier.again(one.verdict, KINDS[one.days], now_ts)
    assert one.applied_ts is not None
    made, stored = released.receipt(one.row, one.applied_ts, KINDS[one.days])
    assert first.release is not None and made.release is not None
    return stored if made.release.promised_devices == first.release.promised_devices else None


def _lost(first: Receipt, later: Receipt) -> str | None:
    """Return what became of a saving that decayed; None if it did not."""
    if first.release is not None and later.release is not None:
        if later.finding.verdict is Proven.REGRESSED:
            return str(later.finding.reason)
        before, now = first.release.released_devices, later.release.released_devices
        return f"{now} of {before} released devices are still released" if now < before else None
    if recheck(first.finding, later.finding) is not Proven.DECAYED:
        return None
    saving = later.finding.saving_90
    return (
        "its interval is not known"
        if saving is None
        else f"{saving.likely:.1%} ({saving.low:.1%} to {saving.high:.1%}) is saved"
    )
