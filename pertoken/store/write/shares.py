"""Shares of devices: rows for shared devices, and columns of the deployment's row where it holds devices alone.

Most devices belong to one deployment, and nothing else, for weeks. Then a row for each device and tick would only
repeat what the deployment's row and the devices of its epoch hold: it is left out, and read as if it were there. The
devices of an epoch never change once they are known (`agent.rows.epochs`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, DeviceShare
from pertoken.units import SHARE


def devices_of(connection: Connection) -> dict[int, tuple[int, ...]]:
    """Return devices of every epoch."""
    by_epoch: defaultdict[int, list[int]] = defaultdict(list)
    for epoch_id, device_id in connection.execute(select(t.epoch_device)):
        by_epoch[epoch_id].append(device_id)
    return {epoch_id: tuple(device_ids) for epoch_id, device_ids in by_epoch.items()}


def folded(samples: Sequence[Any], devices: Mapping[int, tuple[int, ...]]) -> list[Any]:
    """Return the samples of a tick without the shares that a deployment's row implies.

    `devices` are those of each epoch."""
    shares: defaultdict[int, list[DeviceShare]] = defaultdict(list)
    for item in samples:
        if type(item) is DeviceShare and item.share_1e6 == SHARE:
            shares[item.epoch_id].append(item)
    whole: dict[int, int] = {}
    for sample in samples:
        if type(sample) is DeploymentSample:
            provenance = _whole(sample, shares.get(sample.epoch_id, ()), devices.get(sample.epoch_id, ()))
            if provenance is not None:
                whole[sample.epoch_id] = provenance
    return [
        replace(sample, whole_provenance=whole[sample.epoch_id])
        if type(sample) is DeploymentSample and sample.epoch_id in whole
        else sample
        for sample in samples
        if not (type(sample) is DeviceShare and sample.share_1e6 == SHARE and sample.epoch_id in whole)
    ]


def _whole(sample: DeploymentSample, shares: Sequence[DeviceShare], devices: Sequence[int]) -> int | None:
    """By what it is known that the shares are all of each device, over the sample's time; None if they are not."""
    if not shares or len(shares) != len(devices) or {share.device_id for share in shares} != set(devices):
        return None
    shares_seen = {(share.ts, share.duration_ms, share.busy_ms, int(share.provenance)) for share in shares}
    ts, duration_ms, busy_ms, provenance = next(iter(shares_seen))
    at_most_ms = sample.busy_ms or 0
    if sample.busy_ms is None and sample.busy_provenance is not None:
        at_most_ms = sample.observed_ms
    same = (ts, duration_ms, busy_ms) == (sample.ts, sample.duration_ms, min(at_most_ms, sample.duration_ms))
    return provenance if len(shares_seen) == 1 and same else None
