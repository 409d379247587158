"""The market as rules and savings see it: accelerators, listed offers and model shapes from the catalog's files.

Every offer is a list price somebody published, with its date and source: what a person really pays is configured.
"""

import csv
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from pertoken.catalog.engine_lines import EngineLine, engine_lines
from pertoken.catalog.slices import fit_together, slices
from pertoken.state.model import WEIGHT_BYTES, Model
from pertoken.units import NANO_USD

MIB = 2**20
ANYWHERE = "any"
"""Region of an offer that costs the same everywhere."""
WEIGHTS_SHARE = 0.85
"""Share of device memory that weights may take. A judgement: engines take 0.9 of it by default (vLLM 0.32
`config/cache.py`, gpu_memory_utilization), and a KV cache and activations need the rest."""
SLICE_WEIGHTS_SHARE = 0.5
"""Share of a slice's memory that weights may take. A judgement: what an engine takes beside weights and cache (CUDA
context, graphs, activations) is as large in a slice as on a whole device."""
MAX_RANKS = 8
"""Accelerators of one usual server (NVIDIA HGX, AMD OAM boards): tensor-parallel ranks across servers are rare."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator. Rates are dense (no sparsity) in FLOP/s (integer operations/s for int8); None: the hardware
    has no such path, or its rate is not known."""

    name: str
    reported_names: tuple[str, ...]
    """Names its driver reports."""
    vendor: str
    arch: str
    compute_capability: str | None
    memory_bytes: int
    """As the driver reports it, not as it is sold."""
    memory_bytes_per_s: float
    fp16_flops: float
    fp8_flops: float | None
    int8_flops: float | None
    fp4_flops: float | None
    tdp_w: float | None
    interconnect: str
    interconnect_bytes_per_s: float | None
    """Both directions together."""
    source: str
    as_of: date
    confidence: str

    def peak_flops(self, weight_dtype: str) -> float | None:
        """Dense peak rate of matrix products with weights of this dtype, FLOP/s; None for one it has no rate of.

        Weights of a format that the hardware cannot multiply are unpacked, and 16-bit products made of them.
        """
        rates = dict.fromkeys(("bf16", "fp16", "int2", "int3", "int4", "int5", "int6"), self.fp16_flops)
        rates |= {"fp8": self.fp8_flops or self.fp16_flops, "int8": self.int8_flops or self.fp16_flops}
        rates |= {"fp4": self.fp4_flops or self.fp16_flops}
        return rates.get(weight_dtype)


@dataclass(frozen=True, slots=True)
class Offer:
    """A listed price of an instance; `nano_usd_per_device_hour` is its share for one device."""

    provider: str
    instance_type: str
    accelerator: str
    n_devices: int
    region: str
    purchase: str
    """`on_demand`, `spot`, `reserved_1y`, `reserved_3y` or `capacity_block`."""
    nano_usd_per_device_hour: int
    as_of: date
    """When it was published at the earliest."""
    source: str

    def age_days(self, today: date) -> int:
        """Days since it was published, at the most."""
        return (today - self.as_of).days


@dataclass(frozen=True, slots=True)
class Pair:
    """Two offers of one provider and region, and what the second costs relative to the first."""

    here: Offer
    there: Offer

    @property
    def ratio(self) -> float:
        """Price of `there` over the price of `here`, per device-hour."""
        return self.there.nano_usd_per_device_hour / self.here.nano_usd_per_device_hour


