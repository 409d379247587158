"""Worker ranks and their head rank on several hosts, joined to one deployment where the rows of both hosts are stored.

A host reports only the rendezvous address and the model of ranks that another host leads. They join the one
deployment that
meets there with the same model. With none or several they stay unresolved, and their devices count as busy.
"""

import ipaddress
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pertoken.provenance import Provenance

FOLLOWING = "rendezvous://"
"""How the address of ranks that follow begins."""


def heads(epochs: Iterable[Any]) -> Mapping[int, int]:
    """Epoch of ranks that follow -> the deployment that leads them, for all of `read.epochs` that can be joined."""
    rows = list(epochs)
    leading = [(row, address) for row in rows if not follows(row) and (address := _meeting(row)) is not None]
    head_of: dict[int, int] = {}
    for row in rows:
        address = _meeting(row) if follows(row) else None
        if address is None:
            continue
        led_by = {
            head.deployment_id
            for head, met in leading
            if met == address
            and (head.engine_kind, head.host_id == row.host_id) == (row.engine_kind, False)
            and _same_model(row, head)
            and _overlap(row, head)
        }
        if len(led_by) == 1:
            head_of[row.epoch_id] = led_by.pop()
    return head_of


def devices(
    held: Mapping[int, tuple[int, ...]], epochs: Iterable[Any], led: Mapping[int, int]
) -> dict[int, tuple[int, ...]]:
    """Devices of each epoch, with those of the ranks that follow it while it lasts."""
    rows = list(epochs)
    followers: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        if row.epoch_id in led:
            followers[led[row.epoch_id]].append(row)
    return {
        row.epoch_id: (
            *held.get(row.epoch_id, ()),
            *(
                device
                for other in followers.get(row.deployment_id, ())
                if _overlap(other, row)
                for device in held.get(other.epoch_id, ())
            ),
        )
        for row in rows
    }


class BusyShare(NamedTuple):
    """Part of the observed time of a bucket in which a deployment was busy, and the worst provenance of that."""

    part: float
    provenance: int


def busy_shares(buckets: Iterable[Any], of_epoch: Mapping[int, int]) -> dict[tuple[int, int], BusyShare]:
    """Return how busy each deployment was, by (deployment, ts)."""
    busy: dict[tuple[int, int], int] = {}
    observed: dict[tuple[int, int], int] = {}
    provenance: dict[tuple[int, int], int] = {}
    for row in buckets:
        key = of_epoch.get(row.epoch_id, 0), row.ts
        if row.busy_ms is not None:
            busy[key] = busy.get(key, 0) + row.busy_ms
            observed[key] = observed.get(key, 0) + row.observed_ms
            provenance[key] = max(provenance.get(key, 0), row.busy_provenance or 0)
    return {key: BusyShare(min(1.0, busy[key] / ms), provenance[key]) for key, ms in observed.items() if ms}


def busy_ns(share: Any, led: Mapping[int, int], busy: Mapping[tuple[int, int], BusyShare]) -> tuple[int, int]:
    """Return how long worker ranks were busy of the time they held a device, and by what provenance.

    They are busy while their head is. Where nothing is known of the head, their own row is an upper bound.
    """
    head = busy.get((led[share.epoch_id], share.ts))
    if head is None:
        return int(share.busy_ns), int(Provenance.BOUND)
    return round(share.held_ns * head.part), head.provenance


def follows(row: Any) -> bool:
    """Return whether an epoch is of worker ranks, whose head rank another host has."""
    return str(row.base_url).startswith(FOLLOWING)


def _meeting(row: Any) -> str | None:
    """Return the rendezvous address of an epoch's ranks; None if other hosts cannot meet there."""
    address = json.loads(row.knobs).get("rendezvous") if "rendezvous" in row.knobs else None
    if not isinstance(address, str):
        return None
    return None if any(map(_loopback, (address, address.rpartition(":")[0].strip("[]")))) else address


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _same_model(follower: Any, head: Any) -> bool:
    """Return whether two epochs may serve one model. Ray workers do not know theirs: the address alone decides then."""
    names: Sequence[str] = [str(name).rstrip("/") for name in (head.model_path, head.served_model) if name]
    return follower.model_path is None or str(follower.model_path).rstrip("/") in names


def _overlap(one: Any, other: Any) -> bool:
    ends = [row.end_ts if row.end_ts is not None else float("inf") for row in (one, other)]
    return bool(max(one.start_ts, other.start_ts) < min(ends))
