"""Design of a trial: the replica that gets the change, and its comparison."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pertoken.errors import BadInput
from pertoken.proof.changes import seen_edits
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.proof.trials.trial import Arm, Design, Trial
from pertoken.state.deployment import is_owner_knob
from pertoken.window.columns import Floats, Ints
from pertoken.window.inventory import Inventory
from pertoken.window.like_for_like import HourlyOutcomes

MINUTES = 120
"""Minutes of two replicas that are compared. A judgement: 12 blocks of ten minutes."""
BLOCK_MINUTES = 30
"""Minutes that count of each block of a switchback, at least as many as the warm-up has."""
BLOCKS = 8
"""Blocks of a switchback."""
WARM_UP_S = 1800
"""Warm-up of a cache where none was seen. A judgement."""
MAX_WARM_UP_S = 6 * 3600
"""Time after a restart in which caches are observed."""
WARM = 0.9
"""Part of its later cached share at which a cache is warm."""


def planned(
    row: Recommendation,
    inventory: Inventory,
    now_ts: int,
    warm_up_s: int,
    *,
    minutes: int | None = None,
    blocks: int | None = None,
) -> Trial:
    """Return the trial of an accepted recommendation by what runs. Raises BadInput where none would show anything."""
    assert row.estimate is not None
    edits = [edit for edit in seen_edits(row.estimate) if edit.kind == "deployment" and edit.field != "running"]
    targets = [
        deployment_id
        for deployment_id in dict.fromkeys(int(edit.target) for edit in edits)
        if deployment_id in inventory.running
    ]
    if not targets:
        raise BadInput(
            f"{short_id(row)}: a trial restarts one engine with another configuration, and this change is none; "
            f"`pertoken applied {short_id(row)}` declares it"
        )
    canary = inventory.running[targets[0]]
    control = next(_alike(canary, inventory), None)
    design = Design.SWITCHBACK if control is None else Design.REPLICAS
    counted = minutes or (MINUTES if control is not None else max(BLOCK_MINUTES, warm_up_s // 60))
    return Trial(
        row.recommendation_id,
        design,
        now_ts,
        _arm(canary),
        None if control is None else _arm(control),
        tuple(edit for edit in edits if int(edit.target) == canary.deployment_id),
        counted,
        warm_up_s,
        blocks=1 if control is not None else blocks or BLOCKS,
    )


def _alike(canary: Any, inventory: Inventory) -> Iterator[Any]:
    """Yield the newest epochs of other replicas that run as the canary does."""
    for deployment_id, row in sorted(inventory.running.items()):
        if deployment_id != canary.deployment_id and _configuration(row, inventory) == _configuration(
            canary, inventory
        ):
            yield row


def _configuration(row: Any, inventory: Inventory) -> tuple[Any, ...]:
    knobs = {name: value for name, value in json.loads(row.knobs).items() if not is_owner_knob(name)}
    names = sorted(str(device_id.name) for device_id in inventory.held(row.epoch_id))
    return row.served_model, row.engine_kind, row.engine_version, knobs, names


def _arm(row: Any) -> Arm:
    return Arm(row.deployment_id, row.engine_id, f"{row.served_model} on {row.host_name}", row.base_url)


def warm_up_s(minutes: HourlyOutcomes, starts: Iterable[int]) -> int | None:
    """Return how long caches were cold after the starts of epochs, the longest time; None where that was not seen.

    `minutes` of the deployment. A cache is warm once ten minutes have `WARM` of the cached share of the hours after.
    """
    shares = minutes.cached_share
    if shares is None:
        return None
    minutes_after = [_warm_after(minutes.ts, shares, start) for start in starts]
    return max((minute for minute in minutes_after if minute is not None), default=None)


def _warm_after(ts: Ints, shares: Floats, start: int) -> int | None:
    inside = (ts >= start) & (ts < start + MAX_WARM_UP_S)
    at, values = ts[inside] - start, shares[inside]
    if len(values) < 60 or at[0] > 600:
        return None
    later = float(np.median(values[len(values) // 2 :]))
    means: Sequence[float] = np.convolve(values, np.ones(10) / 10, "valid").tolist()
    return next((int(at[n]) for n, mean in enumerate(means) if mean >= WARM * later), None)
