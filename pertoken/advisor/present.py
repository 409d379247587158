"""Input of an advice run: the present fleet, the evidence of each part, and its prices; both as lines of advice."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice

from pertoken.advisor.changes.commands import Addresses, DeviceAddress
from pertoken.advisor.changes.title import FLEET, AdviceTarget
from pertoken.advisor.probed import cpu_accelerator, measured_rates, probe_points
from pertoken.advisor.worker.child import Measured, SubjectKey
from pertoken.advisor.worker.run import TargetResult
from pertoken.catalog.coverage import CPU
from pertoken.catalog.market import Market, MeasuredRates, cpu_name
from pertoken.config import Settings
from pertoken.costs.bill import Bill
from pertoken.costs.fleet import fleet, service_name
from pertoken.costs.prices.book import Price, PriceBook, PriceSubject, accelerators, rank
from pertoken.costs.prices.offers import set_offers
from pertoken.costs.prices.stored import ownership
from pertoken.errors import BadInput
from pertoken.evidence import EPOCHS, Epoch, Evidence, OperatingPoint
from pertoken.metrics import SERIES
from pertoken.proof.judging.receipts import proven_verdicts, realised_by
from pertoken.proof.recommendation import EvidenceLine
from pertoken.rule import subject_key
from pertoken.savings.context import Context, EnergyPrice, Forecasts
from pertoken.state.deployment import WORKLOAD, Deployment, parsed
from pertoken.state.fleet import Fleet
from pertoken.state.service import Slo
from pertoken.store.connect.open import Store
from pertoken.units import NANO_USD, SHARE, format_duration, format_usd
from pertoken.window.figures import Progress, no_progress, ticking
from pertoken.window.inventory import Inventory, KnownEpoch
from pertoken.window.reading import Window


def with_cpus(
    market: Market,
    deployments: Iterable[Deployment],
    inventory: Inventory,
    probed: Mapping[int, Sequence[OperatingPoint]],
) -> Market:
    """Return the market with the CPUs of probed deployments, by name and kind of instance; unchanged without any.

    Rates from several deployments on alike CPUs are kept by engine and dtype of the weights. The listed prices of such
    an instance are offers of these CPUs.
    """
    rates: dict[str, dict[tuple[str, str], MeasuredRates]] = defaultdict(dict)
    memory_bytes: dict[str, int] = {}
    names: dict[tuple[str | None, str | None], str] = {}
    for deployment in deployments:
        held = [inventory.devices[device_id] for device_id in deployment.device_ids if device_id in inventory.devices]
        points = probed.get(deployment.deployment_id, ())
        if len(held) != 1 or held[0].kind != "cpu" or deployment.weight_dtype is None:
            continue
        measured = measured_rates(deployment.model, deployment.engine, deployment.weight_dtype, points)
        memory, placement = inventory.host[held[0].host_id].memory_bytes, deployment.placement
        if measured is not None and memory:
            name = cpu_name(held[0].name, placement.instance_type)
            rates[name][deployment.engine, deployment.weight_dtype] = measured
            memory_bytes[name] = memory
            names[placement.provider, placement.instance_type] = name
    if not rates:
        return market
    today = datetime.fromtimestamp(inventory.now_ts, UTC).date()
    devices = [cpu_accelerator(name, cpu_rates, memory_bytes[name], today) for name, cpu_rates in rates.items()]
    offers = [offer for offer in market.all_offers if offer.accelerator == CPU]
    return market.with_measured(devices).having(
        replace(offer, accelerator=names[offer.provider, offer.instance_type])
        for offer in offers
        if (offer.provider, offer.instance_type) in names
    )


SeriesByWindow = Mapping[int, Collection[str] | None]
"""Series that rules read in windows of their own, by length in seconds; None: any series."""
Reader = Callable[[Sequence[int]], Evidence]
"""Returns the evidence of deployments or devices together, by their ids."""
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
    owners: Mapping[str, str] = field(default_factory=dict)
    """Owners of services by the settings, by name of the service."""
    price_texts: Mapping[int, str] = field(default_factory=dict)
    """Present price of each device that has one, with its origin and date, by device id."""
    windows: Mapping[int, Measured] = field(default_factory=dict)
    """Evidence of other windows that rules have, by length in seconds."""

    @property
    def measured(self) -> Measured:
        """Evidence of the window, by subject."""
        context = self.context
        return {
            **{("deployment", key): evidence for key, evidence in context.deployments.items()},
            **{("service", name): evidence for name, evidence in context.services.items()},
            **{("device", key): evidence for key, evidence in context.devices.items()},
            **{("host", key): evidence for key, evidence in self.hosts.items()},
        }


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
    series_by_window: SeriesByWindow | None = None,
) -> Present:
    """Read the last `window_s` seconds, and other windows that end at the same time, in one transaction.

    Evidence covers only the present epoch of each deployment. With `dated`, `now_ts` is a whole minute in the past and
    prices and settings are as of then. `assumed` prices override the configured ones. Raises StoreError if the database
    cannot be read, BadInput for an assumed price that names no device.
    """
    settings = settings or Settings()
    progress("reading inventory", 0.0)
    with store.hold("telemetry") as held, held.read() as connection:
        window = Window(connection, now_ts - window_s, now_ts, dated=dated)
        inventory = window.inventory
        with held.hold("advice") as both:
            stored_prices = Bill(both, connection, window).prices
            owned, probed = ownership(both), probe_points(both, inventory, now_ts)
            verified = () if dated else proven_verdicts(both)
        whole_devices = {
            device_id: PriceSubject(row.kind, row.name, row.uuid)
            for device_id, row in inventory.devices.items()
            if row.parent_id is None
        }
        prices = _assuming(assumed, stored_prices, whole_devices.values())
        named_prices = PriceBook((*stored_prices.prices, *(replace(price, seq=MAX_SEQ) for price in assumed)))
        seen = window.evidence(market, progress)
        readers = {
            length_s: Window(connection, now_ts - length_s, now_ts, dated=dated).evidence(
                market, partial(_window_progress, progress, length_s), series
            )
            for length_s, series in (series_by_window or {}).items()
        }
    epochs = defaultdict[str, list[KnownEpoch]](list)
    for row in inventory.served:
        epochs[service_name(row.served_model, settings)].append(row)
    demands = {
        name: seen.demand_of(rows)
        for name, rows in ticking(epochs.items(), len(epochs), "reading the demand of services", progress)
    }
    present_fleet = fleet(inventory, demands, market, settings, now_ts, owned)
    extended_market = with_cpus(market, present_fleet.deployments, inventory, probed)
    if extended_market is not market:
        market, present_fleet = extended_market, fleet(inventory, demands, extended_market, settings, now_ts, owned)
    deployments = ticking(
        present_fleet.deployments, len(present_fleet.deployments), "reading the evidence of deployments", progress
    )
    by_deployment = {
        deployment.deployment_id: seen.of_deployments([deployment.deployment_id]).with_points(
            probed.get(deployment.deployment_id, ())
        )
        for deployment in deployments
    }
    by_service = {
        service.name: by_deployment[service.deployments[0].deployment_id]
        if len(service.deployments) == 1
        else seen.of_deployments([replica.deployment_id for replica in service.deployments])
        for service in ticking(
            present_fleet.services, len(present_fleet.services), "reading the evidence of services", progress
        )
    }
    devices = ticking(inventory.devices, len(inventory.devices), "reading the evidence of devices", progress)
    prices_in_force = {
        device_id: price
        for device_id, device in whole_devices.items()
        if (price := prices.at(device, now_ts)) is not None
    }
    listed = {device_id: price for device_id, price in prices_in_force.items() if price.listed}
    extended_market = extended_market.having(
        set_offers(present_fleet, whole_devices, named_prices, extended_market, now_ts)
    )
    context = Context(
        forecasts=Forecasts(realised_by(verified, present_fleet)),
        market=extended_market,
        now_ts=now_ts,
        deployments=by_deployment,
        services=by_service,
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
        fleet=present_fleet,
        context=context,
        hosts={host.host_id: seen.of_devices(host.device_ids) for host in present_fleet.hosts},
        names={
            **inventory.device_names,
            **{host.host_id: host.name for host in present_fleet.hosts},
            **{deployment.deployment_id: deployment.name for deployment in present_fleet.deployments},
        },
        addresses=Addresses(
            {row.deployment_id: row.host_name for row in inventory.running.values()},
            {device_id: DeviceAddress(row.uuid, row.vendor) for device_id, row in inventory.devices.items()},
            {
                row.deployment_id: workload
                for row in inventory.running.values()
                if (workload := parsed(json.loads(row.knobs).get(WORKLOAD))) is not None
            },
        ),
        window_s=window_s,
        configured_rules=frozenset(rule.rule_id for rule in settings.rules if rule.options),
        forbidden=settings.advisor_forbid,
        owners={service.name: service.owner for service in settings.services if service.owner is not None},
        price_texts=_price_texts(whole_devices, prices_in_force),
        windows={
            length_s: _measured(reader.of_deployments, reader.of_devices, present_fleet, inventory)
            for length_s, reader in readers.items()
        },
    )


def _window_progress(progress: Progress, length_s: int, phase: str, share: float) -> None:
    progress(f"reading the last {format_duration(length_s)}: {phase.removeprefix('reading ')}", share)


def _measured(of_deployments: Reader, of_devices: Reader, present_fleet: Fleet, inventory: Inventory) -> Measured:
    """Return the evidence of the subjects of a fleet in another window."""
    of_service = {
        service.name: [replica.deployment_id for replica in service.deployments] for service in present_fleet.services
    }
    subjects: dict[SubjectKey, Callable[[], Evidence]] = {
        **{
            ("deployment", deployment.deployment_id): partial(of_deployments, (deployment.deployment_id,))
            for deployment in present_fleet.deployments
        },
        **{("service", name): partial(of_deployments, ids) for name, ids in of_service.items()},
        **{("device", key): partial(of_devices, (key,)) for key in inventory.devices},
        **{("host", host.host_id): partial(of_devices, host.device_ids) for host in present_fleet.hosts},
    }
    return _LazyMeasured(subjects)


class _LazyMeasured(Mapping[SubjectKey, Evidence]):
    """Evidence by subject, made when somebody looks at it: few rules have a window of their own."""

    def __init__(self, subjects: Mapping[SubjectKey, Callable[[], Evidence]]) -> None:
        self._subjects = subjects
        self._made: dict[SubjectKey, Evidence] = {}

    def __getitem__(self, key: SubjectKey) -> Evidence:
        if key not in self._made:
            self._made[key] = self._subjects[key]()
        return self._made[key]

    def __contains__(self, key: object) -> bool:
        return key in self._subjects

    def __iter__(self) -> Iterator[SubjectKey]:
        return iter(self._subjects)

    def __len__(self) -> int:
        return len(self._subjects)


def _assuming(assumed: Sequence[Price], prices: PriceBook, devices: Collection[PriceSubject]) -> PriceBook:
    """Return prices with the assumed ones for the devices that they name. Raises BadInput for an unknown device."""
    assumed_by_uuid: dict[str, Price] = {}
    for price in assumed:
        named = [device for device in devices if rank(price.selector, device)]
        if not named and not accelerators(price.selector):
            names = ", ".join(sorted({device.name for device in devices})) or "none"
            raise BadInput(f"--price {price.selector}: it names no accelerator; devices: {names}")
        assumed_by_uuid |= {device.uuid: replace(price, selector=device.uuid, seq=MAX_SEQ) for device in named}
    return PriceBook((*prices.prices, *assumed_by_uuid.values()), prices.detected) if assumed_by_uuid else prices


def _nano_usd_per_hour(device_id: int, inventory: Inventory, prices: PriceBook) -> int | None:
    """Return the present price of a device, or a partition's share of the price of its device; None if not priced."""
    row = inventory.devices[device_id]
    payer = row if row.parent_id is None else inventory.devices.get(row.parent_id)
    per_hour = prices.rate(PriceSubject(payer.kind, payer.name, payer.uuid), inventory.now_ts) if payer else None
    share = SHARE if row.parent_id is None else row.part_1e6
    return None if per_hour is None or share is None else per_hour * share // SHARE


