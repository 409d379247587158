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
"""Provider, region and instance type: what a commitment is for."""


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are those of Sources, 1."""

    quantile: float = option(
        0.1, "share of the hours of the week in which fewer instances than the base load may run", low=0, high=0.25
    )
    observed_h: float = option(
        600.0, "hours that each host must have been observed: four weeks but for gaps", low=0, high=10_000
    )
    min_held: float = option(0.5, "share of an hour in which a host's devices are held that counts it", low=0, high=1)
    min_busy: float = option(
        0.2, "mean busy share of what runs on a host below which it is not base load but idle", low=0, high=1
    )


@rule("commit-capacity", window="28d")
def commit_capacity(seen: FleetEvidence, fleet: Fleet, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Commit for one or three years to the instances that run in nearly every hour.

    ## Why it saves
    Whoever commits to instances pays 28 to 57 % less for each hour than on-demand, used or not. Instances that run in
    nine of ten hours lose nothing by that; it pays from a use of one minus the discount.
    ## When it is wrong
    List prices fall by 20 to 30 % a year, and a newer accelerator may serve the same tokens for less: three years are
    long. Whatever makes the fleet smaller (releasing, resizing, moving, spot) comes first, because a commitment is
    paid to its end.
    ## How to apply
    Do what else saves first. Buy the commitment at the provider (Google Cloud: committed use discount; AWS: Savings
    Plan or reserved instance; Azure: reservation), then enter it under [[commitments]].
    ## Sources
    1. The limits are judgement on common practice: commit to the 10th to 25th percentile of the hourly devices of four
       weeks or more.
    2. The catalog's committed offers, each with source and date; the discounts of Google Cloud for three years (57 % on
       H100, 51 % on H200) are read from its price list.
    3. AWS cut P5 by 44 % in 2025, and Lambda raised H100 by a third in 2026: the price to compare with moves both ways.
    """
    units: dict[Unit, list[Host]] = {}
    for host in fleet.hosts:
        at = host.placement
        if at.purchase in (None, "on_demand") and at.provider and at.instance_type:
            units.setdefault((at.provider, at.region, at.instance_type), []).append(host)
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
    at = f"{instance_type} at {provider}{f' in {region}' if region else ''}"
    committed = sum(
        each.count
        for each in fleet.commitments
        if (each.provider, each.instance_type) == (provider, instance_type) and each.region in (None, region)
    )
    try:
        hours, refusal = _hours(hosts, seen, fleet, options)
    except NotMeasured as missing:
        yield skip("use-unknown", f"how many of {len(hosts)} × {at} are in use by hour is not known: {missing}")
        return
    if refusal is not None:
        yield refusal
        return
    base = sorted(hours)[int(options.quantile * (len(hours) - 1))] - committed
    if base < 1:
        paid = f", and {committed} are committed already" if committed else ""
        yield skip(
            "no-base-load",
            f"of {len(hosts)} × {at}, {max(base + committed, 0)} run in all but {options.quantile:.0%} of the hours of "
            f"the week{paid}",
        )
        return
    offers = [(market.offers_at(hosts[0].placement, purchase), years) for purchase, years in TERMS]
    if not any(some for some, _ in offers):
        yield skip(
            "no-offer",
            f"{base} × {at} run in all but {options.quantile:.0%} of the hours, and no committed price of one is "
            "listed: `pertoken prices import` adds the one that you were quoted",
        )
    for some, years in offers:
        for offer in some[:1]:
            bought = Commitment(provider, region, instance_type, base, offer.nano_usd_per_hour, years=years)
            # What makes the fleet smaller or moves it comes first: a commitment is paid to its end.
            first = ("release-idle", "scale-replicas", "scale-to-zero", "use-spot", "change-provider", "serverless-api")
            yield propose(
                fleet.commit(bought), risk="none", effort="medium", excludes=(*first, "move-accelerator", "consolidate")
            )


def _hours(hosts: list[Host], seen: FleetEvidence, fleet: Fleet, options: Options) -> tuple[list[int], Skip | None]:
    """Return the hosts in use in each hour of the week, or why that is not known well enough. Raises NotMeasured."""
    hours = [0] * 168
    for host in hosts:
        devices = [device for each in host.device_ids if (device := fleet.device(each)).kind != "cpu"]
        known = [seen.of(each) for each in devices]
        observed_h = min((each.observed_h.mean for each in known), default=0.0)
        if observed_h < options.observed_h:
            reason = f"{host.name} was observed for {observed_h:.0f} of the {options.observed_h:.0f} h that it takes"
            return hours, skip("observed-briefly", reason)
        runs = [seen.of(each).busy.mean for each in fleet.deployments_on(host)]
        if max(runs, default=0.0) < options.min_busy:
            continue
        by_device = [each.hours.held for each in known]
        for hour in range(168):
            # Where nothing was recorded of a host, it did not run.
            held = max((share for each in by_device if (share := each[hour]) is not None), default=0.0)
            hours[hour] += held >= options.min_held
    return hours, None
