"""The journal of a recommendation: every move and every change that was recorded of it, oldest first."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from pertoken.proof import verdicts
from pertoken.proof.recommendation import Edit
from pertoken.proof.trials.stored import read_trials
from pertoken.proof.trials.trial import Trial
from pertoken.store import repository


@dataclass(frozen=True, slots=True)
class Entry:
    """One move of a recommendation, or one recorded change that belongs to it."""

    ts: int
    what: str
    """State after the move, or the deployment that changed."""
    who: str
    why: str
    edits: tuple[Edit, ...] = ()
    """What changed; empty for a move."""

    def values(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def journal(connection: Connection, recommendation_id: int) -> tuple[Entry, ...]:
    """Return the journal of one recommendation."""
    moves = [
        Entry(row.ts, row.to_state.replace("_", " ").lower(), row.who, row.why)
        for row in repository.transitions(connection, recommendation_id)
    ]
    changes = [
        Entry(verdict.changed_ts, verdict.name, "telemetry", "its configuration changed", verdict.edits)
        for verdict in verdicts.read_verdicts(connection)
        if verdict.recommendation_id == recommendation_id
    ]
    tried = [entry for read_trial in read_trials(connection, recommendation_id) for entry in _trial(read_trial)]
    return tuple(sorted((*changes, *moves, *tried), key=lambda entry: entry.ts))


def _trial(trial: Trial) -> Iterator[Entry]:
    yield Entry(trial.started_ts, "trial begun", "pertoken trial", trial.canary.name, trial.edits)
    if trial.ended_ts is not None:
        what = "trial " + trial.status.value.replace("_", " ").lower()
        yield Entry(trial.ended_ts, what, "pertoken trial", trial.canary.name)
