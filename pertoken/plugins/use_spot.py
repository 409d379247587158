"""Rule: serve a replica from spot devices."""

from collections.abc import Iterator

from pertoken.catalog.market import Market
from pertoken.rule import Deployment, Evidence, Skip, rule, skip

LEAST_REPLICAS = 2
"""Replicas below which an interruption is an outage (Sources, 1)."""
LEAST_DISCOUNT = 0.2
"""Listed discount below which interruptions (Sources, 3) may cost what they save; the limit is judgement."""


@rule("use-spot")
def use_spot(seen: Evidence, now: Deployment, market: Market) -> Iterator[Deployment | Skip]:
    """Serve a surplus replica from spot devices.

    ## Why it saves
    Providers sell idle devices 30 to 85 % below on-demand and may take them back at short notice. Serving keeps no
    state that a retry could not rebuild, so that a replica can be lost as long as another one answers.
    ## When it is wrong
    With a single replica every interruption is an outage. Some zones list spot at the on-demand price: no discount.
    Long generations are lost midway; capacity may be gone exactly when you need it.
    ## How to apply
    Keep one replica on-demand, put the others on spot in two or more zones behind a load balancer, and drain one when
    its notice comes (2 min on AWS, 30 s on Google Cloud and Azure).
    ## Sources
    1. Mao et al., SkyServe, EuroSys 2025 (arXiv 2411.01438): replicas over spot zones with an on-demand fallback.
    2. docs.aws.amazon.com, EC2 User Guide, Spot Instance interruption notices.
    3. AWS Spot Instance Advisor, February 2026: 15 to 20 % of P5 instances interrupted in a month.
    """
    busy = seen.busy.mean
    device = market.accelerator(now.accelerator)
    if now.purchase not in (None, "on_demand"):
        yield skip(f"its devices are paid as {now.purchase}, not on-demand")
    elif now.replicas < LEAST_REPLICAS:
        yield skip("it is the only replica: an interruption would be an outage")
    elif device is None:
        yield skip("its device is not in the catalog: no spot offer can be compared")
    elif busy <= 0:
        yield skip("it served nothing in the window: releasing it saves more")
    else:
        pairs = market.pairs((device.name, "on_demand"), (device.name, "spot"))
        if any(pair.ratio <= 1 - LEAST_DISCOUNT for pair in pairs):
            yield now.but(purchase="spot")
        else:
            yield skip(f"no spot offer of {device.name} is listed really below on-demand")