def _price_texts(devices: Mapping[int, PriceSubject], prices_in_force: Mapping[int, Price]) -> dict[int, str]:
    """Return the price of a device-hour in force with its origin and date, by device id."""
    texts = {}
    for device_id, price in prices_in_force.items():
        if price.nano_usd_per_device_hour is not None:
            device, offer = devices[device_id], price.offer
            day = datetime.fromtimestamp(price.set_ts, UTC).date()
            origin = f"set on {day}" if offer is None else f"list price of {offer.as_of} ({offer.source})"
            texts[device_id] = (
                f"{device.name or device.kind}: {format_usd(price.nano_usd_per_device_hour)}/hour, {origin}"
            )
    return texts


# -- lines of a recommendation --------------------------------------------------------------------------------

MAX_EVIDENCE = 200
"""Maximum series that a recommendation lists: a rule over a fleet may read thousands, which nobody reads."""


def owner_of(target: AdviceTarget, gathered: Present) -> str | None:
    """Return the owner of the service that a target is or serves; None where nobody is named."""
    if target.kind == "deployment":
        names = [name for name, _ in gathered.fleet.deployment(int(target.key)).serves]
    else:
        names = [target.key] if target.kind == "service" else []
    return next((gathered.owners[name] for name in names if name in gathered.owners), None)


