"""Trials in the database, each written against the version that was read."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection

from pertoken.proof.recommendation import Edit
from pertoken.proof.trials.answers import PromptOutput
from pertoken.proof.trials.trial import Arm, Design, Status, Trial, TrialResult
from pertoken.proof.verdicts import Result
from pertoken.store import repository
from pertoken.store.schema.shared import stable_id

_COLUMNS = ("trial_id", "recommendation_id", "design", "status", "started_ts", "ended_ts", "version")


def read_trials(connection: Connection, recommendation_id: int | None = None) -> tuple[Trial, ...]:
    """Return the trials of one recommendation, or all of them, oldest first."""
    return tuple(map(_from_row, repository.trials(connection, recommendation_id)))


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


def _to_row(trial: Trial) -> dict[str, Any]:
    values = asdict(trial)
    row = {name: values.pop(name) for name in _COLUMNS}
    return {**row, "body": json.dumps(values, sort_keys=True)}


def _from_row(row: Any) -> Trial:
    body = json.loads(row.body)
    result, control, answers = body.pop("result"), body.pop("control"), body.pop("answers", None)
    if result is not None:
        effect = result.pop("effect")
        result = TrialResult(
            **{**result, "result": Result(result["result"])}, effect=None if effect is None else tuple(effect)
        )
    return Trial(
        **{name: getattr(row, name) for name in _COLUMNS if name not in ("design", "status")},
        design=Design(row.design),
        status=Status(row.status),
        canary=Arm(**body.pop("canary")),
        control=None if control is None else Arm(**control),
        edits=tuple(Edit(**edit) for edit in body.pop("edits")),
        result=result,
        answers=None if answers is None else (_answers(answers[0]), _answers(answers[1])),
        **body,
    )


def _answers(values: Iterable[Mapping[str, Any]]) -> tuple[PromptOutput, ...]:
    return tuple(PromptOutput(**answer) for answer in values)
