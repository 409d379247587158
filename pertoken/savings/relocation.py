"""Costs of a change of provider or region beside its instances: data that leaves, both sides running, shortest terms.

Data that crosses every month is part of the net saving. What is paid once is stated beside it. A rate that no list
states is named as unknown and is in no figure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pertoken.catalog.clouds import (
    INTERNET,
    REGION,
    TransferRate,
    bytes_per_token,
    hours_both_run,
    minimum_term,
    transfer_rate,
)
from pertoken.catalog.offers import ANYWHERE
from pertoken.forecast.serving import Range
from pertoken.savings.context import Context
from pertoken.savings.placing import Placed
from pertoken.savings.saving import Money
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet, services_unlike
from pertoken.state.model import WEIGHT_BYTES
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH, format_usd

HOUR_S = 3600
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
    """Each cost with its rate, source and date, and what is not known."""
    once: Money | None = None
    """Nano-USD that are paid once; None without a relocation, or where a part is not known."""
    nano_usd_per_hour: Range = NOWHERE
    """Data that crosses every month, lowest first."""


def relocations(before: Fleet, after: Fleet, placed: Iterable[Placed]) -> tuple[Relocation, ...]:
    """Return the moves between providers or regions in a change; `placed` are the instances that it orders."""
    offers = tuple(placed)
    return tuple(
        relocation
        for service in services_unlike(after, before)
        if service.name in before.service_of
        for relocation in _relocations(before, before.service(service.name), service, offers)
    )


def moving(
    before: Fleet,
    after: Fleet,
    placed: Iterable[Placed],
    new_nano_usd_per_hour: Mapping[str, float],
    context: Context,
) -> Moving:
    """Return the costs of the relocations of a change.

    `new_nano_usd_per_hour`: price of what each service starts elsewhere, by its name.
    """
    moves = relocations(before, after, placed)
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
    known = [cost for cost in once if cost is not None]
    total = _sum([*known, both]) if len(known) == len(once) else None
    return Moving(
        tuple(lines), None if total is None else (round(total[0]), round(total[1]), round(total[2])), _sum(hourly)
    )


def repaid(once: Money | None, net: Money) -> str | None:
    """Return in which time a net saving repays what a move costs once; None where one of them is not known or 0."""
    if once is None or not once[LIKELY] or net[LIKELY] <= 0:
        return None
    days = once[LIKELY] / net[LIKELY] * HOURS_PER_MONTH / 24
    return f"moving costs {format_usd(once[LIKELY])} once, which its net saving repays in {max(1, round(days))} days"


def _relocations(before: Fleet, now: Service, to: Service, offers: Sequence[Placed]) -> Iterator[Relocation]:
    after_by_id = {deployment.deployment_id: deployment for deployment in to.deployments}
    known = {deployment.deployment_id for deployment in now.deployments}
    added = [deployment for deployment in to.deployments if deployment.deployment_id not in known]
    moved: dict[tuple[Site, Site, bool], list[Deployment]] = {}
    for old in now.deployments:
        new = after_by_id.get(old.deployment_id)
        if new == old:
            continue
        source = _place(old.placement.provider, old.placement.region)
        for successor in (new,) if new is not None else added:
            is_api = successor.placement.purchase == "per_token"
            for destination in sorted(_destinations(before, now.name, successor, offers)):
                if _differs(source, destination):
                    moved.setdefault((source, destination, is_api), []).append(old)
    for (source, destination, is_api), deployments in sorted(moved.items(), key=lambda entry: entry[0]):
        yield Relocation(now.name, source, destination, tuple(deployments), is_api)


def _destinations(before: Fleet, service: str, deployment: Deployment, offers: Sequence[Placed]) -> set[Site]:
    """Return where a deployment runs after a change: on devices of the fleet, at an API, or on ordered instances."""
    placement = deployment.placement
    parts = before.partition_of
    devices = {parts[held][0].device_id if held in parts else held for held in deployment.device_ids}
    hosts = [before.host(before.device(held).host_id) for held in devices if held in before.device_ids]
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
    known = [pair for pair in tokens if pair is not None]
    if len(known) < len(tokens):
        return f"{what}: its tokens were not measured, and so what crosses is not known", None
    out, back = (transfer_rate(place.provider, move.to) for place in (move.source, move.destination))
    unknown = [_unknown(place, move.to) for place, rate in ((move.source, out), (move.destination, back)) if not rate]
    text_bytes, streamed_bytes = bytes_per_token()
    prompt, answer = (HOUR_S * sum(pair[part] for pair in known) for part in range(2))
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


def _unknown(place: Site, to: str) -> str:
    where = "to another of its regions" if to == REGION else "to the internet"
    return f"what data {where} costs at {place.provider or 'its unknown provider'} is not known: ask it"


def _stated(rate: TransferRate) -> str:
    check = "; low confidence: check the rate with the provider" if rate.confidence == "low" else ""
    return f"at ${rate.usd_per_gb:g}/GB ({rate.source}, {rate.as_of}{check})"


def _sum(ranges: Sequence[Range]) -> Range:
    low, likely, high = (sum(cost[end] for cost in ranges) for end in range(3))
    return low, likely, high
