"""Recorded changes of configuration, the recommendations that they apply or undo, and their verdicts, as stored."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter

from sqlalchemy import Connection

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.fleet import deployment_of
from pertoken.proof.recommendation import Edit, Variant
from pertoken.proof.verification.estimate import EffectVerdict, Interval, kept, proven
from pertoken.proof.verification.question import Promise
from pertoken.state.deployment import knobs
from pertoken.state.diff import diff, plain
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.store.schema.shared import DRIVER
from pertoken.window.inventory import Inventory, KnownEpoch

ACCELERATOR = "placement.accelerator"
"""The one field of a placement that the devices of an epoch show."""


def epoch_changes(
    inventory: Inventory, known_epoch_ids: Collection[int], market: Market, settings: Settings
) -> tuple[Verdict, ...]:
    """Return the pending verdicts on changes of configuration in an inventory, except those of `known_epoch_ids`.

    A change is the start of an epoch that is not the first of its deployment. They are in order of time.
    """
    changes = (
        _change(old, new, inventory, market, settings)
        for rows in inventory.epochs_of.values()
        for old, new in pairwise(rows)
        if new.epoch_id not in known_epoch_ids
    )
    return tuple(sorted(changes, key=lambda change: (change.changed_ts, change.epoch_id)))


def _change(old: KnownEpoch, new: KnownEpoch, inventory: Inventory, market: Market, settings: Settings) -> Verdict:
    fleets = [epoch_fleet(row, inventory, market, settings) for row in (old, new)]
    edits = [
        Edit(change.kind, change.target, change.field, plain(change.before), plain(change.after))
        for change in diff(*fleets).changes
        if change.kind == "deployment"
    ]
    drivers = [json.loads(row.knobs).get(DRIVER) for row in (old, new)]
    if drivers[0] != drivers[1]:
        edits.append(Edit("deployment", new.deployment_id, "driver", *drivers))
    return Verdict(
        deployment_id=new.deployment_id,
        epoch_id=new.epoch_id,
        previous_epoch_id=old.epoch_id,
        changed_ts=new.start_ts,
        name=f"{new.served_model} on {new.host_name}",
        edits=tuple(edits),
        version_before=old.engine_version,
        version_after=new.engine_version,
    )


def seen_edits(variant: Variant) -> tuple[Edit, ...]:
    """Return the edits of a variant that telemetry can show."""
    return tuple(edit for edit in variant.edits if _is_seen(edit, variant))


def holds(variant: Variant, present: Fleet) -> bool:
    """Return whether all that a variant changes and telemetry shows is so now; never for one that shows in nothing."""
    edits = seen_edits(variant)
    return bool(edits) and all(_holds(edit, variant, present) for edit in edits)


def are_set(edits: Iterable[Edit], present: Fleet) -> bool:
    """Return whether the deployments of edits run with all of them."""
    return all(_value(edit, present) == (True, edit.after) for edit in edits)


def epoch_fleet(row: KnownEpoch, inventory: Inventory, market: Market, settings: Settings) -> Fleet:
    """Return a fleet of the one deployment that an epoch was."""
    return Fleet(services=(Service("", (deployment_of(row, inventory, {}, market, settings),)),))


def bringing(variant: Variant, changes: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the changes that set a field to a value proposed by a variant.

    A deployment that only stopped running is no such change: it may have crashed.
    """
    return tuple(_setting({(edit.target, edit.field): edit.after for edit in seen_edits(variant)}, changes))


def reverts(variant: Variant, changes: Iterable[Verdict], present: Fleet) -> tuple[Verdict, ...]:
    """Return the changes that undid a variant; none unless every field of a deployment is as it was before."""
    edits = [edit for edit in seen_edits(variant) if edit.kind == "deployment" and edit.field != "running"]
    if not edits or not all(_value(edit, present) == (True, edit.before) for edit in edits):
        return ()
    return tuple(_setting({(edit.target, edit.field): edit.before for edit in edits}, changes))


def _setting(values: dict[tuple[int | str, str], object], changes: Iterable[Verdict]) -> Iterator[Verdict]:
    for change in changes:
        set_to = {(edit.target, edit.field): edit.after for edit in change.edits}
        if any(key in values and values[key] == value for key, value in set_to.items()):
            yield change


def _is_seen(edit: Edit, variant: Variant) -> bool:
    if edit.field == "running":
        return edit.after is False
    if edit.kind == "service":
        return edit.field == "replicas" and _replicas(edit, variant) is not None
    if edit.field == "device_ids":
        return bool(edit.after)  # empty: on whatever devices pricing or a person chooses
    return edit.kind == "deployment" and (edit.field in knobs() or edit.field == ACCELERATOR)