def prices_of(target: AdviceTarget, gathered: Present) -> tuple[str, ...]:
    """Return the present prices of the devices of a target; none for the fleet."""
    fleet = gathered.fleet
    device_ids: Iterable[int] = ()
    if target.kind == "host":
        device_ids = fleet.host(int(target.key)).device_ids
    elif target.kind == "deployment":
        device_ids = fleet.deployment(int(target.key)).device_ids
    elif target.kind == "service":
        device_ids = [
            device_id for replica in fleet.service(target.key).deployments for device_id in replica.device_ids
        ]
    texts = (gathered.price_texts[device_id] for device_id in sorted(device_ids) if device_id in gathered.price_texts)
    return tuple(dict.fromkeys(texts))


def evidence_lines(
    call: TargetResult, target: AdviceTarget, gathered: Present, measured: Measured
) -> tuple[EvidenceLine, ...]:
    """Return a line for each series that the rule read of a target or its parts, with gathered values.

    Of more than `MAX_EVIDENCE` series, a last line counts the others.
    """
    call_key = None if call.target is None else subject_key(call.target)
    is_part = _parts_of(target, gathered)
    read = [(subject, names) for subject, names in call.read if subject is None or is_part(subject)]
    listed = islice(((subject, name) for subject, names in read for name in names), MAX_EVIDENCE)
    lines = [
        line
        for subject, name in listed
        for line in _lines(
            f"{_subject_name(subject, gathered)}: " if subject is not None else "",
            name,
            measured.get(subject or call_key or ("", "")) or Evidence({}),
        )
    ]
    if (more := sum(len(names) for _, names in read) - MAX_EVIDENCE) > 0:
        lines.append(EvidenceLine("more that the rule read", "series", None, None, None, more, "not listed"))
    return tuple(lines)


