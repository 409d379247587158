"""Releases: devices that recommendations gave back, and whether the remaining service is unharmed.

Devices that stop begin no epoch, so that no verdict belongs to them. What they save is their price; what is tested is
the latency and the demand of the models that they served.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from pertoken.config import Settings
from pertoken.costs.bill import Bill
from pertoken.costs.fleet import service_name
from pertoken.proof.judging import receipts
from pertoken.proof.judging.receipts import Kind, StoredReceipt
from pertoken.proof.judging.service import limits, service_level
from pertoken.proof.receipts.receipt import NOT_MEASURED, Change, NanoUsd, Receipt, ServiceLevel, kept, receipt
from pertoken.proof.recommendation import Recommendation, State, Variant, short_id
from pertoken.proof.verification.question import WEEK_OF_HOURS, Cycle
from pertoken.proof.verification.release import Release, ReleaseQuestion, Served
from pertoken.proof.verification.windows import MAX_BASELINE_DAYS
from pertoken.store import repository
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import MINUTE
from pertoken.units import format_utc
from pertoken.window.inventory import STOPPED_S, Inventory
from pertoken.window.reading import Window

AFTER_DAYS = 7
"""Days after a release at which it is judged."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Hosts, devices and models that a recommendation releases."""

    devices: frozenset[int]
    hosts: frozenset[int]
    """Hosts that go with all of their devices."""
    extra: int
    """Devices of replicas that were promised to go without being named."""
    models: frozenset[str]
    """What was served on them."""


def releases(variant: Variant) -> bool:
    """Return whether a variant gives devices back."""
    fewer = variant.replicas is not None and variant.replicas[1] < variant.replicas[0]
    return bool(variant.released) or fewer or any(_stops(variant))


def due(connection: Connection, rows: Iterable[Recommendation], now_ts: int, day_s: int) -> dict[int, int]:
    """Return the recommendations whose release is judged now, with the time at which they were applied."""
    released = {}
    for row in rows:
        if row.state in (State.APPLIED, State.VERIFYING) and row.estimate is not None and releases(row.estimate):
            since = last_applied(connection, row.recommendation_id)
            if since is not None and now_ts >= since + AFTER_DAYS * day_s:
                released[row.recommendation_id] = since
    return released


def last_applied(connection: Connection, recommendation_id: int) -> int | None:
    """Return when a recommendation was last applied, epoch seconds; None: never."""
    moves = repository.transitions(connection, recommendation_id)
    applied = [int(move.ts) for move in moves if move.to_state == State.APPLIED.value]
    return applied[-1] if applied else None


class Releases:
    """Judges releases within a transaction that reads telemetry."""

    def __init__(
        self, store: Store, connection: Connection, settings: Settings, now_ts: int, cycle: Cycle = WEEK_OF_HOURS
    ) -> None:
        self._store, self._connection, self._settings = store, connection, settings
        self._now_ts, self._cycle = now_ts, cycle

    def receipt(self, row: Recommendation, applied_ts: int, kind: Kind = Kind.VERDICT) -> tuple[Receipt, StoredReceipt]:
        """Return the receipt of a release by what is known now, also as it is stored."""
        minute = applied_ts // MINUTE * MINUTE
        before = Window(self._connection, minute - MAX_BASELINE_DAYS * self._cycle.day_s, minute, dated=True)
        after = Window(self._connection, applied_ts, self._now_ts)
        assert row.estimate is not None
        gone = promised(row, row.estimate, before.inventory, applied_ts, self._settings)
        with_host, unheld = released(gone, before.inventory, after.inventory, applied_ts + self._cycle.day_s)
        levels = self._levels(gone.models, applied_ts)
        agreed = _strictest([limits(model, self._settings) for model in sorted(gone.models)])
        left = len(with_host) + len(unheld)
        more = _unheld(gone.models, before.inventory, after.inventory) - left if gone.extra else 0
        left += min(gone.extra, max(0, more))
        asked = ReleaseQuestion(
            Release(len(gone.devices) + gone.extra, left, kept(levels[1], agreed)),
            self._served(gone.models, before, after) if gone.models else None,
            applied_ts,
            self._now_ts,
            self._nano_usd_per_hour(with_host, before, minute) if with_host else None,
            self._cycle,
        )
        estimated = row.estimate.net
        change = Change(
            title=row.estimate.title,
            target=row.target,
            before=_more(len(gone.devices) + gone.extra),
            rule=row.rule_id,
            recommendation=short_id(row),
            estimated_per_month=NanoUsd(*estimated) if estimated else None,
            moving=row.estimate.moving,
        )
        made = receipt(asked, change, self._now_ts, None, levels, agreed)
        stored = receipts.of(
            asked, made, kind, deployment_id=None, epoch_id=None, recommendation_id=row.recommendation_id
        )
        return made, stored

    def _levels(self, models: Iterable[str], applied_ts: int) -> tuple[ServiceLevel, ServiceLevel]:
        days_s = AFTER_DAYS * self._cycle.day_s
        levels = []
        for start, end in ((applied_ts - days_s, applied_ts), (self._now_ts - days_s, self._now_ts)):
            window = Window(self._connection, max(start, 0), end)
            ids = _serving(models, window.inventory)
            levels.append(service_level(window, ids) if ids else NOT_MEASURED)
        return levels[0], levels[1]

    def _served(self, models: Iterable[str], before: Window, after: Window) -> Served:
        """Return the tokens of all deployments of some models, hour by hour."""
        tokens: dict[int, int] = {}
        for window in (before, after):
            for deployment_id in _serving(models, window.inventory):
                for ts, count in zip(*window.hourly_tokens(deployment_id, self._cycle.bucket_s), strict=True):
                    tokens[int(ts)] = tokens.get(int(ts), 0) + int(count)
        ordered = sorted(tokens)
        rates = [tokens[ts] / self._cycle.bucket_s for ts in ordered]
        return Served(np.array(ordered, np.int64), np.array(rates, np.float64))

    def _nano_usd_per_hour(self, devices: Iterable[int], before: Window, applied_ts: int) -> int | None:
        prices = Bill(self._store, self._connection, before).prices
        rates = prices.rates((before.inventory.devices[device_id] for device_id in sorted(devices)), applied_ts - 1)
        known = [nano_usd for nano_usd in rates if nano_usd is not None]
        return sum(known) if len(known) == len(rates) else None


