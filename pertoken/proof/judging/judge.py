"""Judging: verdicts on changes whose time has come, the moves that follow, and re-checks of proven savings."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from pertoken.config import Settings
from pertoken.proof import verdicts
from pertoken.proof.judging import receipts, rechecks, releases
from pertoken.proof.judging.receipts import StoredReceipt
from pertoken.proof.judging.rechecks import WHO
from pertoken.proof.judging.releases import Releases
from pertoken.proof.judging.verifier import Verifier
from pertoken.proof.lifecycle import Moved, moved
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import stored, write
from pertoken.proof.trials.stored import read_trials
from pertoken.proof.verdicts import Judgement, Result, Verdict
from pertoken.proof.verification.question import WEEK_OF_HOURS, Cycle
from pertoken.proof.verification.verdict import Verdict as Proven
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository

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
        due = rechecks.due(connection, known, rows.values(), now_ts, cycle.day_s)
    if not due and not given_back and not any(verdict.judgement.result is Result.PENDING for verdict in known):
        return 0
    with store.read() as connection:
        verifier = Verifier(store, connection, known, rows, settings, now_ts, cycle, trials)
        decided = judge_pending(target, verifier.judge, now_ts)
        judged = Releases(store, connection, settings, now_ts, cycle)
        decided += _judge_releases(target, judged, given_back, now_ts)
        rechecks.recheck_all(target, verifier, judged, due, rows, now_ts)
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
