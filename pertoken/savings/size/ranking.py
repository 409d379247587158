"""Every way to serve a workload, ranked by dollars per Mtok; or the nearest miss where none holds the SLO."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pertoken.catalog.market import Market
from pertoken.catalog.offers import Offer
from pertoken.forecast.host import Calibration, tier_of
from pertoken.forecast.latency import MAX_REPLICAS, latencies
from pertoken.forecast.memory import MemoryFit, memory_fits
from pertoken.forecast.served import Abstained
from pertoken.savings.size.choices import Rented, Serverless, cheapest
from pertoken.savings.size.ends import Bounds, Counts, Figures, at, fewest_replicas, figures
from pertoken.savings.size.layouts import layouts
from pertoken.savings.size.workload import Workload
from pertoken.state.deployment import Deployment
from pertoken.state.model import WEIGHT_BYTES, Model

NO_SLO = f"no number of replicas up to {MAX_REPLICAS} holds the SLO"
FEWER_BITS_GAIN = 1.15
"""Dollars of 8-bit weights over those of weights in fewer bits, up to which 8 bits rank first. A judgement."""
NO_MEMORY = "the weights do not fit, or leave too little memory for the longest request"


@dataclass(frozen=True, slots=True)
class Miss:
    """A deployment that does not hold the SLO, however many replicas share the requests."""

    deployment: Deployment
    figures: Figures | None
    """Latencies at the maximum of replicas tried; None where even these do not serve all requests."""
    over: float
    """Its worst likely figure over the objective; without figures, the requests over those that are served. Above 1."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Ranked choices for a workload."""

    model: Model
    workload: Workload
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
    workload: Workload,
    market: Market,
    *,
    providers: Iterable[str] | None = None,
    purchase: str = "on_demand",
    dtypes: Iterable[str] | None = None,
) -> Sizing:
    """Rank every way to serve a workload by dollars per Mtok.

    `providers`: those whose offers count; None for all. `purchase`: one of `catalog.offers.PURCHASES`. `dtypes`:
    weight formats; None for those that fit each accelerator.
    """
    wanted = None if providers is None else frozenset(providers)
    offers = _offers(market, wanted, purchase)
    accelerators = [accelerator for accelerator in market.accelerators if offers.get(accelerator.name)]
    deployments = list(layouts(model, dtypes, accelerators, workload, market))
    left_out: Counter[str] = Counter()
    known: list[tuple[Deployment, MemoryFit]] = []
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
            known.append((deployment, fit))
    counts = fewest_replicas([deployment for deployment, _ in known], workload, market)
    left_out[NO_SLO] += sum(likely is None for _, likely, _ in counts)
    rented = _rented(known, counts, workload, market, offers)
    serverless = [
        Serverless(offer) for offer in market.token_offers(model) if wanted is None or offer.provider in wanted
    ]
    choices: list[Rented | Serverless] = [*rented, *serverless]
    choices.sort(key=lambda choice: _order(choice, workload))
    miss = None if rented else _nearest([deployment for deployment, _ in known], workload, market)
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
    known: Sequence[tuple[Deployment, MemoryFit]],
    counts: Sequence[Counts],
    workload: Workload,
    market: Market,
    offers: Mapping[str, Sequence[Offer]],
) -> list[Rented]:
    held = [
        (deployment, fit, (low, likely, high))
        for (deployment, fit), (low, likely, high) in zip(known, counts, strict=True)
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


def _order(choice: Rented | Serverless, workload: Workload) -> tuple[float, float, float]:
    """Return what choices are ranked by: likely dollars, then those at the high end, then the fewest altered bits.

    Weights below 8 bits rank as if they cost `FEWER_BITS_GAIN` times as much, since they alter outputs most.
    """
    _, likely, high = choice.nano_usd_per_mtok(workload)
    weight_bytes = WEIGHT_BYTES.get(choice.deployment.weight_dtype or "", 0.0) if isinstance(choice, Rented) else 1.0
    factor = FEWER_BITS_GAIN if weight_bytes < 1 else 1.0
    return factor * likely, math.inf if high is None else factor * high, -weight_bytes


def _nearest(deployments: Sequence[Deployment], workload: Workload, market: Market) -> Miss | None:
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
