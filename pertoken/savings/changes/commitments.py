"""Outcome of a commitment to instances."""

from dataclasses import replace
from datetime import UTC, datetime

from pertoken.catalog.market import PriceFall
from pertoken.catalog.offers import ANYWHERE, RESERVED_YEARS, Offer, Origin, marks
from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.hosts import NoPrice, host_price
from pertoken.savings.outcome import Outcome
from pertoken.savings.placing import Placed
from pertoken.savings.price_error import price_error
from pertoken.state.deployment import Commitment
from pertoken.state.fleet import Fleet
from pertoken.units import HOURS_PER_MONTH, format_usd

YEAR_S = 365 * 86_400


def outcome(before: Fleet, commitment: Commitment, context: Context) -> Outcome:
    """Return the savings of a commitment on the hosts that it covers, less the instances paid for without a host.

    The low end compares it with on-demand prices that fall over its term as past list prices did.
    """
    if not commitment.runs_after(context.now_ts):
        assert commitment.end_ts is not None
        ended = datetime.fromtimestamp(commitment.end_ts, UTC).date()
        return Outcome(infeasible=f"the commitment is over already, since {ended}")
    committed_before = sum(
        present.count
        for present in before.commitments
        if _same(present, commitment) and present.runs_after(context.now_ts)
    )
    covered = [
        host
        for host in before.hosts
        if (host.placement.provider, host.placement.instance_type) == (commitment.provider, commitment.instance_type)
        and commitment.region in (None, host.placement.region)
        and host.placement.purchase in (None, "on_demand")
    ]
    if not covered:
        return Outcome(infeasible=f"no on-demand host is a {commitment.instance_type} of {commitment.provider}")
    if committed_before >= len(covered):
        return Outcome(
            infeasible=f"{committed_before} × {commitment.instance_type} are committed already, and {len(covered)} run"
        )
    try:
        # Present commitments are taken to cover the dearest hosts.
        open_hosts = sorted(
            ((host_price(before, host, context), host) for host in covered), key=lambda priced: -priced[0]
        )[committed_before:]
    except NoPrice as missing:
        return Outcome(unpriced=str(missing))
    paid = open_hosts[: commitment.count]
    prices = [price for price, _ in paid]
    committed = commitment.count * commitment.nano_usd_per_instance_hour
    saved = sum(prices) - committed
    if saved <= 0:
        return Outcome(
            infeasible=f"it costs {format_usd(committed)} an hour, no less than the on-demand hours it replaces "
            f"({format_usd(sum(prices))})"
        )
    fall, years = context.market.price_fall, commitment.years or _years_left(commitment, context)
    offer = _offer(commitment, context)
    count = commitment.count
    placed = () if offer is None else (Placed(replace(offer, origin=Origin.OWN_INSTANCE), (count, count, count)),)
    error = round(price_error((host for _, host in paid), placed, context))
    low = round(sum(prices) * fall.mean_over(years)) - committed - error
    high = min(saved + error, sum(prices))
    against = ["it is paid until its end, used or not", _fall(fall, sum(prices), committed, years)]
    if any(host.placement.purchase is None for host in covered):
        against.append("what is paid now is taken to be an on-demand price")
    return Outcome(
        bankable=(low * HOURS_PER_MONTH, saved * HOURS_PER_MONTH, high * HOURS_PER_MONTH),
        placed=placed,
        provenance=Provenance.ASSUMED if offer is None else Provenance.LISTED,
        assumptions=(
            f"{len(prices)} of {len(covered)} hosts run all hours until it ends: it pays from "
            f"{committed / sum(prices):.0%} of them on",
            _price_note(commitment, offer, context),
        ),
        against=tuple(against),
    )


def _same(one: Commitment, other: Commitment) -> bool:
    same = (one.provider, one.instance_type) == (other.provider, other.instance_type)
    return same and (None in (one.region, other.region) or one.region == other.region)


def _years_left(commitment: Commitment, context: Context) -> float:
    assert commitment.end_ts is not None
    return (commitment.end_ts - context.now_ts) / YEAR_S


def _offer(commitment: Commitment, context: Context) -> Offer | None:
    """Return the listed offer with the terms of a commitment, None if its price is not listed."""
    for offer in context.market.all_offers:
        if (
            (offer.provider, offer.instance_type) == (commitment.provider, commitment.instance_type)
            and offer.region in (commitment.region, ANYWHERE)
            and RESERVED_YEARS.get(offer.purchase) == commitment.years
            and offer.nano_usd_per_hour == commitment.nano_usd_per_instance_hour
        ):
            return offer
    return None


def _price_note(commitment: Commitment, offer: Offer | None, context: Context) -> str:
    if offer is None:
        hourly = format_usd(commitment.nano_usd_per_instance_hour)
        return f"{hourly} per instance and hour is the rule's own figure: no list has it"
    warnings = marks([offer], context.today, context.market.stale_after_days)
    marked = f" ({'; '.join(warnings)})" if warnings else ""
    note = f"; {offer.note}" if offer.note else ""
    return (
        f"{format_usd(offer.nano_usd_per_hour)} per instance and hour for {commitment.years} years is listed in "
        f"{offer.region}, {offer.as_of}{marked} ({offer.source}{note})"
    )


def _fall(fall: PriceFall, on_demand: int, committed: int, years: float) -> str:
    """Return a sentence on the time after which on-demand is as cheap, if its price falls as past list prices did."""
    after = fall.years_to(committed / on_demand)
    when = f"after {after:.1f} years" if after < years else "not before its end"
    return f"if on-demand falls by {fall.per_year:.0%} a year as lists did, it is as cheap {when} ({fall.source})"
