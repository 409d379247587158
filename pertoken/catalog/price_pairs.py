"""Pairs of listed offers of one provider and region: they show how the prices of two kinds of devices compare."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pertoken.catalog.offers import Offer

Kind = tuple[str, str]
"""Catalog name of an accelerator, and a purchase: what an offer is of."""
MIN_PROVIDERS = 2
"""Providers that must list both sides before their relation is taken for the market's; the person's own is enough."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two offers of one provider and region, for their price ratio."""

    base: Offer
    other: Offer

    @property
    def ratio(self) -> float:
        """Price of `other` over the price of `base`, per device-hour."""
        return self.other.nano_usd_per_device_hour / self.base.nano_usd_per_device_hour


def paired(base: Iterable[Offer], other: Iterable[Offer]) -> tuple[Pair, ...]:
    """Return the cheapest offers of two kinds in each provider and region that lists both; both are cheapest first.

    Pairs of low confidence are left out if there are others.
    """
    cheapest = _cheapest(base), _cheapest(other)
    pairs = [Pair(offer, cheapest[1][place]) for place, offer in cheapest[0].items() if place in cheapest[1]]
    trusted = [pair for pair in pairs if "low" not in (pair.base.confidence, pair.other.confidence)]
    return tuple(trusted or pairs)


def too_few(pairs: Iterable[Pair], base: Kind, other: Kind, own: Collection[str | None]) -> str | None:
    """Return why pairs do not show the relation of the prices of two kinds; None if they do.

    `own` are the providers that the person uses.
    """
    what = words(other)
    providers = {pair.base.provider for pair in pairs}
    if not providers:
        return f"no provider lists {what} beside {words(base)}"
    if len(providers) < MIN_PROVIDERS and not providers <= set(own):
        return f"only {', '.join(providers)} lists {what} beside {base[0]}: name your provider if it is yours"
    return None


def words(kind: Kind) -> str:
    """Return a kind of offer for people."""
    accelerator, purchase = kind
    return f"{accelerator} {purchase.replace('_', '-')}"


def _cheapest(offers: Iterable[Offer]) -> dict[tuple[str, str], Offer]:
    cheapest: dict[tuple[str, str], Offer] = {}
    for offer in offers:
        cheapest.setdefault((offer.provider, offer.region), offer)
    return cheapest