def _holds(edit: Edit, variant: Variant, present: Fleet) -> bool:
    if edit.kind == "host":
        ids = {device.device_id for device in present.devices if device.host_id == edit.target}
        return not any(ids & set(deployment.device_ids) for deployment in present.deployments)
    if edit.kind == "service":
        service = present.service_of.get(str(edit.target))
        wanted = _replicas(edit, variant)
        return wanted is not None and (len(service.deployments) if service else 0) == wanted
    if edit.field == "running":
        return int(edit.target) not in present.deployment_of
    return _value(edit, present) == (True, edit.after)


def _value(edit: Edit, present: Fleet) -> tuple[bool, object]:
    """Return whether the deployment of an edit runs, and the value of its field as JSON."""
    deployment = present.deployment_of.get(int(edit.target))
    return (False, None) if deployment is None else (True, plain(attrgetter(edit.field)(deployment)))


def _replicas(edit: Edit, variant: Variant) -> int | None:
    """Return how many replicas an edit leads to; None where pricing changed none."""
    if isinstance(edit.after, int):
        return edit.after
    return None if variant.replicas is None else variant.replicas[1]


def names(edits: Sequence[Edit]) -> tuple[str, ...]:
    """Return the fields that edits change, each once."""
    return tuple(dict.fromkeys(edit.field for edit in edits))


LIKE_HOURS = "like hours of the two epochs"
"""Method where the history is too short to verify a change; it proves nothing."""
BY_TRIAL = "minutes of a trial before the change"
"""Method where the hours after the change decide nothing."""
VERIFIED = "hours after the change against a baseline of the weeks before"


class VerdictResult(StrEnum):
    """Effect of a change on the cost of a token."""

    PENDING = "PENDING"
    CHEAPER = "CHEAPER"
    DEARER = "DEARER"
    NO_EFFECT = "NO_EFFECT"
    OUTPUT_CHANGED = "OUTPUT_CHANGED"
    """Outputs changed; the cost of a token does not count."""
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome of one comparison."""

    result: VerdictResult
    effect: tuple[float, float, float] | None = None
    """Cost per token after / before - 1: low, likely, high."""
    reason: str | None = None
    """Why it is pending or inconclusive, and how outputs changed."""
    method: str = VERIFIED
    due_ts: int | None = None
    """When a pending one is judged next."""

    @property
    def label(self) -> str:
        """The result for people: `cheaper, output changed`."""
        label = self.result.value.replace("_", " ").lower()
        is_cheaper = self.effect is not None and self.effect[2] < 0
        return f"cheaper, {label}" if self.result is VerdictResult.OUTPUT_CHANGED and is_cheaper else label


@dataclass(frozen=True, slots=True)
class Verdict:
    """One change of configuration of one deployment, with its judgement."""

    deployment_id: int
    epoch_id: int
    previous_epoch_id: int
    changed_ts: int
    name: str
    """Deployment and host as people call them."""
    edits: tuple[Edit, ...] = ()
    """Differences from the previous epoch, the driver included."""
    recommendation_id: int | None = None
    judgement: Judgement = Judgement(VerdictResult.PENDING)
    version_before: str | None = None
    version_after: str | None = None
    created_ts: int = 0
    judged_ts: int | None = None
    version: int = 0

    @property
    def dated_ts(self) -> int:
        """When it was judged; while it is pending, when the change was made."""
        return self.changed_ts if self.judged_ts is None else self.judged_ts


_RESULTS = {
    EffectVerdict.REALIZED: VerdictResult.CHEAPER,
    EffectVerdict.PARTIAL: VerdictResult.CHEAPER,
    EffectVerdict.REGRESSED: VerdictResult.DEARER,
    EffectVerdict.NO_EFFECT: VerdictResult.NO_EFFECT,
    EffectVerdict.OUTPUT_CHANGED: VerdictResult.OUTPUT_CHANGED,
}


def result_of(proven: EffectVerdict) -> VerdictResult:
    """Return a verification's effect on the cost of a token."""
    return _RESULTS.get(proven, VerdictResult.INCONCLUSIVE)


MOVE_CODES = ("regressed", "output-changed", "inconclusive", "no-effect", "partial", "realized")
"""Reason codes of moves by verdicts, the least favourable one first."""


def move_code(estimate: Variant | None, verdicts: Iterable[Judgement]) -> str | None:
    """Return the reason code of the move that the verdicts on a recommendation's changes make; None while one is open.

    Of several deployments the least favourable one counts, by the rules of `verification.estimate.judge`.
    """
    codes = [_move_code(estimate, judgement) for judgement in verdicts]
    if not codes or None in codes:
        return None
    return next(code for code in MOVE_CODES if code in codes)


