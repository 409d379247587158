"""A trial of a recommendation, and trials in the database."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from sqlalchemy import Connection

from pertoken.proof.recommendation import Edit, read_record
from pertoken.proof.trials.endpoint import PromptOutput
from pertoken.proof.verdicts import VerdictResult
from pertoken.store import repository
from pertoken.store.schema.shared import stable_id


class Design(StrEnum):
    """Comparison of the two arms of a trial."""

    REPLICAS = "REPLICAS"
    """Two replicas over the same minutes, one of them with the change."""
    SWITCHBACK = "SWITCHBACK"
    """One replica, with and without the change in turn."""


class Status(StrEnum):
    """State of a trial."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    QUALITY_FAILED = "QUALITY_FAILED"
    """A quality check, or the small check of outputs, refused the change."""
    STOPPED = "STOPPED"
    """A person ended it, or one of its engines was changed otherwise."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One replica of a trial."""

    deployment_id: int
    engine_id: int
    name: str
    """Deployment and host as people call them."""
    url: str
    """Base URL of the engine, as its agent reads it."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of a trial with its effect."""

    result: VerdictResult
    effect: tuple[float, float, float] | None = None
    """Cost per token with the change / without - 1, 90 % interval: low, likely, high."""
    minutes: int = 0
    """Minutes with the change that were compared."""
    baseline_minutes: int = 0
    """Minutes before the trial that the difference of both replicas was measured in; 0 for one replica."""
    reason: str | None = None
    """Why it decides nothing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of one variant on one service."""

    recommendation_id: int
    design: Design
    started_ts: int
    canary: Arm
    control: Arm | None
    """None: the canary itself, switched back."""
    edits: tuple[Edit, ...]
    """Changes on the canary."""
    minutes: int
    """Minutes to compare; of a switchback in each block."""
    warm_up_s: int
    """Seconds after a restart that are left out, while caches are cold."""
    blocks: int = 1
    """Blocks of a switchback, without and with the change in turn."""
    status: Status = Status.RUNNING
    quality_exit: int | None = None
    """Exit status of the quality check; None: not run yet, or there is none."""
    quality_waived: bool = False
    """Whether a person tries it without a quality check, though outputs may change."""
    result: TrialResult | None = None
    ended_ts: int | None = None
    answers: tuple[tuple[PromptOutput, ...], tuple[PromptOutput, ...]] | None = None
    """Answers of a single replica to the fixed prompts without the change, asked twice; None: not asked."""
    outputs: str | None = None
    """Result of the small check of outputs, for people; None: not made."""
    trial_id: int = 0
    version: int = 0

    @property
    def quality_passed(self) -> bool:
        """Whether the quality check passed with the change."""
        return self.quality_exit == 0

    @property
    def block_s(self) -> int:
        """Seconds of one block of a switchback: the minutes that count, and the warm-up before them."""
        return self.warm_up_s + 60 * self.minutes


_COLUMNS = ("trial_id", "recommendation_id", "design", "status", "started_ts", "ended_ts", "version")


def read_trials(connection: Connection, recommendation_id: int | None = None) -> tuple[Trial, ...]:
    """Return the trials of one recommendation, or all of them, oldest first."""
    return tuple(
        read_record(Trial, json.loads(row.body) | {name: getattr(row, name) for name in _COLUMNS})
        for row in repository.trials(connection, recommendation_id)
    )


def running(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return those that have not ended."""
    return tuple(trial for trial in trials if trial.status is Status.RUNNING)


def begun(connection: Connection, trial: Trial) -> Trial:
    """Store a new trial and return it with its id. Raises AdviceChanged if somebody else began one meanwhile."""
    number = len(repository.trials(connection, trial.recommendation_id))
    trial = replace(trial, trial_id=stable_id("trial", trial.recommendation_id, number))
    repository.put_trial(connection, _to_row(trial), read_version=0)
    return replace(trial, version=1)


def put(connection: Connection, trial: Trial) -> Trial:
    """Replace a trial that was read. Raises AdviceChanged if somebody else changed it since."""
    repository.put_trial(connection, _to_row(trial), read_version=trial.version)
    return replace(trial, version=trial.version + 1)


def _to_row(trial: Trial) -> dict[str, object]:
    values = asdict(trial)
    row = {name: values.pop(name) for name in _COLUMNS}
    return {**row, "body": json.dumps(values, sort_keys=True)}
