"""Stored measurements of `pertoken probe`: their deployment, their storage, and their validity."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from pertoken.costs.bill import bill
from pertoken.evidence import OperatingPoint
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.repository import AdviceRepository
from pertoken.window.inventory import Inventory

LOOKED_BACK_S = 3600
"""Only deployments that served within this time can be probed."""
_FIELDS = {field.name for field in fields(OperatingPoint)}


@dataclass(frozen=True, slots=True)
class Probed:
    """The recorded deployment at an endpoint."""

    deployment_id: int
    name: str
    nano_usd_per_hour: int | None
    """Price of all its devices; None if one has no price."""


def probed_deployment(store: Store, endpoint: str, host_name: str, now_ts: int) -> Probed | None:
    """Return the recorded deployment at an endpoint; None if there is none, or several match.

    A loopback address belongs to the host `host_name`. Raises StoreError.
    """
    with bill(store, now_ts - LOOKED_BACK_S, now_ts) as priced:
        inventory, prices = priced.inventory, priced.prices
    place = _address(endpoint)
    local = place is not None and place[0] == LOCAL
    at = [
        row
        for row in inventory.running.values()
        if _address(row.base_url) == place and (row.host_name == host_name or not local)
    ]
    if len(at) != 1:
        return None
    (row,) = at
    rates = prices.rates(inventory.held(row.epoch_id), now_ts)
    known = [rate for rate in rates if rate is not None]
    whole = sum(known) if known and len(known) == len(rates) else None
    return Probed(row.deployment_id, row.served_model, whole)


LOCAL = "loopback"


def _address(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL, with `LOCAL` for all loopback addresses; None for any other than an HTTP URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        return None
    return LOCAL if _is_loopback(parts.hostname) else parts.hostname, parts.port or (
        443 if parts.scheme == "https" else 80
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keep(
    where: StoreLocation,
    deployment_id: int,
    started_ts: int,
    ended_ts: int,
    endpoint: str,
    who: str,
    points: Sequence[OperatingPoint],
    more: Mapping[str, object],
) -> None:
    """Store the points that a probe measured, with further facts, in the advice database. Raises StoreError."""
    with AdviceRepository(where).writing() as connection:
        repository.add_probe(
            connection,
            deployment_id=deployment_id,
            started_ts=started_ts,
            ended_ts=ended_ts,
            endpoint=endpoint,
            who=who,
            body=json.dumps({**more, "points": [asdict(point) for point in points]}),
        )


def probe_points(store: Store, inventory: Inventory, now_ts: int) -> Mapping[int, tuple[OperatingPoint, ...]]:
    """Return the points that probes measured in the present epoch of each deployment, by deployment id.

    A change of engine, version, driver, model or knob ends the epoch and invalidates its measurements.
    """
    if store.advice is None:
        return {}
    with store.read("advice") as connection:
        rows = repository.probes(connection)
    by_deployment: dict[int, list[OperatingPoint]] = defaultdict(list)
    for row in rows:
        epoch = inventory.running.get(row.deployment_id)
        if epoch is not None and epoch.start_ts <= row.started_ts and row.ended_ts <= now_ts:
            by_deployment[row.deployment_id] += _points(json.loads(row.body))
    return {deployment_id: tuple(points) for deployment_id, points in by_deployment.items()}


def _points(body: Mapping[str, Any]) -> list[OperatingPoint]:
    return [
        OperatingPoint(**{name: value for name, value in point.items() if name in _FIELDS}) for point in body["points"]
    ]
