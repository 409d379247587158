"""Sizing before deployment: which accelerators, layouts and formats serve a workload within its SLO, and at what cost.

No host, database or measurement is needed: the serving model is used as it is without calibration, with list prices.

Front door:

- `savings.size`: `SizedWorkload`, the requests of a service.
- `savings.size`: `size`, and the `Sizing` it returns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from difflib import get_close_matches
from functools import cache, cached_property

from pertoken.arrivals import Arrivals, typical
from pertoken.catalog.engine_lines import runs
from pertoken.catalog.market import Accelerator, Market
from pertoken.catalog.model_facts import image_encoder
from pertoken.catalog.offers import Offer, TokenOffer, marks
from pertoken.errors import BadInput
from pertoken.forecast.candidates import Candidates
from pertoken.forecast.capacity import fitting_sequences, free_bytes, kv_tokens, weight_bytes
from pertoken.forecast.formats import defaults
from pertoken.forecast.host import Calibration, tier_of
from pertoken.forecast.latency import MAX_REPLICAS, Latency, LatencyQuery, fewest_all, latencies, unmeasured_widths
from pertoken.forecast.served import Abstained, Load, for_each
from pertoken.forecast.tiers import Tier
from pertoken.state.deployment import WEIGHT_BYTES, Deployment, Model, Placement
from pertoken.state.service import Slo
from pertoken.units import HOUR_S, MTOK, NANO_USD

SHAPE = "conversation"
"""Published trace whose spread of prompt and output lengths is taken around the means that are given."""
LENGTH_STEP = 256
"""Tokens; `max_model_len` is a multiple of it."""


@dataclass(frozen=True)
class SizedWorkload:
    """Requests a service will get, as means, and its latency objectives."""

    requests_per_s: float
    """Arriving independently of each other (Poisson)."""
    prompt_len: float
    """Mean prompt tokens per request, cached included."""
    output_len: float
    """Mean generated tokens per request."""
    slo: Slo
    cached_share: float = 0.0
    """Prompt tokens found in a prefix cache, 0 to 1."""
    images: float = 0.0
    """Mean images per request. Their tokens are part of `prompt_len`."""
    image_size: tuple[int, int] | None = None
    """Width and height of an image in pixels."""

    def with_images(self, images: float, size: tuple[int, int], model: str) -> SizedWorkload:
        """Return the workload with images beside the prompts: their tokens are added to `prompt_len`.

        Raises BadInput for a model whose tokens per image are not known.
        """
        encoder = image_encoder(model)
        if encoder is None:
            raise BadInput(
                f"how many tokens {model} makes of an image is not known: add them to the prompt tokens yourself, and "
                "count no images"
            )
        tokens = images * encoder.tokens(*size)
        return replace(self, prompt_len=self.prompt_len + tokens, images=images, image_size=size)

    @cached_property
    def arrivals(self) -> Arrivals:
        """Arrivals with the spread of lengths of the published trace, scaled to the means."""
        prompt, output = typical(SHAPE)
        return Arrivals(self.requests_per_s, prompt.scaled_to(self.prompt_len), output.scaled_to(self.output_len))

    @cached_property
    def load(self) -> Load:
        """Load as the serving model takes it."""
        tok_s = self.requests_per_s * self.output_len
        return Load(
            tok_s,
            self.prompt_len,
            self.output_len,
            1.0,
            cached_share=self.cached_share,
            images=self.images,
            image_size=self.image_size,
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest request that is expected, rounded up: the `max_model_len` to set."""
        tokens = float(self.arrivals.prompt.tokens[-1] + self.arrivals.generated.tokens[-1])
        return LENGTH_STEP * math.ceil(tokens / LENGTH_STEP)

    @property
    def mtok_per_hour(self) -> float:
        """Prompt (cached included) and generated Mtok per hour: the denominator of `$/Mtok`."""
        return self.requests_per_s * (self.prompt_len + self.output_len) * HOUR_S / MTOK