@dataclass(frozen=True, slots=True)
class Market:
    """The read-only catalog. Offers are those of the provider and region it was loaded for."""

    accelerators: tuple[Accelerator, ...]
    all_offers: tuple[Offer, ...]
    stale_after_days: int

    def accelerator(self, reported_name: str | None) -> Accelerator | None:
        """The accelerator a driver reports under this name, or with this catalog name; None if it is not listed."""
        return _accelerators_by_name().get(_plain(reported_name or ""))

    def offers(self, accelerator: str, purchase: str = "on_demand") -> tuple[Offer, ...]:
        """Offers of an accelerator by its catalog name, cheapest first."""
        found = (each for each in self.all_offers if (each.accelerator, each.purchase) == (accelerator, purchase))
        return tuple(sorted(found, key=lambda each: each.nano_usd_per_device_hour))

    def pairs(self, here: tuple[str, str], there: tuple[str, str]) -> tuple[Pair, ...]:
        """Like with like: for each provider and region listing both (accelerator, purchase) pairs, their cheapest."""
        cheapest = [_cheapest(self.offers(*what)) for what in (here, there)]
        same = [place for place in cheapest[0] if place in cheapest[1]]
        return tuple(Pair(cheapest[0][place], cheapest[1][place]) for place in same)

    def model(self, name: str) -> Model | None:
        """Shape of a model by its name, an alias, or a path ending in one; tuning and quantization suffixes are
        ignored. None if the catalog does not know it."""
        for key in _model_keys(name):
            if key in _models():
                return _models()[key][0]
        return None

    def engine_line(self, engine: str) -> EngineLine | None:
        """Return what the makers of an engine that is no longer developed state of it; None for any other one."""
        return engine_lines().get(engine)

    def fewest_ranks(
        self, model: Model, weight_dtype: str | None, accelerator: Accelerator, stages: int = 1
    ) -> int | None:
        """Return the fewest tensor-parallel ranks (1, 2, 4 or 8) whose memory holds the weights of a pipeline stage.

        It leaves room for a KV cache; whether the engine starts is for the forecast to decide. None if the size of the
        weights is not known, or no such number of ranks holds them.
        """
        if model.params_total is None or weight_dtype not in WEIGHT_BYTES:
            return None
        weights = model.params_total * WEIGHT_BYTES[weight_dtype] / stages
        ranks = 1
        while weights > WEIGHTS_SHARE * accelerator.memory_bytes * ranks:
            ranks *= 2
            if ranks > MAX_RANKS:
                return None
        return ranks

    def slices_for(self, accelerator: Accelerator, *models: tuple[Model, str | None]) -> tuple[str, ...] | None:
        """Return the profiles of slices (MIG) in which models with weights of these dtypes run side by side on one
        device: for each the smallest of whose memory its weights take half, at most.

        The rest is for a KV cache. None if the size of some weights is not known, or the device does not hold them so.
        """
        found = []
        for model, dtype in models:
            if model.params_total is None or dtype not in WEIGHT_BYTES:
                return None
            most = SLICE_WEIGHTS_SHARE * accelerator.memory_bytes / (model.params_total * WEIGHT_BYTES[dtype])
            found.append(next((each for each in slices(accelerator.name) if each.memory_share * most >= 1), None))
        known = [each for each in found if each is not None]
        if len(known) < len(found) or not fit_together(known):
            return None
        return tuple(each.profile for each in known)

    def devices_per_instance(self, provider: str, instance_type: str) -> int | None:
        """Return the accelerators of an instance type, whatever offers the market is limited to; None if not listed."""
        sizes = {
            offer.n_devices for offer in _offers() if (offer.provider, offer.instance_type) == (provider, instance_type)
        }
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def models(self) -> tuple[Model, ...]:
        """All models of the catalog, by name."""
        known = {each.name: each for each, _ in _models().values()}
        return tuple(known[name] for name in sorted(known))

    def family(self, model: Model) -> str | None:
        """Return the family of a model; None for one that the catalog does not know."""
        return next((family for each, family in _models().values() if each.name == model.name), None)

    def smaller_models(self, model: Model) -> tuple[Model, ...]:
        """Models of the same family with fewer active parameters, largest first; empty for an unknown one."""
        known = {each.name: (each, family) for each, family in _models().values()}
        if model.name not in known or model.params_active is None:
            return ()
        family, limit = known[model.name][1], model.params_active
        smaller = {m.name: m for m, f in known.values() if f == family and (m.params_active or limit) < limit}
        return tuple(sorted(smaller.values(), key=lambda m: (-(m.params_active or 0), m.name)))


@cache
def load_market(provider: str | None = None, region: str | None = None) -> Market:
    """The catalog, its offers limited to a provider and a region where they are given."""
    offers = tuple(
        offer
        for offer in _offers()
        if (provider is None or offer.provider == provider.strip().lower())
        and (region is None or offer.region in (region, ANYWHERE))
    )
    return Market(_accelerators(), offers, _settings()["staleness"]["max_age_days"])


