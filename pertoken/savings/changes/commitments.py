"""Committing to instances that run all the time."""

from datetime import UTC, datetime

from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.hosts import NoPrice, host_price
from pertoken.savings.outcome import Outcome
from pertoken.state.fleet import Fleet
from pertoken.state.placement import Commitment
from pertoken.units import HOURS_PER_MONTH, format_usd


def outcome(before: Fleet, commitment: Commitment, context: Context) -> Outcome:
    """Return what a commitment saves on the hosts it covers; hours it pays for beyond them count against it."""
    if commitment.end_ts <= context.now_ts:
        ended = datetime.fromtimestamp(commitment.end_ts, UTC).date()
        return Outcome(infeasible=f"the commitment is over already, since {ended}")
    covered = [
        host
        for host in before.hosts
        if (host.placement.provider, host.placement.instance_type) == (commitment.provider, commitment.instance_type)
        and commitment.region in (None, host.placement.region)
        and host.placement.purchase in (None, "on_demand")
    ]
    if not covered:
        return Outcome(infeasible=f"no on-demand host is a {commitment.instance_type} of {commitment.provider}")
    try:
        prices = sorted((host_price(before, each, context) for each in covered), reverse=True)[: commitment.count]
    except NoPrice as missing:
        return Outcome(unpriced=str(missing))
    committed = commitment.count * commitment.nano_usd_per_instance_hour
    saved = sum(prices) - committed
    if saved <= 0:
        return Outcome(
            infeasible=f"it costs {format_usd(committed)} an hour, no less than the on-demand hours it replaces "
            f"({format_usd(sum(prices))})"
        )
    month = saved * HOURS_PER_MONTH
    against = ["it is paid until its end, used or not"]
    if any(each.placement.purchase is None for each in covered):
        against.append("what is paid now is taken to be an on-demand price")
    return Outcome(
        bankable=(month, month, month),
        provenance=Provenance.LISTED,
        assumptions=(f"{len(prices)} of {len(covered)} hosts run all hours until it ends",),
        against=tuple(against),
    )