Counts = tuple[int | None, int | None, int | None]
"""At the fast end, likely, at the slow end; None where no number of replicas holds the SLO."""
Bounds = tuple[float | None, float, float | None]
"""Low, likely, high of an 80 % interval; None where an end is not known, such as the high end of an overload."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of the interval, as factors on the likely figures."""

    time: float
    """On the time of everything that devices do."""
    latency: float
    """On TTFT and TPOT at p95 at this time: the error of the queueing model is included."""


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Latencies of one of some replicas, milliseconds."""

    ttft_p95_ms: Bounds
    tpot_p95_ms: Bounds


@cache
def ends() -> tuple[End, End, End]:
    """Return the fast end, the likely value and the slow end."""
    fast, likely, slow = (End(*(math.exp(sign * width) for width in unmeasured_widths())) for sign in (-1, 0, 1))
    return fast, likely, slow


def fewest_replicas(deployments: Sequence[Deployment], workload: SizedWorkload, market: Market) -> list[Counts]:
    """Return how many replicas of each deployment hold the SLO at each end. One that is not forecast holds none."""
    slo = workload.slo
    queries = [at(workload, deployment, 1) for deployment in deployments]
    by_end = []
    for end in ends():
        ttft, tpot = slo.ttft_p95_ms, slo.tpot_p95_ms
        limits = None if ttft is None else ttft / end.latency, None if tpot is None else tpot / end.latency
        counts = fewest_all([(query, (end.time,), limits) for query in queries], market)
        by_end.append([None if isinstance(count, Abstained) else count[0] for count in counts])
    return list(zip(*by_end, strict=True))


def figures(
    forecastable: Sequence[tuple[Deployment, int]], workload: SizedWorkload, market: Market
) -> list[LatencyFigures | None]:
    """Return the latencies of each deployment with its number of replicas; None where even likely it is overloaded."""
    by_end = [
        [
            _scaled(latency, end)
            for latency in latencies(
                [at(workload, deployment, replicas, end.time) for deployment, replicas in forecastable], market
            )
        ]
        for end in ends()
    ]
    all_figures: list[LatencyFigures | None] = []
    for fast, likely, slow in zip(*by_end, strict=True):
        if likely is None:
            all_figures.append(None)
        else:
            low, high = fast or (None, None), slow or (None, None)
            all_figures.append(LatencyFigures((low[0], likely[0], high[0]), (low[1], likely[1], high[1])))
    return all_figures


def at(workload: SizedWorkload, deployment: Deployment, replicas: int, factor: float = 1.0) -> LatencyQuery:
    """Return the query of one of some replicas, its requests times a factor."""
    arrivals = replace(workload.arrivals, requests_per_s=workload.requests_per_s * factor / replicas)
    return LatencyQuery(deployment, workload.load, arrivals, Calibration())


def _scaled(latency: Latency | Abstained, end: End) -> tuple[float, float] | None:
    if isinstance(latency, Abstained) or latency.ttft_p95_ms is None or latency.tpot_p95_ms is None:
        return None
    return latency.ttft_p95_ms[1] * end.latency, latency.tpot_p95_ms[1] * end.latency


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory of one deployment. Bytes are of each of its devices, tokens and sequences of the whole deployment."""

    weights_bytes: float
    usable_bytes: float
    """Memory that the engine may use, of the reported memory."""
    kv_cache_bytes: float
    """0 where the weights do not fit."""
    kv_cache_tokens: float
    sequences: float
    """Sequences of the load's mean length that the KV cache holds."""

    def holds(self, tokens: float) -> bool:
        """Return whether the KV cache holds one sequence of this length."""
        return self.kv_cache_tokens >= tokens


def memory_fits(deployments: Sequence[Deployment], load: Load, market: Market) -> list[MemoryFit | Abstained]:
    """Return how each deployment fits in its devices under a load; `Abstained` in place of a result."""

    def fits(_: Sequence[Deployment], c: Candidates) -> list[MemoryFit]:
        columns = (
            weight_bytes(c),
            c.memory_bytes * c.memory_share,
            free_bytes(c).clip(0),
            kv_tokens(c),
            fitting_sequences(c),
        )
        return [MemoryFit(*map(float, values)) for values in zip(*columns, strict=True)]

    return for_each(deployments, lambda deployment: (deployment, load), market, fits)


