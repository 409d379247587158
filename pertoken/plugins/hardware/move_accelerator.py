"""Rule: serve from another accelerator."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from pertoken.plugins.common import (
    CATALOG,
    SIXTEEN_BIT_OR_MORE,
    encoder_refusal,
    not_in_catalog,
    replicas_differ,
    smaller_formats,
    stores_kv_in_fp8,
)
from pertoken.rule import (
    WEIGHT_BYTES,
    Accelerator,
    Deployment,
    Evidence,
    Market,
    Offer,
    Placement,
    Proposal,
    Service,
    Skip,
    option,
    propose,
    rule,
    skip,
)

COMMITTED = ("owned", "reserved")
SLOTS = 8
"""Requests at once of a server on CPUs under another engine than before: a judgement."""
WEIGHTS_SHARE = 0.85
"""Most of a host's memory that weights may take: a judgement; the KV cache and the system need the rest."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the default architectures lack bfloat16 (Sources, 2)."""

    left_out: tuple[str, ...] = option(
        ("Volta", "Turing"), "architectures of the catalog that are never proposed; the defaults lack bfloat16"
    )
    few_running: float = option(16.0, "maximum running requests per device for 4-bit weights", low=0)


@rule("move-accelerator")
def move_accelerator(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Serve from an accelerator, or from CPUs, whose memory or price suits the load better.

    ## Why it saves
    Decoding waits on memory: an H200 reads 1.43 times as fast as an H100 and holds far more sequences, often at a
    smaller difference in price. For a small load an older, cheaper device may be enough, the more so with weights in
    fewer bits. FP8 weights that need fewer devices than the present format are tried with a KV cache in FP8 too. CPUs
    rent for a fraction of an accelerator: they suit small, rare or patient services, whose objectives they hold.
    ## When it is wrong
    Loads dominated by prefill need FLOPs, which an H200 does not add. Committed or owned devices are paid for in any
    case. Your prices may differ from list prices, and capacity may be unavailable. Engine features differ by
    architecture. Weights in fewer bits alter outputs: run your own evaluation. An accelerator is left out if the
    provider that the service runs at lists no instance that holds a replica. CPUs are proposed only as instances of a
    kind on which `pertoken probe` measured a model here, with the engine and the formats that it measured: their rates
    are not listed. Tokens come more slowly from CPUs, so that without an objective for the time per token none pass.
    ## How to apply
    Start a replica on the other instance type, compare it under your own load, then move the traffic. To have CPUs
    considered, serve any model on one instance of the kind in question and run `pertoken probe` there.
    ## Sources
    1. NVIDIA H100 and H200 datasheets: 3.35 and 4.8 TB/s, 80 and 141 GB, equal FLOPs.
    2. NVIDIA CUDA C++ Programming Guide: bfloat16 arithmetic from compute capability 8.0.
    3. The catalog's own rows: `accelerators.csv` and `prices.csv`, with source and date on each.
    4. The share of memory left for the KV cache is judgement; the forecast checks for every candidate whether the
       engine starts.
    """
    if refusal := encoder_refusal(seen, "how fast it is elsewhere is forecast for generation alone"):
        yield refusal
        return
    generated_tok_s = seen.generated_tok_s.p95
    present = service.deployments[0]
    present_accelerator = market.accelerator(present.accelerator)
    committed = {
        purchase for deployment in service.deployments if (purchase := deployment.placement.purchase) in COMMITTED
    }
    words = "model, accelerator, weights or ranks"
    if differing := replicas_differ(service, words, "model", "accelerator", "weight_dtype", "tp", "pp"):
        yield differing
        return
    if generated_tok_s <= 0:
        reason = "it generated 0 tokens/s (p95) in the window: releasing its hosts saves more than moving them"
        yield skip("no-load", reason)
        return
    if present_accelerator is None:
        yield not_in_catalog(present, "it cannot be compared")
        return
    if committed:
        paid = " and ".join(sorted(map(str, committed)))
        yield skip("committed", f"its devices are {paid}: they are paid for whether used or not")
        return
    if present.model.params_total is None or present.weight_dtype not in WEIGHT_BYTES:
        yield skip("weights-unknown", f"the size of its weights is not known: {CATALOG}")
        return
    purchase = "spot" if present.placement.purchase == "spot" else "on_demand"
    provider = present.placement.provider or market.provider
    tried = 0
    fits = False
    not_offered: list[str] = []
    devices = sum(deployment.n_devices or len(deployment.device_ids) for deployment in service.deployments)
    few = seen.has("running") and seen.running.mean / devices <= options.few_running
    present_offers = [
        offer
        for offer in market.offers(present_accelerator.name, purchase)
        if offer.provider == (provider or offer.provider)
    ]
    present_price = devices * _listed(present_offers)
    onto_cpus = list(_onto_cpus(service, market))
    yield from onto_cpus
    if few and not market.measured and present_price < inf:
        yield from _unprobed_cpus(seen, present, market, present_price)
    for accelerator in market.accelerators:
        if (
            accelerator.name == present_accelerator.name
            or accelerator.arch in options.left_out
            or not market.offers(accelerator.name)
        ):
            continue
        if present.weight_dtype == "fp4" and accelerator.fp4_flops is None:
            continue
        tried += 1
        ranks_by_dtype = {
            dtype: ranks
            for dtype in _formats(present, accelerator, market, few=few)
            if (ranks := market.ranks(present.model, dtype, accelerator, present.pp or 1))
        }
        if not ranks_by_dtype:
            continue
        fits = True
        fewest = min(ranks[0] for ranks in ranks_by_dtype.values())
        offers = [
            offer
            for offer in market.offers(accelerator.name, purchase)
            if offer.provider == (provider or offer.provider)
        ]
        if not any(offer.n_devices >= fewest for offer in offers):
            not_offered.append(f"{accelerator.name} (tp {fewest})")
            continue
        fewest_now = ranks_by_dtype.get(present.weight_dtype, (0,))[0]
        for dtype, ranks in ranks_by_dtype.items():
            for count in ranks:
                # The fewest ranks may be too slow; fewer bits are for no more ranks. One replica that lists above all
                # present ones saves nothing.
                may_gain = dtype == present.weight_dtype or count <= fewest_now
                worth_more_ranks = may_gain and count * _listed(offers) < present_price
                if (count == ranks[0] or worth_more_ranks) and any(offer.n_devices >= count for offer in offers):
                    moved = service.on(Placement(accelerator=accelerator.name)).but(tp=count, weight_dtype=dtype)
                    risk = "availability" if dtype == present.weight_dtype else "quality"
                    yield propose(moved.resized(), risk=risk, effort="high")
                    # Weights that fit on fewer devices leave little room for a cache of 16 bits.
                    if dtype == "fp8" and not 0 < fewest_now <= count and _may_halve_kv(present, accelerator):
                        yield propose(moved.but(kv_dtype="fp8").resized(), risk=risk, effort="high")
    if not_offered:
        where = provider or "any provider"
        reason = f"no {purchase.replace('_', '-')} instance at {where} that is listed holds a replica on "
        yield skip("not-offered-here", reason + ", ".join(not_offered))
    if not fits and not onto_cpus:
        gib = present.model.params_total * WEIGHT_BYTES[present.weight_dtype] / (present.pp or 1) / 2**30
        yield skip(
            "nothing-else-fits",
            f"none of {tried} other accelerators with listed offers holds its {gib:.0f} GiB of weights in one server",
        )


def _onto_cpus(service: Service, market: Market) -> Iterator[Proposal]:
    """Yield a move to each kind of CPUs with an offer, under each engine and format that were measured there."""
    present = service.deployments[0]
    layout = {name: 1 for name in ("pp", "dp") if getattr(present, name) not in (None, 1)}
    for cpus in market.measured:
        if cpus.name == present.accelerator or not market.offers(cpus.name):
            continue
        for engine, dtype in cpus.measured:
            if (
                WEIGHT_BYTES.get(dtype, inf) > WEIGHT_BYTES[present.weight_dtype or ""]
                or market.fewest_ranks(present.model, dtype, cpus) != 1
                or market.not_run(engine, dtype, cpus.name) is not None
            ):
                continue
            moved = service.on(Placement(accelerator=cpus.name)).but(tp=1, weight_dtype=dtype, **layout)
            if engine != present.engine:
                moved = moved.but(engine=engine, max_num_seqs=SLOTS)
                if present.kv_dtype not in (None, *SIXTEEN_BIT_OR_MORE):
                    moved = moved.but(kv_dtype="fp16")
            yield propose(
                moved.resized(), risk="availability" if dtype == present.weight_dtype else "quality", effort="high"
            )


def _unprobed_cpus(seen: Evidence, present: Deployment, market: Market, present_price: float) -> Iterator[Skip]:
    """Yield the rate from which the cheapest listed CPUs that hold the weights would cost less, where they may."""
    weights = (present.model.params_total or inf) * WEIGHT_BYTES[present.weight_dtype or ""]
    for offer in market.offers_at(Placement(present.placement.provider, present.placement.region, accelerator="CPU")):
        size = market.instance_size(offer.provider, offer.instance_type)
        if size is None or WEIGHTS_SHARE * size.memory_bytes < weights or offer.nano_usd_per_hour >= present_price:
            continue
        part = offer.nano_usd_per_hour / present_price
        yield skip(
            "cpus-not-probed",
            f"how fast CPUs serve it is not known: {offer.instance_type} rents for {part:.1%} of what it costs, so "
            f"that it is cheaper from {part * seen.generated_tok_s.mean:.3g} generated tokens/s on; serve a model on "
            "one and run `pertoken probe` there",
        )
        return


def _formats(present: Deployment, accelerator: Accelerator, market: Market, *, few: bool) -> list[str]:
    """Return the formats of weights to try: the present one, and those of fewer bits that run in place of 16 bits."""
    smaller = (
        smaller_formats(present.engine, accelerator, few=few) if present.weight_dtype in SIXTEEN_BIT_OR_MORE else []
    )
    runs = (dtype for dtype in smaller if market.not_run(present.engine, dtype, accelerator.name) is None)
    return [present.weight_dtype or "", *runs]


def _may_halve_kv(present: Deployment, accelerator: Accelerator) -> bool:
    """Return whether the cache of 16-bit weights is in 16 bits too, of a size that matters, and FP8 runs there."""
    is_large = present.kv_dtype in (None, *SIXTEEN_BIT_OR_MORE) and present.model.n_kv_heads != 1
    return is_large and stores_kv_in_fp8(present.engine, accelerator)


def _listed(offers: Sequence[Offer]) -> float:
    """Return the lowest listed price of a device, nano-USD per hour; infinite where none is listed."""
    return min((offer.nano_usd_per_device_hour for offer in offers), default=inf)