def _cheapest(offers: Iterable[Offer]) -> dict[tuple[str, str], Offer]:
    found: dict[tuple[str, str], Offer] = {}
    for offer in offers:
        found.setdefault((offer.provider, offer.region), offer)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", " ", name.strip().casefold())


def _model_keys(name: str) -> Iterable[str]:
    key = name.rstrip("/").rsplit("/", 1)[-1].casefold().removesuffix(".gguf")
    yield key
    suffixes = set(_settings()["model_names"]["ignored_suffixes"])
    while "-" in key and (key.rsplit("-", 1)[1] in suffixes or re.fullmatch(r"q\d\w*", key.rsplit("-", 1)[1])):
        key = key.rsplit("-", 1)[0]
        yield key


def _rows(file: str) -> list[dict[str, str]]:
    with files("pertoken.catalog").joinpath(file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@cache
def _settings() -> dict[str, Any]:
    return tomllib.loads(files("pertoken.catalog").joinpath("market.toml").read_text(encoding="utf-8"))


@cache
def _accelerators() -> tuple[Accelerator, ...]:
    def times(row: dict[str, str], column: str, unit: float) -> float | None:
        return float(row[column]) * unit if row[column] else None

    def required(row: dict[str, str], column: str, unit: float) -> float:
        return float(row[column]) * unit

    return tuple(
        Accelerator(
            name=row["name"],
            reported_names=tuple(row["reported_names"].split(";")),
            vendor=row["vendor"],
            arch=row["arch"],
            compute_capability=row["compute_capability"] or None,
            memory_bytes=int(row["memory_reported_mib"]) * MIB,
            memory_bytes_per_s=required(row, "memory_bw_gb_s", 1e9),
            fp16_flops=required(row, "fp16_tflops", 1e12),
            fp8_flops=times(row, "fp8_tflops", 1e12),
            int8_flops=times(row, "int8_tops", 1e12),
            fp4_flops=times(row, "fp4_tflops", 1e12),
            tdp_w=times(row, "tdp_w", 1),
            interconnect=row["interconnect"],
            interconnect_bytes_per_s=times(row, "interconnect_gb_s", 1e9),
            source=row["source"],
            as_of=date.fromisoformat(row["as_of"]),
            confidence=row["confidence"],
        )
        for row in _rows("accelerators.csv")
    )


@cache
def _accelerators_by_name() -> dict[str, Accelerator]:
    return {_plain(name): each for each in _accelerators() for name in (each.name, *each.reported_names)}


@cache
def _offers() -> tuple[Offer, ...]:
    return tuple(
        Offer(
            provider=row["provider"],
            instance_type=row["instance_type"],
            accelerator=row["accelerator"],
            n_devices=int(row["n_devices"]),
            region=row["region"],
            purchase=row["purchase"],
            nano_usd_per_device_hour=int(
                (Decimal(row["usd_per_hour"]) * NANO_USD / int(row["n_devices"])).to_integral_value(ROUND_HALF_EVEN)
            ),
            as_of=date.fromisoformat(row["as_of"]),
            source=row["source"],
        )
        for row in _rows("prices.csv")
    )


def _count(text: str) -> int | None:
    return int(text) if text else None


@cache
def _models() -> dict[str, tuple[Model, str]]:
    """Model and family by every name it is known under."""
    known: dict[str, tuple[Model, str]] = {}
    for row in _rows("models.csv"):
        model = Model(
            name=row["name"],
            params_total=_count(row["params_total"]),
            params_active=_count(row["params_active"]),
            n_layers=_count(row["n_layers"]),
            n_kv_heads=_count(row["n_kv_heads"]),
            head_dim=_count(row["head_dim"]),
            n_experts=_count(row["n_experts"]),
            n_experts_active=_count(row["n_experts_active"]),
            sliding_window=_count(row["sliding_window"]),
            n_windowed_layers=_count(row["n_windowed_layers"]),
        )
        for name in (row["name"], *filter(None, row["aliases"].split(";"))):
            known.setdefault(next(iter(_model_keys(name))), (model, row["family"]))
    return known
