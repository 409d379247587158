"""Placement of replicas on whole instances of one offer: every move has the price of a named instance."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

from pertoken.catalog.clouds import (
    INTERNET,
    REGION,
    TransferRate,
    bytes_per_token,
    cloud_commands,
    hours_both_run,
    minimum_term,
    transfer_rate,
)
from pertoken.catalog.coverage import unpriced
from pertoken.catalog.market import Market, load_market
from pertoken.catalog.offers import ANYWHERE, Offer, Origin, marks
from pertoken.forecast.serving import Range
from pertoken.savings.context import Context
from pertoken.savings.hosts import device_price
from pertoken.savings.saving import Money
from pertoken.state.deployment import WEIGHT_BYTES, Deployment, Placement
from pertoken.state.fleet import Fleet, Host, services_unlike
from pertoken.state.service import Service
from pertoken.units import HOUR_S, HOURS_PER_MONTH, counted, format_usd

Counts = tuple[int, int, int]
"""Replicas or instances: fewest, likely, most."""
OUTSIDE_THE_LIST = ("owned", "reserved")
"""Purchases without a listed price."""
NOT_OFFERED = "not-offered-here"
NO_PRICE = "no-price"


@dataclass(frozen=True, slots=True)
class Placed:
    """Whole instances of one offer that hold some replicas."""

    offer: Offer
    """Its `origin` is set."""
    instances: Counts
    instances_per_replica: int = 1
    """Above 1 only where a replica spans hosts today."""
    replicas_per_instance: int = 1
    unused_devices: int = 0
    """Devices of the likely number of instances that no replica runs on."""
    service: str | None = None
    """Name of the service whose replicas they hold; None for replicas of several services."""
    to_confirm: str | None = None
    """Confirmation by a person that it needs before its money enters a total."""

    @property
    def nano_usd_per_hour(self) -> Range:
        """Price of the fewest, likely and most instances."""
        fewest, likely, most = (float(count * self.offer.nano_usd_per_hour) for count in self.instances)
        return fewest, likely, most

    @property
    def listed(self) -> bool:
        """Whether its price is from a list."""
        return self.offer.origin is None or self.offer.origin.listed

    @property
    def name(self) -> str:
        """The instances and their place, such as `2 × g6e.xlarge at aws us-east-1`."""
        return f"{self.instances[1]} × {instance_name(self.offer)}"

    @property
    def against(self) -> tuple[str, ...]:
        """Arguments against it: devices that no replica uses, and replicas that fail together."""
        lines = []
        if self.unused_devices:
            unused = counted(self.unused_devices, "device")
            lines.append(f"instances are rented whole: {unused} that it does not need are paid for there too")
        if self.replicas_per_instance > 1:
            lines.append(f"{self.replicas_per_instance} replicas share an instance: they fail together")
        return tuple(lines)

    @property
    def text(self) -> str:
        """The instances with the price of each, its source and date."""
        suffix = " each" if self.instances[1] > 1 else ""
        price = f"{format_usd(self.offer.nano_usd_per_hour)}/h{suffix}"
        return f"{self.name} at {price} ({self.offer.source}, {self.offer.as_of})"

    def lines(self, context: Context) -> tuple[str, ...]:
        """Return the assumptions that the price rests on, as text."""
        warnings = marks([self.offer], context.today, context.market.stale_after_days) if self.listed else ()
        lines = ["; ".join([self.text, *warnings, _availability(self.offer)])]  # the first clause stands beside a total
        if self.instances_per_replica > 1:
            lines.append(f"a replica spans {self.instances_per_replica} instances, as it spans hosts today")
        return tuple(lines)


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """The reason why no offer holds the replicas."""

    code: str
    """`NOT_OFFERED` or `NO_PRICE`."""
    reason: str


def place(
    present: Fleet, old: Deployment, proposed: Placement, replicas: Counts, ranks: int, context: Context
) -> Placed | NotPlaced:
    """Return the instances that hold `replicas` of `ranks` devices each in the proposed placement, and their price.

    `old` is a deployment that moves there. Each replica fits on one instance, or on joined ones where it spans hosts
    today. An unchanged kind of instance has the price of its host; any other one the price that a person set, else the
    list price nearest to where `old` runs. Raises NoPrice.
    """
    if proposed.purchase == "per_token":
        return NotPlaced(NO_PRICE, "a token price is for a whole service: move all of its deployments")
    if proposed.purchase in OUTSIDE_THE_LIST:
        reason = f"{proposed.purchase} devices have no listed price: set one with `pertoken prices set`"
        return NotPlaced(NO_PRICE, reason)
    on_hosts = _devices_by_host(present, old)
    fewest_devices = min(ranks, max(on_hosts.values())) if len(on_hosts) > 1 else ranks
    unchanged = []
    if old.device_ids and _same_kind(old.placement, proposed):
        paid = paid_offer(present, old, context)
        unchanged = [paid] if paid.n_devices >= fewest_devices else []
    if unchanged and proposed.instance_type is not None:
        return _placed(unchanged[0], replicas, ranks, old.placement, context)
    accelerator = context.market.accelerator(proposed.accelerator)
    if accelerator is None and not unchanged:
        return NotPlaced(NO_PRICE, f"{proposed.accelerator or 'its device'} is not in the catalog")
    name = accelerator.name if accelerator is not None else proposed.accelerator or ""
    offers = context.market.offers(name, _purchase(proposed))
    fitting = [offer for offer in offers if offer.n_devices >= fewest_devices]
    any_kind = replace(proposed, instance_type=None)
    orderable = _orderable(fitting, old.placement, proposed, context) or _orderable(
        fitting, old.placement, any_kind, context
    )
    if not unchanged and not orderable:
        return _not_placed(old.placement, proposed, name, replicas, ranks, fitting, context)
    candidates = (_placed(offer, replicas, ranks, old.placement, context) for offer in (*unchanged, *orderable))
    return min(candidates, key=_order)


def paid_offer(present: Fleet, old: Deployment, context: Context) -> Offer:
    """Return the instance that a deployment runs on as an offer, at the price that is paid. Raises NoPrice."""
    host = present.host(present.device(old.device_ids[0]).host_id)
    devices = [device for device in present.devices_on(host) if device.kind != "cpu"] or list(present.devices_on(host))
    count = old.placement.devices_per_instance or len(devices)
    price = sum(device_price(present, device.device_id, context) for device in devices) / len(devices)
    listed = context.priced_by.get(devices[0].device_id)
    placement = old.placement
    today = datetime.fromtimestamp(context.now_ts, UTC).date()
    return Offer(
        provider=placement.provider or "",
        instance_type=placement.instance_type or "",
        accelerator=placement.accelerator or devices[0].name,
        n_devices=count,
        region=placement.region or ANYWHERE,
        purchase=_purchase(placement),
        nano_usd_per_device_hour=round(price),
        as_of=today if listed is None else listed.as_of,
        source=f"what {host.name} costs" if listed is None else listed.source,
        confidence="high" if listed is None else listed.confidence,
        origin=Origin.SET if listed is None else Origin.OWN_INSTANCE,
    )


def instance_name(offer: Offer) -> str:
    """Return an instance with its place as text."""
    where = " ".join(part for part in (offer.provider, offer.region) if part and part != ANYWHERE)
    kind = offer.instance_type or f"an instance of {counted(offer.n_devices, 'device')}"
    spot = " spot" if offer.purchase == "spot" else ""
    return f"{kind}{spot}" + (f" at {where}" if where else "")


def _availability(offer: Offer) -> str:
    cloud = cloud_commands().get(offer.provider)
    if cloud is None or offer.region == ANYWHERE or not offer.instance_type:
        asks = f"ask {offer.provider or 'its provider'}"
    else:
        asks = f"`{cloud.offered(offer.instance_type, offer.region)}` lists where it is offered"
    return f"availability and your quota are not known: {asks}"


def _placed(offer: Offer, replicas: Counts, ranks: int, placement: Placement, context: Context) -> Placed:
    classified = replace(offer, origin=_origin(offer, placement, context.market))
    fewest, likely, most = (offer.instances_for(count, ranks) for count in replicas)
    return Placed(
        classified,
        (fewest, likely, most),
        instances_per_replica=math.ceil(ranks / offer.n_devices),
        replicas_per_instance=min(replicas[1], max(1, offer.n_devices // ranks)),
        unused_devices=likely * offer.n_devices - replicas[1] * ranks,
        to_confirm=_to_confirm(classified, placement, context),
    )


def _order(placed: Placed) -> tuple[object, ...]:
    origin, (_, likely, most) = placed.offer.origin, placed.nano_usd_per_hour
    nearness = Origin.OWN_REGION if origin is Origin.OWN_INSTANCE else origin
    return nearness, likely, most, placed.offer.nano_usd_per_device_hour, placed.offer.key


def _devices_by_host(present: Fleet, deployment: Deployment) -> Counter[int]:
    device_ids = (device_id for device_id in deployment.device_ids if device_id in present.device_ids)
    return Counter(present.device(device_id).host_id for device_id in device_ids)


def _purchase(placement: Placement) -> str:
    return "spot" if placement.purchase == "spot" else "on_demand"


def _same_kind(present_placement: Placement, proposed: Placement) -> bool:
    paid_as = (placement.purchase or "on_demand" for placement in (present_placement, proposed))
    alike = len(set(paid_as)) == 1
    return alike and all(
        getattr(present_placement, name) == getattr(proposed, name)
        for name in ("provider", "region", "instance_type", "accelerator")
    )


def _orderable(offers: Iterable[Offer], placement: Placement, proposed: Placement, context: Context) -> list[Offer]:
    """Return the offers that the proposal means; low confidence only where there are no others."""
    provider = proposed.provider or context.market.provider
    regions = {proposed.region, ANYWHERE}
    if (proposed.provider, proposed.region) == (placement.provider, placement.region):
        regions |= context.allowed_regions
    return _trusted(
        offer
        for offer in offers
        if provider in (None, offer.provider)
        and proposed.instance_type in (None, offer.instance_type)
        and (None in (provider, proposed.region) or offer.region in regions)
    )


def _trusted(offers: Iterable[Offer]) -> list[Offer]:
    """Return the offers that are not of low confidence; all where there are no others."""
    listed = list(offers)
    return [offer for offer in listed if offer.confidence != "low"] or listed


def _origin(offer: Offer, placement: Placement, market: Market) -> Origin:
    if offer.origin is not None:
        return offer.origin
    if offer.provider != (placement.provider or market.provider):
        return Origin.OTHER_PROVIDER
    if offer.region not in (placement.region, ANYWHERE):
        return Origin.OWN_PROVIDER
    return Origin.OWN_INSTANCE if offer.instance_type == placement.instance_type else Origin.OWN_REGION


def _to_confirm(offer: Offer, placement: Placement, context: Context) -> str | None:
    """Return what a person has to confirm of an offer first; None for one of the own provider in an allowed region."""
    price = f"{format_usd(offer.nano_usd_per_hour)}/h ({offer.as_of})"
    if offer.origin is Origin.OTHER_PROVIDER:
        return (
            f"{instance_name(offer)} is listed at {price}: confirm that {offer.provider} sells it to you at this price "
            "and that your data may go there"
        )
    if offer.origin is Origin.OWN_PROVIDER and offer.region not in context.allowed_regions:
        return (
            f"{instance_name(offer)} is listed at {price}: confirm that the service may run in {offer.region}, then "
            "add it to market.allowed_regions"
        )
    return None


def _not_placed(
    placement: Placement,
    proposed: Placement,
    accelerator: str,
    replicas: Counts,
    ranks: int,
    fitting: Iterable[Offer],
    context: Context,
) -> NotPlaced:
    """Return why no offer holds the replicas in the proposed placement, and who offers one that does."""
    purchase = _purchase(proposed)
    devices = f"{counted(ranks, 'device')} of {accelerator} {purchase.replace('_', '-')}"
    where = " ".join(filter(None, (proposed.provider, proposed.region))) or "its unknown provider"
    kind = f" as {proposed.instance_type}" if proposed.instance_type else ""
    gap = unpriced(proposed.provider or "", accelerator, purchase)
    asks = f"; {gap.text}" if gap is not None else ""
    elsewhere = list(fitting) or [
        offer for offer in load_market().offers(accelerator, purchase) if offer.n_devices >= ranks
    ]
    if not elsewhere:
        return NotPlaced(NO_PRICE, f"no listed instance has {devices}{asks}")
    candidates = (_placed(offer, replicas, ranks, placement, context) for offer in _trusted(elsewhere))
    offer = min(candidates, key=lambda placed: (placed.nano_usd_per_hour[LIKELY], placed.offer.key)).offer
    region = "any region" if offer.region == ANYWHERE else offer.region
    return NotPlaced(
        NOT_OFFERED,
        f"{where} lists no instance with {devices}{kind}; {offer.provider} lists {offer.instance_type} in {region} at "
        f"{format_usd(offer.nano_usd_per_hour)}/h ({offer.as_of}){asks}",
    )


GB = 1e9
LIKELY = 1
NOWHERE: Range = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """Provider and region; `""` where one is unknown or has none."""

    provider: str
    region: str = ""

    @property
    def name(self) -> str:
        """The place for people."""
        return " ".join(filter(None, (self.provider, self.region))) or "its unknown provider"


@dataclass(frozen=True, slots=True)
class Relocation:
    """Deployments of a service that move from one place to another."""

    service: str
    source: Site
    destination: Site
    moved: tuple[Deployment, ...]
    """As they were before."""
    is_api: bool = False
    """Whether a serverless API serves them afterwards."""

    @property
    def to(self) -> str:
        """Kind of the rate of data between both places."""
        return REGION if self.source.provider == self.destination.provider else INTERNET


@dataclass(frozen=True, slots=True)
class Moving:
    """Costs of all relocations of a change."""

    lines: tuple[str, ...] = ()
    """Each cost with its rate, source and date, and each unknown cost."""
    once: Money | None = None
    """Nano-USD that are paid once; None without a relocation, or where a part is not known."""
    nano_usd_per_hour: Range = NOWHERE
    """Data that crosses every month, lowest first."""


def relocations(present: Fleet, after: Fleet, placed: Iterable[Placed]) -> tuple[Relocation, ...]:
    """Return the moves between providers or regions in a change; `placed` are the instances that it orders."""
    offers = tuple(placed)
    return tuple(
        relocation
        for service in services_unlike(after, present)
        if service.name in present.service_of
        for relocation in _relocations(present, present.service(service.name), service, offers)
    )


def moving(
    present: Fleet,
    after: Fleet,
    placed: Iterable[Placed],
    new_nano_usd_per_hour: Mapping[str, float],
    context: Context,
) -> Moving:
    """Return the costs of the relocations of a change.

    `new_nano_usd_per_hour`: price of the new instances of each service, by its name.
    """
    moves = relocations(present, after, placed)
    if not moves:
        return Moving()
    lines: dict[str, None] = {}
    once: list[Range | None] = []
    hourly: list[Range] = []
    for move in moves:
        if not move.is_api:
            line, cost = _weights(move)
            lines[line] = None
            once.append(cost)
        line, rate = _data(move, context)
        lines[line] = None
        hourly.append(rate or NOWHERE)
    started = sum(new_nano_usd_per_hour.get(name, 0.0) for name in {move.service for move in moves})
    fewest, likely, most = (hours * started for hours in hours_both_run())
    both: Range = (fewest, likely, most)
    lines[_both_run(both)] = None
    lines |= dict.fromkeys(_terms(moves))
    known_costs = [cost for cost in once if cost is not None]
    total = _sum([*known_costs, both]) if len(known_costs) == len(once) else None
    return Moving(
        tuple(lines), None if total is None else (round(total[0]), round(total[1]), round(total[2])), _sum(hourly)
    )


def repaid(once: Money | None, net: Money) -> str | None:
    """Return in which time a net saving repays the one-off cost of a move; None where one is not known or 0."""
    if once is None or not once[LIKELY] or net[LIKELY] <= 0:
        return None
    days = once[LIKELY] / net[LIKELY] * HOURS_PER_MONTH / 24
    return f"moving costs {format_usd(once[LIKELY])} once, which its net saving repays in {max(1, round(days))} days"


def _relocations(present: Fleet, service: Service, to: Service, offers: Sequence[Placed]) -> Iterator[Relocation]:
    after_by_id = {deployment.deployment_id: deployment for deployment in to.deployments}
    present_ids = {deployment.deployment_id for deployment in service.deployments}
    added = [deployment for deployment in to.deployments if deployment.deployment_id not in present_ids]
    moved: dict[tuple[Site, Site, bool], list[Deployment]] = {}
    for old in service.deployments:
        new = after_by_id.get(old.deployment_id)
        if new == old:
            continue
        source = _place(old.placement.provider, old.placement.region)
        for successor in (new,) if new is not None else added:
            is_api = successor.placement.purchase == "per_token"
            for destination in sorted(_destinations(present, service.name, successor, offers)):
                if _differs(source, destination):
                    moved.setdefault((source, destination, is_api), []).append(old)
    for (source, destination, is_api), deployments in sorted(moved.items(), key=lambda entry: entry[0]):
        yield Relocation(service.name, source, destination, tuple(deployments), is_api)


def _destinations(present: Fleet, service: str, deployment: Deployment, offers: Sequence[Placed]) -> set[Site]:
    """Return where a deployment runs after a change: on devices of the fleet, at an API, or on ordered instances."""
    placement = deployment.placement
    parts = present.partition_of
    devices = {parts[held][0].device_id if held in parts else held for held in deployment.device_ids}
    hosts = [present.host(present.device(held).host_id) for held in devices if held in present.device_ids]
    if hosts:
        return {_place(host.placement.provider, host.placement.region) for host in hosts}
    ordered = {
        _place(instances.offer.provider, instances.offer.region)
        for instances in offers
        if instances.service in (None, service)
    }
    return ordered if ordered and placement.purchase != "per_token" else {_place(placement.provider, placement.region)}


def _place(provider: str | None, region: str | None) -> Site:
    return Site(provider or "", "" if region in (None, ANYWHERE) else str(region))


def _differs(source: Site, destination: Site) -> bool:
    if source.provider != destination.provider:
        return bool(destination.provider)
    return bool(source.region and destination.region) and source.region != destination.region


def _weights(move: Relocation) -> tuple[str, Range | None]:
    """Return the cost of the weights that leave once, as text and nano-USD; None where it is not known."""
    sizes = {
        deployment.model.name: (deployment.model.params_total or 0) * WEIGHT_BYTES.get(deployment.weight_dtype or "", 0)
        for deployment in move.moved
    }
    what = f"weights of {', '.join(sizes)} that leave {move.source.name} once"
    if not all(sizes.values()):
        return f"{what}: their size is not known, and so what they cost is not", None
    rate = transfer_rate(move.source.provider, move.to)
    size = sum(sizes.values())
    if rate is None:
        return f"{what}, {size / GB:.3g} GB: {_unknown(move.source, move.to)}", None
    usual, most = (size * nano_usd for nano_usd in rate.nano_usd_per_byte)
    text = f"{what}, {size / GB:.3g} GB: {format_usd(usual)} {_stated(rate)}; nothing where another store has them"
    return text, (0.0, usual, most)


def _data(move: Relocation, context: Context) -> tuple[str, Range | None]:
    """Return the cost of prompts and answers that cross, as text and nano-USD an hour; None where it is not known."""
    what = f"prompts and answers of {move.service} between {move.source.name} and {move.destination.name}"
    tokens = [_tokens(deployment, context) for deployment in move.moved]
    known_pairs = [pair for pair in tokens if pair is not None]
    if len(known_pairs) < len(tokens):
        return f"{what}: its tokens were not measured, and so what crosses is not known", None
    out, back = (transfer_rate(site.provider, move.to) for site in (move.source, move.destination))
    unknown = [_unknown(site, move.to) for site, rate in ((move.source, out), (move.destination, back)) if not rate]
    text_bytes, streamed_bytes = bytes_per_token()
    prompt, answer = (HOUR_S * sum(pair[part] for pair in known_pairs) for part in range(2))
    parts = [
        tuple(size * nano_usd for nano_usd in rate.nano_usd_per_byte)
        for rate, size in ((out, prompt * text_bytes), (back, answer * streamed_bytes))
        if rate is not None
    ]
    usual, most = (sum(part[end] for part in parts) for end in range(2))
    stated = " and ".join(dict.fromkeys(_stated(rate) for rate in (out, back) if rate is not None))
    lines = [f"{format_usd(usual * HOURS_PER_MONTH)} a month {stated}, part of the net"] if parts else []
    where = "nothing where its clients are at neither"
    return f"{what}: {'; '.join([*lines, *dict.fromkeys(unknown), where])}", (0.0, usual, most) if parts else None


def _tokens(deployment: Deployment, context: Context) -> tuple[float, float] | None:
    seen = context.evidence(deployment.deployment_id)
    prompt, generated = seen.peek("prompt_tok_s"), seen.peek("generated_tok_s")
    return None if prompt is None or generated is None else (prompt.mean, generated.mean)


def _both_run(both: Range) -> str:
    if not both[LIKELY]:
        return "nothing more is paid while its traffic moves: what it moves to runs already"
    low, likely, high = map(format_usd, both)
    return f"both sides run while traffic moves: {likely} once for a day ({low} for an hour, {high} for three days)"


def _terms(moves: Iterable[Relocation]) -> Iterator[str]:
    """Yield the shortest term of each place that something is ordered at."""
    for provider in sorted({move.destination.provider for move in moves if not move.is_api}):
        term = minimum_term(provider)
        if term is None:
            yield f"whether {provider} has a minimum term is not known: ask it before you order"
        else:
            yield f"{provider} bills an instance for {term.seconds} s at least ({term.source}, {term.as_of})"
    for provider in sorted({move.destination.provider for move in moves if move.is_api}):
        yield f"{provider} is paid by the token: whether it asks for a minimum is not known: ask it"


def _unknown(site: Site, to: str) -> str:
    where = "to another of its regions" if to == REGION else "to the internet"
    return f"what data {where} costs at {site.provider or 'its unknown provider'} is not known: ask it"


def _stated(rate: TransferRate) -> str:
    check = "; low confidence: check the rate with the provider" if rate.confidence == "low" else ""
    return f"at ${rate.usd_per_gb:g}/GB ({rate.source}, {rate.as_of}{check})"


def _sum(ranges: Sequence[Range]) -> Range:
    low, likely, high = (sum(cost[end] for cost in ranges) for end in range(3))
    return low, likely, high


YEAR_DAYS = 365


def relative_error(offer: Offer, context: Context) -> float:
    """Return the error of a list price over the price: the yearly change of lists (`price_fall`) times its age."""
    years = max(0, offer.age_days(context.today)) / YEAR_DAYS
    return min(1.0, context.market.price_fall.per_year * years)


def price_error(leaving: Iterable[Host], placed: Iterable[Placed], context: Context) -> float:
    """Return the error of the bill of hosts that leave less the bill of placed instances, nano-USD per hour."""
    paid = (
        (offer, -float(context.nano_usd_per_hour.get(device_id) or 0))
        for host in leaving
        for device_id in host.device_ids
        if (offer := context.priced_by.get(device_id)) is not None
    )
    bought = ((instances.offer, instances.nano_usd_per_hour[1]) for instances in placed if instances.listed)
    errors: defaultdict[tuple[str, str], float] = defaultdict(float)
    for offer, nano_usd in chain(paid, bought):
        errors[offer.provider, offer.source] += nano_usd * relative_error(offer, context)
    return math.hypot(*errors.values())


def device_error(device_ids: Iterable[int], context: Context) -> float:
    """Return the largest error of the list prices of devices over their prices; 0 where all prices were set."""
    offers = (context.priced_by[device_id] for device_id in device_ids if device_id in context.priced_by)
    return max((relative_error(offer, context) for offer in offers), default=0.0)
