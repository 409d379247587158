"""Outcome of moving deployments to a serverless API that is paid by the token, at the present load.

One break-even serves both directions: below it the API is cheaper, above it the devices are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pertoken.catalog.offers import TokenOffer, marks
from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.hosts import Freed, freed, refuse_partitions, whole_devices
from pertoken.savings.outcome import Outcome, same
from pertoken.savings.sizing import objectives
from pertoken.savings.speed import speed
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH, MTOK, format_usd

HOUR_S = 3600
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


def outcome(
    before: Fleet, now: Service, to: Service, pairs: Sequence[tuple[Deployment, Deployment]], context: Context
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
        refuse_partitions(before, old)
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
    staying = tuple(deployment for deployment in before.deployments if deployment.deployment_id not in moved_ids)
    released = freed(before, whole_devices(before, staying), (), context)
    api = tokens.nano_usd_per_hour(offer, caching=False)
    utilization = _utilization(released.bankable, offer, tokens, [old for old, _ in moved], now, context)
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
        slo, seen = objectives(service, context), context.evidence(deployment.deployment_id)
        forecast = speed(deployment, deployment, seen, slo, context, len(service.deployments))
        if forecast.at_most is None:
            return ""
        full += forecast.at_most[1]
    share = tokens.generated / full
    return f" ({share * nano_usd_per_hour / api:.1%} of full batches, {share:.1%} now)"
