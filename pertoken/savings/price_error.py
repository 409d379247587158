"""Error of bills that rest on list prices: a list price is as doubtful as it is old.

Prices of one provider and source move together, so that their errors cancel in a difference; those of different ones
are independent. Prices that a person set, and bills, have no error.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

from pertoken.catalog.offers import Offer
from pertoken.savings.context import Context
from pertoken.savings.placing import Placed
from pertoken.state.fleet import Host

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
