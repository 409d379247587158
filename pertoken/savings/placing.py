"""Placement of replicas on whole instances of one offer: the price of every move is that of a named instance."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pertoken.catalog.clouds import cloud_commands
from pertoken.catalog.coverage import unpriced
from pertoken.catalog.market import Market, load_market
from pertoken.catalog.offers import ANYWHERE, Offer, Origin, marks
from pertoken.forecast.serving import Range
from pertoken.savings.context import Context
from pertoken.savings.hosts import device_price
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.fleet import Fleet
from pertoken.units import counted, format_usd

Counts = tuple[int, int, int]
"""Replicas or instances: fewest, likely, most."""
OUTSIDE_THE_LIST = ("owned", "reserved")
"""Purchases whose price no list states."""
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
    """Name of the service whose replicas they hold; None where they hold those of several."""
    to_confirm: str | None = None
    """What a person has to confirm before its money enters a total."""

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
        """What is against it: devices that no replica uses, and replicas that fail together."""
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
    before: Fleet, old: Deployment, proposed: Placement, replicas: Counts, ranks: int, context: Context
) -> Placed | NotPlaced:
    """Return the instances that hold `replicas` of `ranks` devices each in the proposed placement, and their price.

    `old` is a deployment that moves there. Each replica fits on one instance, or on joined ones where it spans hosts
    today. An unchanged kind of instance costs what its host costs; any other one the price that a person set, else the
    list price nearest to where `old` runs. Raises NoPrice.
    """
    if proposed.purchase == "per_token":
        return NotPlaced(NO_PRICE, "a token price is for a whole service: move all of its deployments")
    if proposed.purchase in OUTSIDE_THE_LIST:
        reason = f"{proposed.purchase} devices have no listed price: set one with `pertoken prices set`"
        return NotPlaced(NO_PRICE, reason)
    on_hosts = _devices_by_host(before, old)
    fewest_devices = min(ranks, max(on_hosts.values())) if len(on_hosts) > 1 else ranks
    unchanged = []
    if old.device_ids and _same_kind(old.placement, proposed):
        paid = paid_offer(before, old, context)
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


def paid_offer(before: Fleet, old: Deployment, context: Context) -> Offer:
    """Return the instance that a deployment runs on as an offer, at the price that is paid. Raises NoPrice."""
    host = before.host(before.device(old.device_ids[0]).host_id)
    devices = [device for device in before.devices_on(host) if device.kind != "cpu"] or list(before.devices_on(host))
    count = old.placement.devices_per_instance or len(devices)
    price = sum(device_price(before, device.device_id, context) for device in devices) / len(devices)
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


def _placed(offer: Offer, replicas: Counts, ranks: int, now: Placement, context: Context) -> Placed:
    classified = replace(offer, origin=_origin(offer, now, context.market))
    fewest, likely, most = (offer.instances_for(count, ranks) for count in replicas)
    return Placed(
        classified,
        (fewest, likely, most),
        instances_per_replica=math.ceil(ranks / offer.n_devices),
        replicas_per_instance=min(replicas[1], max(1, offer.n_devices // ranks)),
        unused_devices=likely * offer.n_devices - replicas[1] * ranks,
        to_confirm=_to_confirm(classified, now, context),
    )


def _order(placed: Placed) -> tuple[object, ...]:
    origin, (_, likely, most) = placed.offer.origin, placed.nano_usd_per_hour
    nearness = Origin.OWN_REGION if origin is Origin.OWN_INSTANCE else origin
    return nearness, likely, most, placed.offer.nano_usd_per_device_hour, placed.offer.key


def _devices_by_host(before: Fleet, deployment: Deployment) -> Counter[int]:
    known = (device_id for device_id in deployment.device_ids if device_id in before.device_ids)
    return Counter(before.device(device_id).host_id for device_id in known)


def _purchase(placement: Placement) -> str:
    return "spot" if placement.purchase == "spot" else "on_demand"


def _same_kind(now: Placement, proposed: Placement) -> bool:
    paid_as = (placement.purchase or "on_demand" for placement in (now, proposed))
    alike = len(set(paid_as)) == 1
    return alike and all(
        getattr(now, name) == getattr(proposed, name) for name in ("provider", "region", "instance_type", "accelerator")
    )


def _orderable(offers: Iterable[Offer], now: Placement, proposed: Placement, context: Context) -> list[Offer]:
    """Return the offers that the proposal means, those of low confidence only where there are no others."""
    provider = proposed.provider or context.market.provider
    regions = {proposed.region, ANYWHERE}
    if (proposed.provider, proposed.region) == (now.provider, now.region):
        regions |= context.allowed_regions
    return _trusted(
        offer
        for offer in offers
        if provider in (None, offer.provider)
        and proposed.instance_type in (None, offer.instance_type)
        and (None in (provider, proposed.region) or offer.region in regions)
    )


def _trusted(offers: Iterable[Offer]) -> list[Offer]:
    """Return offers without those of low confidence, unless there are no others."""
    known = list(offers)
    return [offer for offer in known if offer.confidence != "low"] or known


def _origin(offer: Offer, now: Placement, market: Market) -> Origin:
    if offer.origin is not None:
        return offer.origin
    if offer.provider != (now.provider or market.provider):
        return Origin.OTHER_PROVIDER
    if offer.region not in (now.region, ANYWHERE):
        return Origin.OWN_PROVIDER
    return Origin.OWN_INSTANCE if offer.instance_type == now.instance_type else Origin.OWN_REGION


def _to_confirm(offer: Offer, now: Placement, context: Context) -> str | None:
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
    now: Placement,
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
    known = unpriced(proposed.provider or "", accelerator, purchase)
    asks = f"; {known.text}" if known is not None else ""
    elsewhere = list(fitting) or [
        offer for offer in load_market().offers(accelerator, purchase) if offer.n_devices >= ranks
    ]
    if not elsewhere:
        return NotPlaced(NO_PRICE, f"no listed instance has {devices}{asks}")
    cheapest = min((_placed(offer, replicas, ranks, now, context) for offer in _trusted(elsewhere)), key=_cost)
    offer = cheapest.offer
    region = "any region" if offer.region == ANYWHERE else offer.region
    return NotPlaced(
        NOT_OFFERED,
        f"{where} lists no instance with {devices}{kind}; {offer.provider} lists {offer.instance_type} in {region} at "
        f"{format_usd(offer.nano_usd_per_hour)}/h ({offer.as_of}){asks}",
    )


def _cost(placed: Placed) -> tuple[object, ...]:
    return placed.nano_usd_per_hour[1], placed.offer.key