@dataclass(frozen=True, slots=True)
class Rented:
    """Replicas of one deployment on whole instances of one offer."""

    deployment: Deployment
    """One replica."""
    offer: Offer
    replicas: tuple[int | None, int, int | None]
    """Fewest that hold the SLO: at the fast end of the forecast, likely, and at its slow end (None: no number does)."""
    figures: LatencyFigures
    """Latencies at the likely number of replicas."""
    fit: MemoryFit
    tier: Tier
    """Basis of its forecast."""

    @property
    def sure(self) -> bool:
        """Whether the likely number of replicas holds the SLO even at the slow end of the forecast."""
        return self.replicas[2] == self.replicas[1]

    @property
    def instances(self) -> tuple[int | None, int, int | None]:
        """Whole instances for each number of `replicas`."""
        low, likely, high = self.replicas
        ranks = self.deployment.tp or 1
        fewest, most = (None if count is None else self.offer.instances_for(count, ranks) for count in (low, high))
        return fewest, self.offer.instances_for(likely, ranks), most

    @property
    def devices(self) -> int:
        """Paid devices that the likely number of replicas works on."""
        return self.replicas[1] * (self.deployment.tp or 1)

    @property
    def nano_usd_per_hour(self) -> tuple[int | None, int, int | None]:
        """Price of the whole instances."""
        price = self.offer.nano_usd_per_hour
        low, likely, high = self.instances
        return None if low is None else low * price, likely * price, None if high is None else high * price

    def nano_usd_per_mtok(self, workload: SizedWorkload) -> Bounds:
        """Return all dollars over all tokens, prompt (cached included) and generated."""
        mtok = workload.mtok_per_hour
        low, likely, high = self.nano_usd_per_hour
        return None if low is None else low / mtok, likely / mtok, None if high is None else high / mtok


@dataclass(frozen=True, slots=True)
class Serverless:
    """An API that is paid by the token. Its latency is not known."""

    offer: TokenOffer

    def nano_usd_per_mtok(self, workload: SizedWorkload) -> Bounds:
        """Price of the mix of tokens: likely and high without the provider's cache, low with it where it is listed."""
        prompt, output = workload.prompt_len, workload.output_len
        cached = 0.0 if self.offer.cached_input is None else prompt * workload.cached_share

        def mix(cached: float) -> float:
            paid = (prompt - cached) * self.offer.input + cached * (self.offer.cached_input or 0)
            return (paid + output * self.offer.output) / (prompt + output)

        return mix(cached), mix(0.0), mix(0.0)


def cheapest(deployment: Deployment, replicas: int, offers: Iterable[Offer]) -> Offer | None:
    """Return the offer whose whole instances hold the replicas for the fewest dollars; None if none holds one."""
    large = [offer for offer in offers if offer.n_devices >= (deployment.tp or 1)]
    return min(
        large,
        key=lambda offer: (
            offer.instances_for(replicas, deployment.tp or 1) * offer.nano_usd_per_hour,
            offer.nano_usd_per_device_hour,
            offer.key,
        ),
        default=None,
    )


ENGINE = "vllm"
"""Engine that is sized: it runs on NVIDIA and AMD devices, and the forecast was fitted on it."""
MAX_BATCHED_TOKENS = 8192
"""Prompt tokens of one engine step. Source: vLLM 0.32 `engine/arg_utils.py`, its default on devices of 70 GiB or more;
it is stated in the proposed flags, so that smaller devices use it too."""
FORMATS = tuple(WEIGHT_BYTES)
"""Names of weight formats that can be asked for."""


