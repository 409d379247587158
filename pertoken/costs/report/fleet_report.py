"""Report of the fleet over a window: telemetry and prices joined into plain lines."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from pertoken.catalog.market import load_market
from pertoken.costs.bill import Bill, bill
from pertoken.costs.prices.selectors import formerly
from pertoken.costs.report.deployment_line import SloOf, deployment_line, fault, served
from pertoken.costs.report.device_line import device_line, host_line
from pertoken.costs.report.hints import hints, worth_a_hint
from pertoken.costs.report.host_use import HostUses
from pertoken.costs.report.lines import (
    DeviceLine,
    EventLine,
    FleetReport,
    Lines,
    LostPrice,
    MissingMetric,
)
from pertoken.costs.served import together
from pertoken.printable import natural_key
from pertoken.store.connect.open import Store
from pertoken.window.columns import newest, observed_share, rate, total
from pertoken.window.inventory import Inventory, fault_sentences, shown_place

MAX_MISSING = 150
"""Missing metrics of one host that a report lists: one of each MIG instance of the largest host."""


_LOST_AGES_S = (3600, *(day * 86_400 for day in range(1, 8)))
"""Ages at which a price that a device no longer has is looked for."""


def fleet_report(
    store: Store, window_s: int, now_ts: int, *, dated: bool = False, slo_of: SloOf | None = None
) -> FleetReport:
    """Everything the fleet screen and the summary show of the last `window_s` seconds.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then. With `slo_of` lines have the share
    of requests within the SLO, too.

    Raises StoreError if the database cannot be read.
    """
    with bill(store, now_ts - window_s, now_ts, dated=dated) as priced, priced.pipelined():
        current = _current(priced.inventory)
        priced.fetch_details()
        return _report(priced, current, shown_place(store.location, priced.inventory), slo_of)


def _current(inventory: Inventory) -> tuple[Any, ...]:
    """Return the newest epoch of each deployment, by model and host as people sort them."""
    host_names = {row.host_id: row.name for row in inventory.hosts}
    return tuple(
        sorted(
            inventory.newest.values(),
            key=lambda row: (natural_key(row.served_model), natural_key(host_names.get(row.host_id, ""))),
        )
    )


def _report(priced: Bill, current: Sequence[Any], source: str, slo_of: SloOf | None) -> FleetReport:
    inventory = priced.inventory
    hosts = tuple(host_line(priced, row) for row in inventory.hosts)
    # A host that stopped reporting has no "now": its lines keep their last figures, with their age.
    fresh = inventory.reporting
    heard = [
        priced.recent.devices.get(device_id) for device_id, row in inventory.devices.items() if row.host_id in fresh
    ]
    rates = [rate(priced.recent.of(row.deployment_id), "generated_tokens") for row in current if row.host_id in fresh]
    tokens = [served(priced, row.deployment_id, slo_of) for row in current]
    all_served = together(tokens)
    counted = [
        priced.observed(row.deployment_id)
        for row, device_tokens in zip(current, tokens, strict=True)
        if device_tokens.counted
    ]
    unseen = [bool(priced.totals.of(row.deployment_id).get("incomplete_n")) for row in current]
    resolved = {row.engine_id for row in inventory.epochs if row.epoch_id in inventory.heads}
    gaps = [
        row
        for row in priced.recent.gaps
        if row.status != "late" and (row.metric, row.owner_id in resolved) != ("rendezvous", True)
    ]
    gaps = _gaps_shown(gaps, inventory)
    missing = Lines(gaps, _Owners(priced).missing)
    now = {
        device_id: price
        for device_id, price in priced.price_of.items()
        if inventory.devices[device_id].host_id in fresh
    }
    per_hour = [price.nano_usd_per_device_hour for price in now.values() if price is not None]
    rates_now = [nano for nano in per_hour if nano is not None]
    serving = {device for row in current for device in inventory.epoch_devices.get(row.epoch_id, ())}
    unpriced = [device_id for device_id, price in now.items() if price is None]
    return FleetReport(
        now_ts=priced.window.end,
        window_s=priced.window.end - priced.window.start,
        source=source,
        hosts=hosts,
        devices=Lines(tuple(inventory.devices.values()), partial(device_line, priced)),
        deployments=Lines(tuple(current), partial(deployment_line, priced, load_market(), slo_of)),
        bill=priced.money.bill(),
        nano_usd_per_hour=sum(rates_now) if rates_now else None,
        unpriced_n=sum(inventory.devices[device_id].kind != "cpu" or device_id in serving for device_id in unpriced),
        unpriced_devices=tuple(
            inventory.device_names[device_name] for device_name in sorted(priced.money.unpriced_devices)
        ),
        nano_usd_per_mtok=all_served.price("blended"),
        served=all_served,
        generated_tok_s_now=total(rates),
        power_w=total([newest(row, "power_w") for row in heard]),
        incomplete=any(
            some and together([own_tokens]).price("blended") for some, own_tokens in zip(unseen, tokens, strict=True)
        ),
        missing=missing,
        events=tuple(EventLine(row.last_ts, row.kind, row.message, row.count) for row in priced.recent.events),
        bill_observed=priced.bill_observed(),
        coverage=observed_share(sum(min(counts) for counts in counted), sum(ms for _, ms in counted)),
        estimated=priced.money.estimated,
        lost_prices=_lost_prices(priced, [inventory.devices[device_id] for device_id in unpriced]),
        uses=Lines(hosts, HostUses(priced, current, fresh, slo_of).use),
        hints=hints(
            hosts,
            _kinds(priced, serving),
            [(row.served_model, fault(priced, row.engine_id)) for row in current],
            [missing[i] for i, gap in enumerate(gaps) if worth_a_hint(gap)],
            _lost(priced),
            fault_sentences(inventory),
        ),
    )


def _gaps_shown(gaps: Sequence[Any], inventory: Inventory) -> list[Any]:
    """Return at most `MAX_MISSING` missing metrics of each host; those whose owner has no host count as one host's."""
    host_of = {row.engine_id: row.host_id for row in inventory.epochs}
    host_of |= {device_id: row.host_id for device_id, row in inventory.devices.items()}
    host_of |= {host_id: host_id for host_id in inventory.host}
    by_host: dict[int | None, int] = defaultdict(int)
    shown = []
    for gap in gaps:
        host_id = host_of.get(gap.owner_id)
        by_host[host_id] += 1
        if by_host[host_id] <= MAX_MISSING:
            shown.append(gap)
    return shown


