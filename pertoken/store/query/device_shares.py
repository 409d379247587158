"""Time for which epochs held devices: shared rows, and devices of one deployment alone (`store.write.shares`)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, CompoundSelect, cast, literal, select, union_all

from pertoken.store.query.fast_rows import Rows
from pertoken.store.schema import telemetry as t
from pertoken.units import SHARE


def shares(seconds: int, rows: Any, whole: Any) -> CompoundSelect[Any]:
    """Return (device_id, ts, epoch_id, held_ns, busy_ns, provenance) by the minute or the hour.

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


def allocated_ns(
    shared: Rows, totals: Rows, devices: Mapping[int, Sequence[int]]
) -> dict[int, dict[int, tuple[int, int]]]:
    """Return device_id -> epoch_id -> (held_ns, busy_ns) over the same time: of rows of `sums.shared_time`, and of
    `sums.deployment_totals` what each epoch held whole of its devices."""
    by_device: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in totals:
        if row.whole_ms is not None:
            whole = row.whole_ms * SHARE, (row.whole_busy_ms or 0) * SHARE
            for device_id in devices.get(row.epoch_id, ()):
                by_device[device_id][row.epoch_id] = whole
    for device_id, epoch_id, held_ns, busy_ns in shared:
        before = by_device[device_id].get(epoch_id, (0, 0))  # held whole for another part of the time
        by_device[device_id][epoch_id] = held_ns + before[0], busy_ns + before[1]
    return by_device
