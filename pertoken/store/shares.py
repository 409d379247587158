"""Who holds a device: rows for what is shared, and one word of the deployment where it holds its devices whole.

Most devices belong to one deployment, and nothing else, for weeks. Then a row for each device and tick would only say
again what the deployment's row and the devices of its epoch say: it is left out, and read as if it were there. The
devices of an epoch never change once they are known (`agent.rows.epochs`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import BigInteger, CompoundSelect, Connection, cast, literal, select, union_all

from pertoken.store import telemetry as t
from pertoken.store.answers import Rows
from pertoken.store.rows import DeploymentSample, DeviceShare
from pertoken.units import SHARE


def devices_of(connection: Connection) -> dict[int, tuple[int, ...]]:
    """Devices of every epoch."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for epoch_id, device_id in connection.execute(select(t.epoch_device)):
        found[epoch_id].append(device_id)
    return {epoch_id: tuple(each) for epoch_id, each in found.items()}


def folded(samples: Sequence[Any], devices: Mapping[int, tuple[int, ...]]) -> list[Any]:
    """Samples of a tick, where shares that a deployment's row can tell are told by it; by the devices of each epoch."""
    shares: defaultdict[int, list[DeviceShare]] = defaultdict(list)
    for each in samples:
        if type(each) is DeviceShare and each.share_1e6 == SHARE:
            shares[each.epoch_id].append(each)
    whole: dict[int, int] = {}
    for sample in samples:
        if type(sample) is DeploymentSample:
            provenance = _whole(sample, shares.get(sample.epoch_id, ()), devices.get(sample.epoch_id, ()))
            if provenance is not None:
                whole[sample.epoch_id] = provenance
    return [
        replace(each, whole_provenance=whole[each.epoch_id])
        if type(each) is DeploymentSample and each.epoch_id in whole
        else each
        for each in samples
        if not (type(each) is DeviceShare and each.share_1e6 == SHARE and each.epoch_id in whole)
    ]


def _whole(sample: DeploymentSample, shares: Sequence[DeviceShare], devices: Sequence[int]) -> int | None:
    """By what it is known that the shares are all of each device, over the sample's time; None if they are not."""
    if not shares or len(shares) != len(devices) or {each.device_id for each in shares} != set(devices):
        return None
    told = {(each.ts, each.duration_ms, each.busy_ms, int(each.provenance)) for each in shares}
    ts, duration_ms, busy_ms, provenance = next(iter(told))
    at_most_ms = sample.busy_ms or 0
    if sample.busy_ms is None and sample.busy_provenance is not None:
        at_most_ms = sample.observed_ms
    same = (ts, duration_ms, busy_ms) == (sample.ts, sample.duration_ms, min(at_most_ms, sample.duration_ms))
    return provenance if len(told) == 1 and same else None


def shares(seconds: int, rows: Any, whole: Any) -> CompoundSelect[Any]:
    """(device_id, ts, epoch_id, held_ns, busy_ns, provenance) by the minute or the hour.

    `rows` and `whole` are what is asked of the roll-up of shares and of that of deployments (with `epoch_device`). A
    device may come twice for one epoch and bucket, if it was held whole for a part of it: its times add up.
    """
    part, deployment, device = t.share_rollup[seconds].c, t.deployment_rollup[seconds], t.epoch_device.c
    unit = cast(literal(SHARE), BigInteger)
    of = deployment.c
    return union_all(
        select(part.device_id, part.ts, part.epoch_id, part.held_ns, part.busy_ns, part.provenance).where(rows),
        select(
            device.device_id,
            of.ts,
            of.epoch_id,
            (of.whole_ms * unit).label("held_ns"),
            (of.whole_busy_ms * unit).label("busy_ns"),
            of.whole_provenance,
        )
        .join_from(deployment, t.epoch_device, device.epoch_id == of.epoch_id)
        .where(of.whole_ms.is_not(None), whole),
    )


def held(shared: Rows, totals: Rows, devices: Mapping[int, Sequence[int]]) -> dict[int, dict[int, tuple[int, int]]]:
    """device_id -> epoch_id -> (held_ns, busy_ns) over the same time: of rows of `sums.shared_time`, and of
    `sums.deployment_totals` what each epoch held whole of its devices."""
    found: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in totals:
        if row.whole_ms is not None:
            whole = row.whole_ms * SHARE, row.whole_busy_ms * SHARE
            for device_id in devices.get(row.epoch_id, ()):
                found[device_id][row.epoch_id] = whole
    for device_id, epoch_id, held_ns, busy_ns in shared:
        before = found[device_id].get(epoch_id, (0, 0))  # held whole for another part of the time
        found[device_id][epoch_id] = held_ns + before[0], busy_ns + before[1]
    return found