def _kinds(priced: Bill, serving: Collection[int]) -> list[tuple[DeviceLine, bool]]:
    """Return one device of each kind, name and price, and whether one of these serves: its hint is for all of them."""
    counts: dict[tuple[Any, ...], int] = {}
    for device_id, price in priced.price_of.items():
        row = priced.inventory.devices[device_id]
        listed = price.note if price and price.listed else None
        counts.setdefault((row.kind, row.name, price is None, listed, device_id in serving), device_id)
    return [(device_line(priced, priced.inventory.devices[count]), count in serving) for count in counts.values()]


def _lost(priced: Bill) -> list[tuple[str, tuple[str, ...]]]:
    """Selectors of prices in force that named devices when any part of a name matched, with the names of those."""
    newest = {price.selector: price for price in priced.prices.prices}
    devices_by_id = priced.inventory.devices
    devices = (
        {devices_by_id[device_id].name: devices_by_id[device_id] for device_id in priced.price_of} if newest else {}
    )
    lost_names = (
        (selector, tuple(name for name, row in devices.items() if formerly(selector, row)))
        for selector, price in newest.items()
        if price.nano_usd_per_device_hour is not None
    )
    return [(selector, names) for selector, names in lost_names if names]


def _lost_prices(priced: Bill, unpriced: Sequence[Any]) -> tuple[LostPrice, ...]:
    """Return the names of devices without a price now that had one in the last week."""
    earlier = [priced.window.end - age_s for age_s in _LOST_AGES_S]
    rates: dict[str, list[int]] = defaultdict(list)
    for row in unpriced:
        last_rate = next((price for ts in earlier if (price := priced.prices.rate(row, ts)) is not None), None)
        if last_rate is not None:
            rates[row.name].append(last_rate)
    return tuple(LostPrice(name, len(rates[name]), sum(rates[name])) for name in sorted(rates))


class _Owners:
    """Names of the owners of missing metrics."""

    def __init__(self, priced: Bill) -> None:
        inventory = priced.inventory
        self._names = {row.engine_id: row.base_url for row in inventory.epochs}
        self._names |= {row.host_id: row.name for row in inventory.hosts}
        self._names.update(inventory.device_names)

    def missing(self, row: Any) -> MissingMetric:
        """Return the line of a metric that is missing."""
        owner = self._names.get(row.owner_id, "engine")
        return MissingMetric(owner, row.metric, row.status, row.reason or "", row.remedy, row.owner_id)
