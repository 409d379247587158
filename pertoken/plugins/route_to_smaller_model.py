"""Rule: send the easy requests to a smaller model."""

from collections.abc import Iterator

from pertoken.catalog.market import Market
from pertoken.rule import WEIGHT_BYTES, Deployment, Evidence, Skip, rule, skip

WORTH_ROUTING = 0.5
"""Active parameters of the smaller model over the present one's, at the most: beyond it a router hardly pays."""
HARDLY_BUSY = 0.05
"""Busy share below which there are too few requests to divide."""
WEIGHTS_SHARE = 0.85
"""Share of device memory that weights may take, to leave room for a KV cache."""


@rule("route-to-smaller-model")
def route_to_smaller_model(seen: Evidence, now: Deployment, market: Market) -> Iterator[Deployment | Skip]:
    """Send requests that a smaller model answers as well to one.

    ## Why it saves
    A model of an eighth of the size reads and computes an eighth per token. Where part of the requests are easy, that
    part needs fewer device-hours.
    ## When it is wrong
    Which requests are easy is not in the telemetry, so no money is promised: only the share from which it pays. Worse
    answers cost more than tokens. The smaller model needs a device of its own until the larger one gives some back.
    ## How to apply
    Label a sample of your traffic by comparing both models' answers; put a router in front; start with 1 to 5 %.
    ## Sources
    1. Ong et al., RouteLLM, arXiv 2406.18665: routing between two models by predicted quality.
    2. arXiv 2501.08219: 44.5 % of queries answered equally well by models of 1B to 32B parameters.
    3. The limits on size and busy time are judgement.
    """
    busy = seen.busy.mean
    if busy < HARDLY_BUSY:
        yield skip(f"it is busy {busy:.0%} of the time: too few requests to divide between two models")
        return
    device = market.accelerator(now.accelerator)
    if device is None or now.weight_dtype not in WEIGHT_BYTES:
        yield skip("its device or the dtype of its weights is not known")
        return
    active = now.model.params_active or 0
    smaller = [m for m in market.smaller_models(now.model) if (m.params_active or active) <= WORTH_ROUTING * active]
    if not smaller:
        yield skip(f"the catalog has no model of half its size or less in the family of {now.model.name}")
        return
    choice = smaller[0]
    ranks, weights = 1, (choice.params_total or 0) * WEIGHT_BYTES[now.weight_dtype]
    while weights > WEIGHTS_SHARE * device.memory_bytes * ranks:
        ranks *= 2
    yield now.but(model=choice, tp=ranks, pp=now.pp and 1, dp=now.dp and 1)
