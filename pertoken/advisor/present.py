"""Input of an advice run: the present fleet, the evidence of each part, and its prices."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pertoken.advisor.changes.commands import Addresses, DeviceAddress
from pertoken.advisor.probed.cpus import with_cpus
from pertoken.advisor.probed.stored import probe_points
from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.bill import bill
from pertoken.costs.fleet import fleet, service_name
from pertoken.costs.prices.book import Price, PriceBook, Priced
from pertoken.costs.prices.selectors import accelerators, rank
from pertoken.costs.prices.set_offers import set_offers
from pertoken.costs.prices.stored import ownership
from pertoken.errors import BadInput
from pertoken.evidence import Evidence
from pertoken.proof.judging.recalibration import realised
from pertoken.savings.context import Context, EnergyPrice
from pertoken.savings.forecasts import Forecasts
from pertoken.state.fleet import Fleet
from pertoken.state.service import Slo
from pertoken.state.workload import Workload, parsed
from pertoken.store.connect.open import Store
from pertoken.store.schema.words import WORKLOAD
from pertoken.units import NANO_USD, SHARE
from pertoken.window.inventory import Inventory
from pertoken.window.progress import Progress, no_progress, ticking
from pertoken.window.reading import NOTHING_ELSEWHERE, Waiting

MAX_SEQ = 2**62
"""Sequence number of an assumed price: later than all stored ones."""


@dataclass(frozen=True, slots=True)
class Present:
    """Everything that one advice run reads."""

    fleet: Fleet
    context: Context
    hosts: Mapping[int, Evidence]
    """Evidence of all accelerators of a host, by host id."""
    names: Mapping[int, str]
    """Names of devices, hosts and deployments for people, by id."""
    addresses: Addresses
    window_s: int
    """Length of the window, seconds."""
    configured_rules: frozenset[str] = frozenset()
    """Ids of rules with options in the configuration."""
    forbidden: tuple[str, ...] = ()
    """Names of changes that no proposal may make (`advisor.forbid`)."""


def present(
    store: Store,
    market: Market,
    window_s: int,
    now_ts: int,
    settings: Settings | None = None,
    progress: Progress = no_progress,
    *,
    dated: bool = False,
    assumed: Sequence[Price] = (),
    elsewhere: Waiting = NOTHING_ELSEWHERE,
) -> Present:
    """Read the last `window_s` seconds. Evidence covers only the present epoch of each deployment.

    With `dated`, `now_ts` is a whole minute in the past and prices and settings are those of that time. `assumed`
    prices override the configured ones. `elsewhere` are parts of the window that a fork reads. Raises StoreError if the
    database cannot be read, BadInput for an assumed price that names no device.
    """
    settings = settings or Settings()
    progress("reading inventory", 0.0)
    with bill(store, now_ts - window_s, now_ts, dated=dated) as priced:
        inventory = priced.inventory
        prices = _assuming(assumed, priced.prices, inventory)
        named_prices = PriceBook((*priced.prices.prices, *(replace(price, seq=MAX_SEQ) for price in assumed)))
        seen = priced.window.evidence(market, progress, store.read, elsewhere=elsewhere)
    epochs: dict[str, list[Any]] = defaultdict(list)
    for row in inventory.served:
        epochs[service_name(row.served_model, settings)].append(row)
    demands = {
        name: seen.demand_of(rows)
        for name, rows in ticking(epochs.items(), len(epochs), "reading the demand of services", progress)
    }
    owned, probed = ownership(store), probe_points(store, inventory, now_ts)
    now = fleet(inventory, demands, market, settings, now_ts, owned)
    known = with_cpus(market, now.deployments, inventory, probed)
    if known is not market:
        market, now = known, fleet(inventory, demands, known, settings, now_ts, owned)
    deployments = ticking(now.deployments, len(now.deployments), "reading the evidence of deployments", progress)
    alone = {
        deployment.deployment_id: seen.of_deployments([deployment.deployment_id]).with_points(
            probed.get(deployment.deployment_id, ())
        )
        for deployment in deployments
    }
    together = {
        service.name: alone[service.deployments[0].deployment_id]
        if len(service.deployments) == 1
        else seen.of_deployments([replica.deployment_id for replica in service.deployments])
        for service in ticking(now.services, len(now.services), "reading the evidence of services", progress)
    }
    devices = ticking(inventory.devices, len(inventory.devices), "reading the evidence of devices", progress)
    whole = {
        device_id: Priced(row.kind, row.name, row.uuid)
        for device_id, row in inventory.devices.items()
        if row.parent_id is None
    }
    listed = _listed(whole, prices, now_ts)
    known = known.having(set_offers(now, whole, named_prices, known, now_ts))
    context = Context(
        forecasts=Forecasts({} if dated else realised(store, now)),
        market=known,
        now_ts=now_ts,
        deployments=alone,
        services=together,
        devices={device_id: seen.of_devices((device_id,)) for device_id in devices},
        nano_usd_per_hour={device: _nano_usd_per_hour(device, inventory, prices) for device in inventory.devices},
        listed={device_id: price.note for device_id, price in listed.items() if price.note is not None},
        priced_by={device_id: price.offer for device_id, price in listed.items() if price.offer is not None},
        allowed_regions=frozenset(settings.market_allowed_regions),
        token_apis=frozenset(settings.market_token_apis),
        slo=Slo(settings.slo_ttft_p50_ms, settings.slo_ttft_ms, settings.slo_tpot_p50_ms, settings.slo_tpot_ms),
        energy=None
        if settings.energy_usd_per_kwh is None
        else EnergyPrice(round(settings.energy_usd_per_kwh * NANO_USD), settings.energy_pue),
    )
    return Present(
        fleet=now,
        context=context,
        hosts={host.host_id: seen.of_devices(host.device_ids) for host in now.hosts},
        names={
            **inventory.device_names,
            **{host.host_id: host.name for host in now.hosts},
            **{deployment.deployment_id: deployment.name for deployment in now.deployments},
        },
        addresses=Addresses(
            {row.deployment_id: row.host_name for row in inventory.running.values()},
            {device_id: DeviceAddress(row.uuid, row.vendor) for device_id, row in inventory.devices.items()},
            _workloads(inventory),
        ),
        window_s=window_s,
        configured_rules=frozenset(rule.rule_id for rule in settings.rules if rule.options),
        forbidden=settings.advisor_forbid,
    )


def _assuming(assumed: Sequence[Price], prices: PriceBook, inventory: Inventory) -> PriceBook:
    """Return prices with the assumed ones for the devices that they name. Raises BadInput for an unknown device."""
    own: dict[str, Price] = {}
    for price in assumed:
        devices = [Priced(row.kind, row.name, row.uuid) for row in inventory.devices.values() if row.parent_id is None]
        named = [device for device in devices if rank(price.selector, device)]
        if not named and not accelerators(price.selector):
            known = ", ".join(sorted({device.name for device in devices})) or "none"
            raise BadInput(f"--price {price.selector}: it names no accelerator; devices: {known}")
        own |= {device.uuid: replace(price, selector=device.uuid, seq=MAX_SEQ) for device in named}
    return PriceBook((*prices.prices, *own.values()), prices.detected) if own else prices


def _workloads(inventory: Inventory) -> dict[int, Workload]:
    """Return the Kubernetes object of each deployment that runs in a pod."""
    workloads = {row.deployment_id: parsed(json.loads(row.knobs).get(WORKLOAD)) for row in inventory.running.values()}
    return {deployment_id: workload for deployment_id, workload in workloads.items() if workload is not None}


def _nano_usd_per_hour(device_id: int, inventory: Inventory, prices: PriceBook) -> int | None:
    """Return the present price of a device, or a partition's share of the price of its device; None if not priced."""
    row = inventory.devices[device_id]
    payer = row if row.parent_id is None else inventory.devices.get(row.parent_id)
    per_hour = prices.rate(Priced(payer.kind, payer.name, payer.uuid), inventory.now_ts) if payer else None
    share = SHARE if row.parent_id is None else row.part_1e6
    return None if per_hour is None or share is None else per_hour * share // SHARE


def _listed(devices: Mapping[int, Priced], prices: PriceBook, now_ts: int) -> dict[int, Price]:
    """Return the list prices in force by device id; none for devices whose price a person set."""
    in_force = {device_id: prices.at(device, now_ts) for device_id, device in devices.items()}
    return {device_id: price for device_id, price in in_force.items() if price is not None and price.listed}