def _parts_of(target: AdviceTarget, gathered: Present) -> Callable[[SubjectKey], bool]:
    """Return a function that returns whether a subject is a target or a part of it."""
    if target == FLEET:
        return lambda subject: True
    if target.kind == "host":
        host = gathered.fleet.host(int(target.key))
        of_host = {("host", host.host_id), *(("device", device_id) for device_id in host.device_ids)}
        return lambda subject: subject in of_host
    deployments = gathered.fleet.service(target.key).deployments if target.kind == "service" else ()
    ids = {deployment.deployment_id for deployment in deployments}
    return lambda subject: str(subject[1]) == target.key or (subject[0] == "deployment" and subject[1] in ids)


def _subject_name(subject: SubjectKey, gathered: Present) -> str:
    _, key = subject
    return key if isinstance(key, str) else gathered.names.get(key, str(key))


def _lines(prefix: str, name: str, evidence: Evidence) -> Iterable[EvidenceLine]:
    """Return the line of a series, or one for each earlier epoch."""
    if name == EPOCHS:
        return [_epoch_line(prefix, epoch) for epoch in evidence.peek_epochs()]
    return [_line(prefix + name, name, evidence)]


def _epoch_line(prefix: str, epoch: Epoch) -> EvidenceLine:
    """Return the line that compares device time per token now with an earlier epoch."""
    ended = datetime.fromtimestamp(epoch.end, UTC).date()
    label = f"{prefix}device time per token, now over {epoch.engine_version or 'the epoch'} until {ended}"
    against = epoch.present
    if against.ratio is None:
        return EvidenceLine(label, "ratio", None, None, None, 0, None, missing=against.reason)
    low, likely, high = against.ratio
    origin = f"matched hours, 90 % interval {low:.3g} to {high:.3g}"
    return EvidenceLine(label, "ratio", likely, None, None, against.matched_hours, origin)


def _line(label: str, name: str, evidence: Evidence) -> EvidenceLine:
    spec = SERIES[name]
    measured = evidence.peek(name)
    if measured is None:
        return EvidenceLine(label, spec.unit, None, None, None, 0, None, missing=spec.remedy)
    return EvidenceLine(label, spec.unit, measured.mean, measured.p50, measured.p95, measured.n, measured.origin)
