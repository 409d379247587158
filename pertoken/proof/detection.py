"""Detection of new changes of configuration, as moves and verdicts; the journal of a recommendation.

Each change of an epoch gets a verdict row, recommended or not. A change that applies a recommendation moves it to
APPLIED, accepted or not; a change that undoes it moves it to ROLLED_BACK. The first look
stores them: a second look at the same time finds the verdict and stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.fleet import fleet
from pertoken.costs.prices.stored import market_of
from pertoken.errors import StoreError
from pertoken.proof import verdicts
from pertoken.proof.judging.judge import AdviceHistory, judge_changes, read_history
from pertoken.proof.recommendation import (
    PUT_OFF,
    UNDOABLE,
    Edit,
    Moved,
    Recommendation,
    State,
    Variant,
    applied,
    moved,
    short_id,
)
from pertoken.proof.stored import newest, write
from pertoken.proof.trials.trial import Trial, read_trials, running
from pertoken.proof.verdicts import Verdict, bringing, epoch_changes, holds, names, reverts, seen_edits
from pertoken.state.fleet import Fleet
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceChanged, AdviceRepository
from pertoken.window.epochs import HISTORY_S
from pertoken.window.reading import Window, newest_epoch

DETECTED = "detected"
"""Who makes the moves of this module."""
_CANDIDATES = (State.APPLIED, State.VERIFYING, State.ACCEPTED, State.OPEN, *PUT_OFF)
"""States of recommendations that a change can belong to, in the order in which they get it."""
_APPLIED = (State.APPLIED, State.VERIFYING)
Edits = tuple[tuple[str, int | str, str, str], ...]
"""Edits of a variant; variants with equal edits are one change."""


@dataclass(frozen=True, slots=True)
class Detected:
    """Result of one detection run."""

    moves: tuple[Moved, ...]
    verdicts: tuple[Verdict, ...]
    """New ones, and those that got a recommendation."""


def detect(
    store: Store, history: AdviceHistory, target: AdviceRepository, market: Market, settings: Settings, now_ts: int
) -> int:
    """Compare recorded epochs with recommendations, store the moves and verdicts, and return the number of new changes.

    Raises AdviceChanged if somebody else acted on one of the recommendations since `history` was read, StoreError if
    the database cannot be read or written.
    """
    with store.read() as connection:
        inventory = Window(connection, now_ts - HISTORY_S, now_ts).inventory
    new = epoch_changes(inventory, {verdict.epoch_id for verdict in history.verdicts}, market, settings)
    rows = history.rows.values()
    accepted = any(row.state is State.ACCEPTED for row in rows)
    if not new and not accepted:
        return 0
    present, trials = fleet(inventory, {}, market, settings, now_ts), running(history.trials)
    detected_now = detected(rows, history.verdicts, new, present, now_ts, trials)
    with target.writing() as connection:
        write(connection, detected_now.moves, history.rows, DETECTED)
        verdicts.write(connection, detected_now.verdicts)
    return len(new)


def detected(
    rows: Iterable[Recommendation],
    stored_verdicts: Iterable[Verdict],
    new: Sequence[Verdict],
    present: Fleet,
    now_ts: int,
    trials: Iterable[Trial] = (),
) -> Detected:
    """Return the effect of new changes on recommendations, given the present verdicts.

    A recommendation for several deployments is applied with the last of them: it gets the earlier changes, too. A
    change during a trial applies and undoes nothing; once the trial ended, a change that stayed is applied.
    """
    tried, on_trial = _on_trial(trials)
    moves: list[Moved] = []
    owner: dict[int, int] = {}  # recommendations by the epoch of a change
    taken: dict[Edits, str] = {}  # recommendation by applied edits
    fresh = {change.epoch_id for change in new}
    changes = [*(verdict for verdict in stored_verdicts if verdict.recommendation_id is None), *new]
    changes = [change for change in changes if change.deployment_id not in on_trial]
    lasting = [change for change in new if change.deployment_id not in on_trial]
    for recommendation in sorted(newest(rows), key=_precedence):
        if recommendation.recommendation_id in tried:
            continue
        if (
            recommendation.state in UNDOABLE
            and recommendation.estimate is not None
            and (undone := reverts(recommendation.estimate, lasting, present))
        ):
            why = f"{_what(undone)} as before"
            moves.append(moved(recommendation, "reverted", why, now_ts, reason=why))
            owner |= {change.epoch_id: recommendation.recommendation_id for change in undone}
            continue
        variants = (recommendation.estimate,) if recommendation.estimate is not None else recommendation.variants
        variant = next((alternative for alternative in variants if holds(alternative, present)), None)
        if recommendation.state not in _CANDIDATES or variant is None:
            continue
        if (first := taken.get(_edits(variant))) is not None and recommendation.state not in _APPLIED:
            moves.append(moved(recommendation, "superseded", f"the same change was applied as {first}", now_ts))
            continue
        later = [
            change
            for change in changes
            if change.changed_ts >= recommendation.created_ts and change.epoch_id not in owner
        ]
        caused = bringing(variant, later)
        if not fresh & {change.epoch_id for change in caused} and recommendation.state is not State.ACCEPTED:
            continue  # nothing new: a person set a field that no epoch shows, or the engine just stopped
        taken[_edits(variant)] = short_id(recommendation)
        owner |= {change.epoch_id: recommendation.recommendation_id for change in caused}
        if recommendation.state not in _APPLIED:
            moves.append(applied(recommendation, "detected", _what(caused), now_ts, variant.key))
    linked = [
        replace(verdict, recommendation_id=owner[verdict.epoch_id])
        for verdict in stored_verdicts
        if verdict.recommendation_id is None and verdict.epoch_id in owner
    ]
    added = [replace(change, recommendation_id=owner.get(change.epoch_id), created_ts=now_ts) for change in new]
    return Detected(tuple(moves), (*added, *linked))


def _on_trial(trials: Iterable[Trial]) -> tuple[set[int], set[int]]:
    """Return the recommendations that are tried, and the deployments they are tried on."""
    trials = tuple(trials)
    arms = [arm for trial in trials for arm in (trial.canary, trial.control) if arm is not None]
    return {trial.recommendation_id for trial in trials}, {arm.deployment_id for arm in arms}


def _precedence(recommendation: Recommendation) -> tuple[object, ...]:
    """Return the sort key by state, then by promise: it decides to which recommendation a change belongs."""
    worth = recommendation.chosen.rank if recommendation.chosen else ()
    return (
        _CANDIDATES.index(recommendation.state) if recommendation.state in _CANDIDATES else len(_CANDIDATES),
        tuple(-dollars for dollars in worth),
    )


def _edits(variant: Variant) -> Edits:
    return tuple((edit.kind, edit.target, edit.field, str(edit.after)) for edit in seen_edits(variant))


def _what(changes: Sequence[Verdict]) -> str:
    """Return changes in words: `chat on gpu-1: weight_dtype`."""
    if not changes:
        return "what it proposes runs now"
    return "; ".join(f"{change.name}: {', '.join(names(change.edits)) or 'configuration'}" for change in changes)


JUDGED_EVERY_S = 600
"""Time between two looks whether a verdict is due: verdicts are a matter of weeks."""


class ChangeWatch:
    """Detection at every refresh of a screen that finds a new epoch, and verdicts now and then.

    Without the right to write advice, show the stored ones.
    """

    def __init__(self, location: StoreLocation, settings: Settings) -> None:
        self._place, self._settings = location, settings
        self._seen: tuple[int | None, int] | None = None
        self._judged_ts: int | None = None

    def look(self, store: Store, now_ts: int) -> None:
        """Detect new changes and judge due ones. Raises StoreError if telemetry cannot be read."""
        newest = newest_epoch(store)
        if store.advice is None:
            return
        detects = newest != self._seen
        judges = self._judged_ts is None or now_ts - self._judged_ts >= JUDGED_EVERY_S
        if not detects and not judges:
            return
        self._seen, self._judged_ts = newest, now_ts
        try:
            target = AdviceRepository(self._place)
            if detects:
                market = market_of(store, self._settings.market_provider, self._settings.market_region)
                with store.read("advice") as connection:
                    history = read_history(connection)
                detect(store, history, target, market, self._settings, now_ts)
            with store.read("advice") as connection:
                history = read_history(connection)
            judge_changes(store, history, target, self._settings, now_ts)
        except AdviceChanged:
            self._seen = self._judged_ts = None  # at the next refresh, after another writer's rows
        except StoreError:
            return


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One move of a recommendation, or one recorded change that belongs to it."""

    ts: int
    what: str
    """State after the move, or the deployment that changed."""
    who: str
    why: str
    edits: tuple[Edit, ...] = ()
    """Changed fields; empty for a move."""

    def values(self) -> dict[str, object]:
        """Return it as JSON values."""
        return asdict(self)


def journal(connection: Connection, recommendation_id: int) -> tuple[JournalEntry, ...]:
    """Return the journal of one recommendation."""
    moves = [
        JournalEntry(row.ts, row.to_state.replace("_", " ").lower(), row.who, row.why)
        for row in repository.transitions(connection, recommendation_id)
    ]
    changes = [
        JournalEntry(verdict.changed_ts, verdict.name, "telemetry", "its configuration changed", verdict.edits)
        for verdict in verdicts.read_verdicts(connection)
        if verdict.recommendation_id == recommendation_id
    ]
    tried = [entry for read_trial in read_trials(connection, recommendation_id) for entry in _trial(read_trial)]
    return tuple(sorted((*changes, *moves, *tried), key=lambda entry: entry.ts))


def _trial(trial: Trial) -> Iterator[JournalEntry]:
    yield JournalEntry(trial.started_ts, "trial begun", "pertoken trial", trial.canary.name, trial.edits)
    if trial.ended_ts is not None:
        what = "trial " + trial.status.value.replace("_", " ").lower()
        yield JournalEntry(trial.ended_ts, what, "pertoken trial", trial.canary.name)
