"""Judging: verdicts on changes whose time has come, the moves that follow, and re-checks of proven savings."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from sqlalchemy import Connection

from pertoken.config import Settings
from pertoken.proof import verdicts
from pertoken.proof.judging import receipts, releases
from pertoken.proof.judging.receipts import Kind, StoredReceipt
from pertoken.proof.judging.releases import Releases
from pertoken.proof.judging.verifier import Verifier
from pertoken.proof.lifecycle import Moved, moved
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import stored, write
from pertoken.proof.trials.stored import read_trials
from pertoken.proof.verdicts import Judgement, Result, Verdict
from pertoken.proof.verification.question import WEEK_OF_HOURS, Cycle
from pertoken.proof.verification.recheck import RECHECK_DAYS, recheck
from pertoken.proof.verification.verdict import Verdict as Proven
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository
from pertoken.units import format_utc

WHO = "verification"
"""Who makes the moves of this module."""
RECHECKS = dict(zip(RECHECK_DAYS, (Kind.AFTER_7_DAYS, Kind.AFTER_30_DAYS), strict=True))
MAX_LATE_DAYS = 14
"""Days after a re-check is due during which it is made: later its hours may not be stored any more."""
Judge = Callable[[Verdict, int], tuple[Judgement, StoredReceipt | None]]
"""Judges a verdict as of a time (epoch seconds); with a receipt where the change was verified."""
_CODES = {
    Proven.REALIZED: "realized",
    Proven.PARTIAL: "partial",
    Proven.NO_EFFECT: "no-effect",
    Proven.REGRESSED: "regressed",
    Proven.INCONCLUSIVE: "inconclusive",
}
"""Reason codes of the moves that verdicts on releases make."""
_UNDER_WAY = (State.APPLIED, State.VERIFYING)
_PROVEN = (State.REALIZED, State.PARTIAL)


def judge_changes(
    store: Store, target: AdviceRepository, settings: Settings, now_ts: int, cycle: Cycle = WEEK_OF_HOURS
) -> int:
    """Judge changes whose time has come, and check proven savings again. Return how many verdicts were decided.

    Telemetry is read only where there is something to judge, and of the deployments concerned. Raises AdviceChanged if
    somebody else changed one of them meanwhile, StoreError if a database cannot be read or written.
    """
    if store.advice is None:
        return 0
    with store.read("advice") as connection:
        known = verdicts.read_verdicts(connection)
        rows = {recommendation.recommendation_id: recommendation for recommendation in stored(connection)}
        trials = read_trials(connection)
        given_back = releases.due(connection, rows.values(), now_ts, cycle.day_s)
        due = tuple(_due(connection, known, rows.values(), now_ts, cycle.day_s))
    if not due and not given_back and not any(verdict.judgement.result is Result.PENDING for verdict in known):
        return 0
    with store.read() as connection:
        verifier = Verifier(store, connection, known, rows, settings, now_ts, cycle, trials)
        decided = judge_pending(target, verifier.judge, now_ts)
        _recheck(target, verifier, due, rows, now_ts)
        judged = Releases(store, connection, settings, now_ts, cycle)
        decided += _judge_releases(target, judged, given_back, now_ts)
    return decided


def judge_pending(target: AdviceRepository, judge: Judge, now_ts: int) -> int:
    """Judge every verdict that is pending, and move the recommendations they belong to. Return how many were decided.

    Raises AdviceChanged if somebody else changed one meanwhile, StoreError if the database cannot be written.
    """
    with target.writing() as connection:
        known = verdicts.read_verdicts(connection)
        rows = {recommendation.recommendation_id: recommendation for recommendation in stored(connection)}
    after: list[Verdict] = []
    changed: list[Verdict] = []
    made: list[StoredReceipt] = []
    for known_verdict in known:
        new = known_verdict
        if known_verdict.judgement.result is Result.PENDING:
            judgement, receipt = judge(known_verdict, now_ts)
            new = verdicts.with_judgement(known_verdict, judgement, now_ts)
            made += [receipt] if receipt is not None else []
        after.append(new)
        changed += [new] if new != known_verdict else []
    with target.writing() as connection:
        for verdict in changed:
            verdicts.put(connection, verdict)
        receipts.add(connection, made)
        write(connection, _judged(after, rows.values(), now_ts), rows, WHO)
    return sum(verdict.judged_ts is not None for verdict in changed)


def _judged(known: Iterable[Verdict], rows: Iterable[Recommendation], now_ts: int) -> Iterator[Moved]:
    """Yield the moves of recommendations that verdicts belong to."""
    of: dict[int, list[Verdict]] = {}
    for verdict in known:
        if verdict.recommendation_id is not None:
            of.setdefault(verdict.recommendation_id, []).append(verdict)
    for row in rows:
        mine = of.get(row.recommendation_id, ())
        if not mine or row.state not in _UNDER_WAY:
            continue
        if row.estimate is not None and releases.releases(row.estimate):
            continue  # its dollars are those of the devices, whatever a token costs on the others
        if row.state is State.APPLIED:
            begun = moved(row, "verifying", "hours after the change are collected", now_ts)
            yield begun
            row = begun.recommendation
        code = verdicts.outcome(row.estimate, (verdict.judgement for verdict in mine))
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
        why = releases.sentence(receipt, applied_ts)
        moves.append(moved(row, _CODES[receipt.finding.verdict], why, now_ts, reason=why))
    with target.writing() as connection:
        receipts.add(connection, made)
        write(connection, moves, rows, WHO)
    return len(made)


def _sentence(verdict: Verdict) -> str:
    effect, reason = verdict.judgement.effect, verdict.judgement.reason
    figures = None if effect is None else f"{effect[1]:+.1%} ({effect[0]:+.1%} to {effect[2]:+.1%}) per token"
    return f"{', '.join(filter(None, (figures, reason)))} ({verdict.name})"


def _due(
    connection: Connection, known: Iterable[Verdict], rows: Iterable[Recommendation], now_ts: int, day_s: int
) -> Iterator[tuple[Verdict, int]]:
    """Yield the verdicts on proven savings that are to be checked again, with the days since their verdict."""
    proven = {row.recommendation_id for row in rows if row.state in _PROVEN}
    cheaper = [
        verdict
        for verdict in known
        if verdict.recommendation_id in proven
        and verdict.judgement.result is Result.CHEAPER
        and verdict.judged_ts is not None
    ]
    standing = (
        {(row.deployment_id, row.epoch_id, row.kind) for row in repository.receipt_kinds(connection)}
        if cheaper
        else set()
    )
    for verdict in cheaper:
        for days, kind in RECHECKS.items():
            late_s = now_ts - (verdict.judged_ts or 0) - days * day_s
            if 0 <= late_s < MAX_LATE_DAYS * day_s and (verdict.deployment_id, verdict.epoch_id, kind) not in standing:
                yield verdict, days


def _recheck(
    target: AdviceRepository,
    verifier: Verifier,
    due: Iterable[tuple[Verdict, int]],
    rows: dict[int, Recommendation],
    now_ts: int,
) -> None:
    """Check proven savings again, store the receipts, and move what decayed."""
    made: list[StoredReceipt] = []
    moves: dict[int, Moved] = {}
    for verdict, days in due:
        with target.writing() as connection:
            of_change = receipts.read_receipts(connection, verdict.recommendation_id)
        first = next((one for one in of_change if one.kind is Kind.VERDICT and one.epoch_id == verdict.epoch_id), None)
        again = verifier.again(verdict, RECHECKS[days], now_ts)
        if first is None or again is None:
            continue
        made.append(again)
        later = again.read().finding
        row = rows[verdict.recommendation_id or 0]
        if recheck(first.read().finding, later) is Proven.DECAYED:
            interval = later.saving_90
            figures = (
                ""
                if interval is None
                else f": {interval.likely:.1%} ({interval.low:.1%} to {interval.high:.1%}) is saved"
            )
            since = f"{days} days after the verdict of {format_utc(verdict.judged_ts or 0)}"
            why = f"{since} the saving is gone or smaller{figures}"
            moves[row.recommendation_id] = moved(row, "decayed", f"{why} ({verdict.name})", now_ts, reason=why)
    if made:
        with target.writing() as connection:
            receipts.add(connection, made)
            write(connection, moves.values(), rows, WHO)