def promised(row: Recommendation, variant: Variant, inventory: Inventory, applied_ts: int, settings: Settings) -> Gone:
    """Return the release that a variant promised, by the fleet before it was applied."""
    hosts = {host.host_id for host in inventory.hosts if host.name in variant.released}
    hosts |= {int(edit.target) for edit in variant.edits if edit.kind == "host" and edit.field == "running"}
    stopped = {int(target) for target in _stops(variant)}
    epochs = [
        served
        for served in inventory.served
        if served.start_ts < applied_ts and (served.end_ts is None or served.end_ts >= applied_ts - STOPPED_S)
    ]
    devices = {key for key, device in inventory.devices.items() if device.host_id in hosts and device.parent_id is None}
    models = set()
    for epoch in epochs:
        held = set(inventory.epoch_devices.get(epoch.epoch_id, ()))
        if epoch.deployment_id in stopped:
            devices |= held
        if epoch.deployment_id in stopped or held & devices:
            models.add(str(epoch.served_model))
    own = [
        epoch
        for epoch in epochs
        if row.target_kind == "service" and service_name(epoch.served_model, settings) == row.target_key
    ]
    models |= {str(epoch.served_model) for epoch in own}
    extra = 0
    if variant.replicas is not None and own:
        fewer = variant.replicas[0] - variant.replicas[1]
        extra = max(0, fewer * len(inventory.epoch_devices.get(own[0].epoch_id, ())) - len(devices))
    return Gone(frozenset(devices & set(inventory.devices)), frozenset(hosts), extra, frozenset(models))


def released(gone: Gone, before: Inventory, after: Inventory, silent_ts: int) -> tuple[frozenset[int], frozenset[int]]:
    """Return the devices that were released with their host, and those that no epoch holds any more.

    A host is gone if it has reported nothing since `silent_ts`: one that reports is paid for, whatever runs on it.
    """
    newest = {row.host_id: row.newest_ts for row in after.hosts}
    held = {device_id for row in after.running.values() for device_id in after.epoch_devices.get(row.epoch_id, ())}
    host_of = {device: before.devices[device].host_id for device in gone.devices}
    with_host = frozenset(device_id for device_id, host in host_of.items() if (newest.get(host) or 0) < silent_ts)
    unheld = {device_id for device_id, host in host_of.items() if device_id not in held and host not in gone.hosts}
    return with_host, frozenset(unheld) - with_host


def _stops(variant: Variant) -> Iterator[int | str]:
    """Yield the deployments that a variant stops."""
    for edit in variant.edits:
        if edit.kind == "deployment" and edit.field == "running" and edit.after is False:
            yield edit.target


def _unheld(models: frozenset[str], before: Inventory, after: Inventory) -> int:
    """Return how many devices fewer hold the models of a release."""
    counts = []
    for inventory in (before, after):
        held: set[int] = set()
        for row in inventory.running.values():
            held |= set(inventory.epoch_devices.get(row.epoch_id, ())) if row.served_model in models else set()
        counts.append(len(held))
    return max(0, counts[0] - counts[1])


def _serving(models: Iterable[str], inventory: Inventory) -> tuple[int, ...]:
    wanted = set(models)
    return tuple(sorted(key for key, row in inventory.newest.items() if row.served_model in wanted))


def _strictest(agreed: list[ServiceLevel]) -> ServiceLevel:
    values: Mapping[str, list[float]] = {
        name: [value for level in agreed if (value := getattr(level, name)) is not None]
        for name in ("ttft_p95_s", "tpot_p95_s")
    }
    return ServiceLevel(*(min(values_of_day, default=None) for values_of_day in values.values()))


def _more(devices: int) -> str:
    return "1 more device" if devices == 1 else f"{devices} more devices"


def sentence(made: Receipt, applied_ts: int) -> str:
    """Return why a release got its verdict."""
    assert made.release is not None
    release = made.release
    figures = (
        f"{release.released_devices} of {release.promised_devices} devices released since {format_utc(applied_ts)}"
    )
    return figures if made.finding.reason is None else f"{figures}: {made.finding.reason}"
