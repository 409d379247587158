"""Rule: commit to the instances that run in nearly every hour."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import (
    Commitment,
    Fleet,
    FleetEvidence,
    Host,
    Market,
    NotMeasured,
    Proposal,
    Skip,
    option,
    propose,
    rule,
    skip,
)

TERMS = (("reserved_1y", 1), ("reserved_3y", 3))
"""Purchases of the catalog, and the years they commit to."""
Unit = tuple[str, str | None, str]
"""Provider, region and instance type of a commitment."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 1)."""

    quantile: float = option(
        0.1, "share of the hours of the week in which fewer instances than committed may run", low=0, high=0.25
    )
    observed_h: float = option(600.0, "minimum observed hours of each host: four weeks except gaps", low=0, high=10_000)
    min_held: float = option(
        0.5, "minimum share of an hour with processes on a host's devices for the host to count as used", low=0, high=1
    )
    min_busy: float = option(
        0.2, "minimum mean busy share of the deployments on a host: below it the host counts as idle", low=0, high=1
    )


@rule("commit-capacity", window="28d", series=("observed_h", "busy", "held"))
def commit_capacity(seen: FleetEvidence, fleet: Fleet, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Commit for one or three years to the instances that run in nearly every hour.

    ## Why it saves
    A committed instance costs 28 to 57 % less per hour than on-demand, used or not. Instances that run in nine of ten
    hours lose nothing by that: a commitment pays from a utilization of one minus the discount.
    ## When it is wrong
    List prices fall by 20 to 30 % a year, and a newer accelerator may serve the same tokens for less: three years are
    long. First apply every change that makes the fleet smaller (releasing, resizing, moving, spot), because a
    commitment is paid until it ends.
    ## How to apply
    Apply the other savings first. Buy the commitment at the provider (Google Cloud: committed use discount; AWS:
    Savings Plan or reserved instance; Azure: reservation), then enter it under [[commitments]].
    ## Sources
    1. The thresholds are judgement based on common practice: commit to the 10th to 25th percentile of the hourly
       devices of four weeks or more.
    2. The catalog's committed offers, each with source and date; the discounts of Google Cloud for three years (57 % on
       H100, 51 % on H200) are read from its price list. Of AWS and Azure none with a source and a date is known: import
       the price that you were quoted.
    3. AWS cut P5 by 44 % in 2025, and Lambda raised H100 by a third in 2026: the on-demand price to compare with moves
       both ways.
    """
    units: dict[Unit, list[Host]] = {}
    for host in fleet.hosts:
        placement = host.placement
        if placement.purchase in (None, "on_demand") and placement.provider and placement.instance_type:
            units.setdefault((placement.provider, placement.region, placement.instance_type), []).append(host)
    if not units:
        paid = ", ".join(sorted({str(host.placement.purchase or "unknown") for host in fleet.hosts})) or "none"
        yield skip(
            "no-on-demand-instance",
            f"0 of {len(fleet.hosts)} hosts are on-demand instances of a known type (they are paid as: {paid})",
        )
    for unit, hosts in units.items():
        yield from _of_unit(unit, hosts, seen, fleet, market, options)


def _of_unit(
    unit: Unit, hosts: list[Host], seen: FleetEvidence, fleet: Fleet, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    provider, region, instance_type = unit
    unit_words = f"{instance_type} at {provider}{f' in {region}' if region else ''}"
    committed = sum(
        commitment.count
        for commitment in fleet.commitments
        if (commitment.provider, commitment.instance_type) == (provider, instance_type)
        and commitment.region in (None, region)
    )
    try:
        hours, refusal = _hours(hosts, seen, fleet, options)
    except NotMeasured as missing:
        yield skip("use-unknown", f"the use of {len(hosts)} × {unit_words} by hour is not known: {missing}")
        return
    if refusal is not None:
        yield refusal
        return
    base = sorted(hours)[int(options.quantile * (len(hours) - 1))] - committed
    if base < 1:
        paid = f", and {committed} are committed already" if committed else ""
        yield skip(
            "no-base-load",
            f"of {len(hosts)} × {unit_words}, {max(base + committed, 0)} run in all but {options.quantile:.0%} of the "
            f"hours of the week{paid}",
        )
        return
    offers = [(market.offers_at(hosts[0].placement, purchase), years) for purchase, years in TERMS]
    if not any(listed for listed, _ in offers):
        yield skip(
            "no-offer",
            f"{base} × {unit_words} run in all but {options.quantile:.0%} of the hours, and "
            f"{_unlisted(provider, market)}: add the price that you were quoted, as purchase "
            "reserved_1y or reserved_3y, with `pertoken prices import`",
        )
    for listed, years in offers:
        for offer in listed[:1]:
            bought = Commitment(provider, region, instance_type, base, offer.nano_usd_per_hour, years=years)
            # Changes that shrink or move the fleet come first: a commitment is paid until it ends.
            first = ("release-idle", "scale-replicas", "scale-to-zero", "use-spot", "change-provider", "serverless-api")
            yield propose(
                fleet.commit(bought), risk="none", effort="medium", excludes=(*first, "move-accelerator", "consolidate")
            )


def _unlisted(provider: str, market: Market) -> str:
    """Return what the list lacks: this instance type there, or all committed prices of the provider."""
    purchases = {purchase for purchase, _ in TERMS}
    if any(offer.provider == provider and offer.purchase in purchases for offer in market.all_offers):
        return "no committed price of one is listed there"
    return f"no committed price of {provider} is listed (the catalog takes none without a source and a date)"


def _hours(hosts: list[Host], seen: FleetEvidence, fleet: Fleet, options: Options) -> tuple[list[int], Skip | None]:
    """Return the number of hosts in use in each hour of the week, and a refusal if too little was observed.

    Raises NotMeasured.
    """
    hours = [0] * 168
    for host in hosts:
        devices = [device for device_id in host.device_ids if (device := fleet.device(device_id)).kind != "cpu"]
        device_evidence = [seen.of(device) for device in devices]
        observed_h = min((evidence.observed_h.mean for evidence in device_evidence), default=0.0)
        if observed_h < options.observed_h:
            reason = f"{host.name} was observed for {observed_h:.0f} of the required {options.observed_h:.0f} h"
            return hours, skip("observed-briefly", reason)
        busy_shares = [seen.of(deployment).busy.mean for deployment in fleet.deployments_on(host)]
        if max(busy_shares, default=0.0) < options.min_busy:
            continue
        by_device = [evidence.hours.held for evidence in device_evidence]
        for hour, shares in enumerate(zip(*by_device, strict=True)):
            # A host without records in an hour did not run.
            hours[hour] += any(share is not None and share >= options.min_held for share in shares)
    return hours, None
