"""Receipts as calibration: verified changes of a deployment correct the forecast of its host."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter

from pertoken.forecast.calibration import Realised
from pertoken.proof.judging.receipts import Kind
from pertoken.proof.verdicts import VERIFIED, Result, Verdict, read_verdicts
from pertoken.state.deployment import Deployment
from pertoken.state.diff import plain
from pertoken.state.fleet import Fleet
from pertoken.state.knobs import knobs
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.units import format_utc

PROVEN = (Result.CHEAPER, Result.DEARER, Result.NO_EFFECT)
"""Results with a known effect: an interval that is too wide to decide is too wide to correct a forecast."""
NO_SPEED = ("driver",)
"""What an epoch shows and no forecast looks at."""


def proven_verdicts(store: Store) -> tuple[Verdict, ...]:
    """Return the verdicts that have a receipt. Raises StoreError."""
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        verdicts = read_verdicts(connection)
        proven = {
            (row.deployment_id, row.epoch_id)
            for row in (repository.receipt_kinds(connection) if verdicts else ())
            if row.kind == Kind.VERDICT
        }
    return tuple(verdict for verdict in verdicts if (verdict.deployment_id, verdict.epoch_id) in proven)


def realised_by(verdicts: Iterable[Verdict], now: Fleet) -> Mapping[int, tuple[Realised, ...]]:
    """Return the changes that verdicts with a receipt are on, of each deployment that runs as its change left it."""
    changes: dict[int, list[Realised]] = defaultdict(list)
    for verdict in verdicts:
        deployment = now.deployment_of.get(verdict.deployment_id)
        change = None if deployment is None else _realised(verdict, deployment)
        if change is not None:
            changes[verdict.deployment_id].append(change)
    return {key: tuple(some) for key, some in changes.items()}


def _realised(verdict: Verdict, now: Deployment) -> Realised | None:
    """Return one change; None where it was not proven, was of more than knobs and version, or was changed since."""
    judged = verdict.judgement
    edits = [edit for edit in verdict.edits if edit.field not in NO_SPEED]
    known = all(edit.field in knobs() or edit.field == "engine_version" for edit in edits)
    if judged.result not in PROVEN or judged.method != VERIFIED or judged.effect is None or not edits or not known:
        return None
    if any(plain(attrgetter(edit.field)(now)) != edit.after for edit in edits):
        return None
    low, likely, high = judged.effect
    source = f"the receipt of its change of {format_utc(verdict.changed_ts)}"
    before = tuple((edit.field, edit.before) for edit in edits)
    return Realised(before, (1 + low, 1 + likely, 1 + high), source)