def formats(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the weight formats worth sizing on an accelerator, 16-bit first.

    8-bit formats only where its matrix units compute in them; INT4 everywhere, since it is unpacked to 16 bits.
    `size` leaves out formats that the engine does not run.
    """
    dtypes = ["bf16" if runs(ENGINE, "bf16", accelerator.arch) else "fp16"]
    if accelerator.fp8_flops is not None:
        dtypes.append("fp8")
    elif accelerator.int8_flops is not None and accelerator.int8_flops > accelerator.fp16_flops:
        dtypes.append("int8")
    dtypes.append("int4")
    if accelerator.fp4_flops is not None:
        dtypes.append("fp4")
    return tuple(dtypes)


def layouts(
    model: Model,
    dtypes: Iterable[str] | None,
    accelerators: Iterable[Accelerator],
    workload: SizedWorkload,
    market: Market,
) -> Iterator[Deployment]:
    """Yield deployments of one replica each: layouts whose memory cannot hold the weights are left out.

    `dtypes`: weight formats to use; None for `formats`.
    """
    wanted = None if dtypes is None else tuple(dtypes)
    for accelerator in accelerators:
        for dtype in formats(accelerator) if wanted is None else wanted:
            for ranks in market.ranks(model, dtype, accelerator):
                yield Deployment(
                    model,
                    ENGINE,
                    tp=ranks,
                    pp=1,
                    dp=1,
                    weight_dtype=dtype,
                    max_num_seqs=defaults().max_num_seqs,
                    max_num_batched_tokens=MAX_BATCHED_TOKENS,
                    max_model_len=workload.longest,
                    gpu_memory_utilization=defaults().gpu_memory_utilization,
                    enable_prefix_caching=workload.cached_share > 0,
                    placement=Placement(accelerator=accelerator.name),
                )


NEAR = 3
"""Names that are suggested for one that is not known."""


def known_model(name: str, market: Market) -> Model:
    """Return the shape of a model. Raises BadInput with near names for one that the catalog does not know."""
    model = market.model(name)
    if model is not None:
        return model
    near = near_names(name, [model.name for model in market.models])
    nearest = f"; near: {', '.join(near)}" if near else ""
    raise BadInput(
        f"{name}: not in the catalog of models{nearest}. For another model name a folder with its config.json, as "
        "published on Hugging Face: its shape is read from it (and from its safetensors files, where they are there)"
    )


def near_names(name: str, names: list[str]) -> list[str]:
    """Return names like this one, the most alike first; the organization before the slash counts for nothing."""
    by_key = {name.rsplit("/", 1)[-1].casefold(): name for name in names}
    key = name.rstrip("/").rsplit("/", 1)[-1].casefold()
    return [by_key[match] for match in get_close_matches(key, list(by_key), n=NEAR)]


NO_SLO = f"no number of replicas up to {MAX_REPLICAS} holds the SLO"
FEWER_BITS_GAIN = 1.15
"""Dollars of 8-bit weights over those of weights in fewer bits, up to which 8 bits rank first. A judgement."""
NO_MEMORY = "the weights do not fit, or leave too little memory for the longest request"


@dataclass(frozen=True, slots=True)
class Miss:
    """A deployment that does not hold the SLO, however many replicas share the requests."""

    deployment: Deployment
    figures: LatencyFigures | None
    """Latencies at the maximum of replicas tried; None where even these do not serve all requests."""
    over: float
    """Its worst likely figure over the objective; without figures, the requests over the served ones. Above 1."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Ranked choices for a workload."""

    model: Model
    workload: SizedWorkload
    choices: tuple[Rented | Serverless, ...]
    """Cheapest first, by the likely dollars per Mtok, of equal ones by those at the high end; weights below 8 bits
    only where they are cheaper by `FEWER_BITS_GAIN`. Rented ones likely hold the SLO; of an API that is not known."""
    nearest_miss: Miss | None
    """Where nothing that can be rented holds the SLO; None too where nothing fits or has a price."""
    left_out: Mapping[str, int]
    """Number of layouts by the reason why they are not among the choices."""

    @property
    def rented(self) -> tuple[Rented, ...]:
        """Choices on devices."""
        return tuple(choice for choice in self.choices if isinstance(choice, Rented))

    @property
    def serverless(self) -> tuple[Serverless, ...]:
        """Choices that are paid by the token."""
        return tuple(choice for choice in self.choices if isinstance(choice, Serverless))

    @property
    def break_even(self) -> float | None:
        """Share of the workload below which the cheapest API costs less than the cheapest devices; None without both.

        Devices cost the same whatever they serve, an API only what it serves.
        """
        if not self.rented or not self.serverless:
            return None
        (_, devices, _), (_, api, _) = (
            choices_of_kind[0].nano_usd_per_mtok(self.workload) for choices_of_kind in (self.rented, self.serverless)
        )
        return devices / api if api else None


def size(
    model: Model,
    workload: SizedWorkload,
    market: Market,
    *,
    providers: Iterable[str] | None = None,
    purchase: str = "on_demand",
    dtypes: Iterable[str] | None = None,
) -> Sizing:
    """Rank every way to serve a workload by dollars per Mtok.

    `providers`: sellers whose offers count; None for all. `purchase`: one of `catalog.offers.PURCHASES`. `dtypes`:
    weight formats; None for the fitting ones of each accelerator.
    """
    wanted = None if providers is None else frozenset(providers)
    offers = _offers(market, wanted, purchase)
    accelerators = [accelerator for accelerator in market.accelerators if offers.get(accelerator.name)]
    deployments = list(layouts(model, dtypes, accelerators, workload, market))
    left_out: Counter[str] = Counter()
    fitting: list[tuple[Deployment, MemoryFit]] = []
    for deployment, fit in zip(deployments, memory_fits(deployments, workload.load, market), strict=True):
        if (reason := market.not_run(deployment.engine, deployment.weight_dtype, deployment.accelerator)) is not None:
            left_out[reason] += 1
        elif isinstance(fit, Abstained):
            left_out[str(fit)] += 1
        elif not fit.holds(workload.longest):
            left_out[NO_MEMORY] += 1
        elif cheapest(deployment, 1, offers[deployment.accelerator or ""]) is None:
            left_out["no instance that is listed has as many devices as it has ranks"] += 1
        else:
            fitting.append((deployment, fit))
    counts = fewest_replicas([deployment for deployment, _ in fitting], workload, market)
    left_out[NO_SLO] += sum(likely is None for _, likely, _ in counts)
    rented = _rented(fitting, counts, workload, market, offers)
    serverless = [
        Serverless(offer) for offer in market.token_offers(model) if wanted is None or offer.provider in wanted
    ]
    choices: list[Rented | Serverless] = [*rented, *serverless]
    choices.sort(key=lambda choice: _order(choice, workload))
    miss = None if rented else _nearest([deployment for deployment, _ in fitting], workload, market)
    return Sizing(model, workload, tuple(choices), miss, {why: n for why, n in left_out.items() if n})


def _offers(market: Market, providers: frozenset[str] | None, purchase: str) -> dict[str, list[Offer]]:
    return {
        accelerator.name: [
            offer
            for offer in market.offers(accelerator.name, purchase)
            if providers is None or offer.provider in providers
        ]
        for accelerator in market.accelerators
    }


def _rented(
    forecastable: Sequence[tuple[Deployment, MemoryFit]],
    counts: Sequence[Counts],
    workload: SizedWorkload,
    market: Market,
    offers: Mapping[str, Sequence[Offer]],
) -> list[Rented]:
    held = [
        (deployment, fit, (low, likely, high))
        for (deployment, fit), (low, likely, high) in zip(forecastable, counts, strict=True)
        if likely is not None
    ]
    forecast = figures([(deployment, likely) for deployment, _, (_, likely, _) in held], workload, market)
    choices = []
    for (deployment, fit, replicas), expected in zip(held, forecast, strict=True):
        offer = cheapest(deployment, replicas[1], offers[deployment.accelerator or ""])
        if offer is not None and expected is not None:
            choices.append(
                Rented(deployment, offer, replicas, expected, fit, tier_of(deployment, Calibration(), market))
            )
    return choices


def _order(choice: Rented | Serverless, workload: SizedWorkload) -> tuple[float, float, float]:
    """Return the rank of a choice: likely dollars, then dollars at the high end, then the fewest altered bits.

    Weights below 8 bits rank as if they cost `FEWER_BITS_GAIN` times as much, since they alter outputs most.
    """
    _, likely, high = choice.nano_usd_per_mtok(workload)
    weight_bytes = WEIGHT_BYTES.get(choice.deployment.weight_dtype or "", 0.0) if isinstance(choice, Rented) else 1.0
    factor = FEWER_BITS_GAIN if weight_bytes < 1 else 1.0
    return factor * likely, math.inf if high is None else factor * high, -weight_bytes


def _nearest(deployments: Sequence[Deployment], workload: SizedWorkload, market: Market) -> Miss | None:
    """Return the deployment whose likely latency at `MAX_REPLICAS` is nearest to the objectives; where all of them
    are overloaded even then, the one that serves most. None without any."""
    forecast = figures([(deployment, MAX_REPLICAS) for deployment in deployments], workload, market)
    slo = workload.slo
    misses = [
        Miss(
            deployment,
            figures_of_deployment,
            max(
                _over(figures_of_deployment.ttft_p95_ms, slo.ttft_p95_ms),
                _over(figures_of_deployment.tpot_p95_ms, slo.tpot_p95_ms),
            ),
        )
        for deployment, figures_of_deployment in zip(deployments, forecast, strict=True)
        if figures_of_deployment is not None
    ]
    if not misses:
        crowded = latencies([at(workload, deployment, MAX_REPLICAS) for deployment in deployments], market)
        misses = [
            Miss(deployment, None, latency.utilization)
            for deployment, latency in zip(deployments, crowded, strict=True)
            if not isinstance(latency, Abstained)
        ]
    return min(misses, key=lambda miss: miss.over, default=None)


def _over(figure: Bounds, limit: float | None) -> float:
    return 0.0 if limit is None else figure[1] / limit


def plain(sizing: Sizing, today: date, stale_after_days: int) -> dict[str, object]:
    """Return everything that was found. Prices are marked by their age on `today`."""
    workload = sizing.workload
    return {
        "model": sizing.model.name,
        "workload": {
            "requests_per_s": workload.requests_per_s,
            "prompt_tokens": workload.prompt_len,
            "output_tokens": workload.output_len,
            "cached_share": workload.cached_share,
            "images": workload.images,
            "image_pixels": None if workload.image_size is None else list(workload.image_size),
            "slo_ttft_p95_ms": workload.slo.ttft_p95_ms,
            "slo_tpot_p95_ms": workload.slo.tpot_p95_ms,
        },
        "holds_slo": bool(sizing.rented),
        "choices": [
            {
                "usd_per_mtok": _bounds(choice.nano_usd_per_mtok(workload), NANO_USD),
                **(_rented_values(choice) if isinstance(choice, Rented) else {"kind": "serverless", "slo": "unknown"}),
                "price": _price(choice.offer, today, stale_after_days),
            }
            for choice in sizing.choices
        ],
        "nearest_miss": None if sizing.nearest_miss is None else _miss(sizing.nearest_miss),
        "break_even_share": sizing.break_even,
        "left_out": dict(sizing.left_out),
    }


def _rented_values(rented: Rented) -> dict[str, object]:
    return {
        "kind": "rented",
        **_layout(rented.deployment),
        "replicas": _bounds(rented.replicas),
        "instances": _bounds(rented.instances),
        "devices_used": rented.devices,
        "usd_per_hour": _bounds(rented.nano_usd_per_hour, NANO_USD),
        "slo": "sure" if rented.sure else "likely",
        **_figures(rented.figures),
        "forecast": asdict(rented.tier),
        "memory_per_device": {
            "weights_bytes": rented.fit.weights_bytes,
            "usable_bytes": rented.fit.usable_bytes,
            "kv_cache_bytes": rented.fit.kv_cache_bytes,
        },
        "kv_cache_tokens": rented.fit.kv_cache_tokens,
        "sequences": rented.fit.sequences,
    }


def _layout(deployment: Deployment) -> dict[str, object]:
    return {
        "accelerator": deployment.accelerator,
        "engine": deployment.engine,
        "tp": deployment.tp,
        "weight_dtype": deployment.weight_dtype,
        "max_model_len": deployment.max_model_len,
    }


def _figures(figures: LatencyFigures) -> dict[str, object]:
    return {"ttft_p95_ms": _bounds(figures.ttft_p95_ms), "tpot_p95_ms": _bounds(figures.tpot_p95_ms)}


def _miss(miss: Miss) -> dict[str, object]:
    figures = {"ttft_p95_ms": None, "tpot_p95_ms": None} if miss.figures is None else _figures(miss.figures)
    return {**_layout(miss.deployment), **figures, "over": miss.over}


def _price(offer: Offer | TokenOffer, today: date, stale_after_days: int) -> dict[str, object]:
    listed: dict[str, object] = {
        "provider": offer.provider,
        "as_of": offer.as_of.isoformat(),
        "source": offer.source,
        "confidence": offer.confidence,
        "marks": list(marks([offer], today, stale_after_days)),
    }
    if isinstance(offer, Offer):
        return listed | {
            "instance_type": offer.instance_type,
            "region": offer.region,
            "purchase": offer.purchase,
            "devices_per_instance": offer.n_devices,
            "usd_per_instance_hour": offer.nano_usd_per_hour / NANO_USD,
        }
    cached = offer.cached_input
    return listed | {
        "usd_per_mtok_input": offer.input / NANO_USD,
        "usd_per_mtok_cached_input": None if cached is None else cached / NANO_USD,
        "usd_per_mtok_output": offer.output / NANO_USD,
    }


def _bounds(bounds: Bounds | tuple[int | None, int, int | None], unit: int = 1) -> dict[str, float | None]:
    return {
        name: None if value is None else value / unit if unit != 1 else value
        for name, value in zip(("low", "likely", "high"), bounds, strict=True)
    }