def _move_code(estimate: Variant | None, judgement: Judgement) -> str | None:
    if judgement.result is not VerdictResult.CHEAPER or judgement.effect is None:
        return {
            VerdictResult.PENDING: None,
            VerdictResult.DEARER: "regressed",
            VerdictResult.NO_EFFECT: "no-effect",
            VerdictResult.OUTPUT_CHANGED: "output-changed",
        }.get(judgement.result, "inconclusive")
    low, likely, high = judgement.effect
    saving = Interval(-high, -likely, -low)
    if not proven(saving):
        return "inconclusive"
    return "realized" if kept(saving, promise_of(estimate)) else "partial"


def promise_of(estimate: Variant | None) -> Promise | None:
    """Return the promised change of the device-seconds per token; None where the estimate is no speed-up."""
    if estimate is None or estimate.throughput_ratio is None:
        return None
    low, likely, high = (1 - 1 / ratio for ratio in estimate.throughput_ratio)
    return Promise(low, likely, high)


def standing_verdicts(store: Store, as_of: int | None = None) -> tuple[Verdict, ...]:
    """Return every verdict, newest change first; none where no advice is stored. Raises StoreError.

    With `as_of`: verdicts on changes noted by then; those judged later are pending, as they were then.
    """
    if store.advice is None:
        return ()
    with store.read("advice") as connection:
        verdicts = read_verdicts(connection)[::-1]
    if as_of is None:
        return verdicts
    return tuple(_as_of(verdict, as_of) for verdict in verdicts if verdict.created_ts <= as_of)


def verdicts_of(store: Store, start: int, end: int, as_of: int | None = None) -> tuple[Verdict, ...]:
    """Return the verdicts that were passed in [start, end), and those pending on changes in it. Raises StoreError."""
    return tuple(verdict for verdict in standing_verdicts(store, as_of) if start <= verdict.dated_ts < end)


def _as_of(verdict: Verdict, as_of: int) -> Verdict:
    """Return a verdict as it was then. Why a pending one waits is not kept of earlier times."""
    if verdict.judged_ts is not None and verdict.judged_ts <= as_of:
        return verdict
    return replace(verdict, judgement=Judgement(VerdictResult.PENDING), judged_ts=None)


_COLUMNS = (
    *("deployment_id", "epoch_id", "previous_epoch_id", "changed_ts", "recommendation_id"),
    *("version_before", "version_after", "created_ts", "judged_ts"),
)
"""Columns that hold a field of a verdict as it is."""


def read_verdicts(connection: Connection) -> tuple[Verdict, ...]:
    """Return every verdict, oldest change first."""
    verdicts = []
    for row in repository.verdicts(connection):
        body, effect = json.loads(row.body), None
        low, likely, high = row.effect_low_1e6, row.effect_likely_1e6, row.effect_high_1e6
        if low is not None and likely is not None and high is not None:
            effect = low / _MILLIONTHS, likely / _MILLIONTHS, high / _MILLIONTHS
        judgement = Judgement(
            VerdictResult(row.result), effect, body["reason"], row.method or VERIFIED, body.get("due_ts")
        )
        columns = {name: getattr(row, name) for name in (*_COLUMNS, "version")}
        edits = tuple(Edit(*edit) for edit in body["edits"])
        verdicts.append(Verdict(name=body["name"], edits=edits, judgement=judgement, **columns))
    return tuple(verdicts)


def write(connection: Connection, verdicts: Iterable[Verdict]) -> None:
    """Store verdicts: new ones, which have no version, and changed ones in place of those that were read.

    Raises AdviceChanged if somebody else changed one of them since.
    """
    for verdict in verdicts:
        row = _to_row(verdict)
        if verdict.version:
            repository.put_verdict(connection, row, read_version=verdict.version)
        else:
            repository.add_verdict(connection, row)


def with_judgement(verdict: Verdict, judgement: Judgement, now_ts: int) -> Verdict:
    """Return a verdict with a judgement; one that is pending has no time."""
    decided = None if judgement.result is VerdictResult.PENDING else now_ts
    return replace(verdict, judgement=judgement, judged_ts=decided)


_MILLIONTHS = 1_000_000


def _to_row(verdict: Verdict) -> dict[str, object]:
    judged = verdict.judgement
    effect: Sequence[float | None] = judged.effect or (None, None, None)
    low, likely, high = (None if value is None else round(value * _MILLIONTHS) for value in effect)
    edits = [[edit.kind, edit.target, edit.field, edit.before, edit.after] for edit in verdict.edits]
    body = {"name": verdict.name, "edits": edits, "reason": judged.reason, "due_ts": judged.due_ts}
    return {
        **{name: getattr(verdict, name) for name in _COLUMNS},
        "result": judged.result.value,
        "effect_low_1e6": low,
        "effect_likely_1e6": likely,
        "effect_high_1e6": high,
        "method": judged.method,
        "body": json.dumps(body),
    }
