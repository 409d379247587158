"""Outcome of a commitment to instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pertoken.catalog.market import PriceFall
from pertoken.catalog.offers import ANYWHERE, RESERVED_YEARS, Offer, Origin, TokenOffer, marks
from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.hosts import Freed, NoPrice, freed, host_price, refuse_partitions, whole_devices
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.placing import Placed, price_error
from pertoken.savings.sizing import objectives
from pertoken.savings.speed import speed
from pertoken.state.deployment import Commitment, Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import HOUR_S, HOURS_PER_MONTH, MTOK, format_usd

YEAR_S = 365 * 86_400


def commitment_outcome(present_fleet: Fleet, commitment: Commitment, context: Context) -> Outcome:
    """Return the savings of a commitment on the hosts that it covers, less the instances paid for without a host.

    The low end compares it with on-demand prices that fall over its term as past list prices did.
    """
    if not commitment.runs_after(context.now_ts):
        assert commitment.end_ts is not None
        ended = datetime.fromtimestamp(commitment.end_ts, UTC).date()
        return Outcome(infeasible=f"the commitment is over already, since {ended}")
    committed_before = sum(
        present.count
        for present in present_fleet.commitments
        if _same(present, commitment) and present.runs_after(context.now_ts)
    )
    covered = [
        host
        for host in present_fleet.hosts
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
            ((host_price(present_fleet, host, context), host) for host in covered), key=lambda priced: -priced[0]
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


def _same(first: Commitment, second: Commitment) -> bool:
    same = (first.provider, first.instance_type) == (second.provider, second.instance_type)
    return same and (None in (first.region, second.region) or first.region == second.region)


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


UNCOUNTED = "rate limits, the API's latency and the work of engineers on either side are not counted"


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Tokens per second of the deployments that move."""

    prompt: float
    cached: float
    """Prompt tokens found in the prefix cache of the engine; part of `prompt`."""
    generated: float

    @property
    def total(self) -> float:
        return self.prompt + self.generated

    def nano_usd_per_hour(self, offer: TokenOffer, *, caching: bool) -> float:
        """Return the price of an hour of these tokens. `caching`: the API finds the same prompt tokens in its cache."""
        cached = self.cached if caching and offer.cached_input is not None else 0.0
        prompt = (self.prompt - cached) * offer.input + cached * (offer.cached_input or 0)
        return HOUR_S / MTOK * (prompt + self.generated * offer.output)


def api_outcome(
    present: Fleet, service: Service, to: Service, pairs: Sequence[tuple[Deployment, Deployment]], context: Context
) -> Outcome:
    """Return the savings of moving deployments of a service to an API: the released hosts less the price of the tokens.

    They count once a person confirms that prompts may go there and outputs are as good. Raises NoPrice.
    """
    moved = [(old, new) for old, new in pairs if new.placement.purchase == "per_token"]
    providers = {new.placement.provider for _, new in moved}
    models = {new.model.name for _, new in moved}
    if len(providers) > 1 or len(models) > 1 or any(old.knob_changes(new) for old, new in moved) or to.replicas:
        return Outcome(unpriced="a move to an API is priced alone: one model, one provider, nothing else changed")
    for old, _ in moved:
        refuse_partitions(present, old)
    provider, model = providers.pop(), moved[0][1].model
    offers = {offer.provider: offer for offer in context.market.token_offers(model)}
    offer = offers.get(provider or "")
    if offer is None:
        others = f"; {', '.join(offers)} list some" if offers else ""
        return Outcome(infeasible=f"no token price of this model is in the catalog for {provider}{others}")
    try:
        tokens = _tokens([old for old, _ in moved], context)
    except NotMeasured as missing:
        return Outcome(unpriced=missing.sentence)
    moved_ids = {old.deployment_id for old, _ in moved}
    staying = tuple(deployment for deployment in present.deployments if deployment.deployment_id not in moved_ids)
    released = freed(present, whole_devices(present, staying), (), context)
    api = tokens.nano_usd_per_hour(offer, caching=False)
    utilization = _utilization(released.bankable, offer, tokens, [old for old, _ in moved], service, context)
    compared = _compared(offer, tokens, released, context)
    if api >= released.bankable:
        return Outcome(infeasible=f"{compared}: {_kept_at(released, utilization)}")
    pays = f"pays below {released.bankable / api:.2g} times its tokens{utilization}: {compared}" if api else compared
    moved_there = Outcome(
        kept=same(tuple(new for _, new in pairs if new.placement.purchase != "per_token")),
        new_nano_usd_per_hour=(tokens.nano_usd_per_hour(offer, caching=True), api, api),
        provenance=Provenance.LISTED,
        assumptions=(compared,),
        against=(UNCOUNTED,),
    )
    if offer.provider in context.token_apis:
        confirmed = f"answers from {offer.provider} are as good, and prompts may go there (as you set)"
        return replace(moved_there, assumptions=(compared, confirmed))
    return replace(
        moved_there,
        break_even=pays,
        unconfirmed=f"whether answers from {offer.provider} are as good and your prompts may be sent there is not "
        f'known: compare a sample, then set market.token_apis = ["{offer.provider}"]',
    )


def _tokens(moved: Sequence[Deployment], context: Context) -> _Tokens:
    """Return the mean rates over the window. Raises NotMeasured."""
    prompt = cached = generated = 0.0
    for deployment in moved:
        seen = context.evidence(deployment.deployment_id)
        prompt += seen.prompt_tok_s.mean
        generated += seen.generated_tok_s.mean
        if seen.has("computed_tok_s"):
            cached += max(0.0, seen.prompt_tok_s.mean - seen.computed_tok_s.mean)
    return _Tokens(prompt, cached, generated)


def _compared(offer: TokenOffer, tokens: _Tokens, released: Freed, context: Context) -> str:
    """Return a sentence with both monthly bills, the price list and its caveats."""
    warnings = marks([offer], context.today, context.market.stale_after_days)
    marked = f"; {'; '.join(warnings)}" if warnings else ""
    month = HOURS_PER_MONTH
    return (
        f"{tokens.total * HOUR_S / MTOK:.3g} Mtok an hour cost "
        f"{format_usd(tokens.nano_usd_per_hour(offer, caching=False) * month)} a month at {offer.provider} "
        f"({format_usd(offer.input)}/Mtok in, {format_usd(offer.output)}/Mtok out, {offer.as_of}, {offer.source}"
        f"{marked}), the hosts it would release {format_usd(released.bankable * month)}"
    )


def _kept_at(released: Freed, utilization: str) -> str:
    if not released.bankable:
        return "; ".join(released.against) or "no host would leave the bill"
    return f"serving it here is cheaper{utilization}"


def _utilization(
    nano_usd_per_hour: int,
    offer: TokenOffer,
    tokens: _Tokens,
    moved: Sequence[Deployment],
    service: Service,
    context: Context,
) -> str:
    """Return the break-even as a share of the tokens of full batches, "" if these cannot be forecast."""
    api = tokens.nano_usd_per_hour(offer, caching=False)
    if tokens.generated <= 0 or api <= 0:
        return ""
    full = 0.0
    for deployment in moved:
        forecast = speed(deployment, deployment, objectives(service, context), context, len(service.deployments))
        if forecast.at_most is None:
            return ""
        full += forecast.at_most[1]
    share = tokens.generated / full
    return f" ({share * nano_usd_per_hour / api:.1%} of full batches, {share:.1%} now)"
