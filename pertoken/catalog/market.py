"""Market: accelerators, listed offers and model shapes from the catalog's files.

Every offer is a published list price with its date and source. The prices that a person pays are configured.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cache, cached_property, lru_cache
from math import inf, log

from pertoken.catalog.engine_lines import (
    EngineLine,
    EngineRelease,
    MultiTokenPrediction,
    engine_lines,
    multi_token_prediction,
    newer_releases,
    not_run,
)
from pertoken.catalog.instances import InstanceSize, fit_together, instance_size, slices
from pertoken.catalog.model_facts import image_encoder, model_facts, replacement_notes, replacement_refusal
from pertoken.catalog.offers import (
    ANYWHERE,
    Offer,
    TokenOffer,
    listed_offers,
    listed_token_offers,
    newest,
    rows,
    toml_table,
)
from pertoken.state.deployment import WEIGHT_BYTES, Model, Placement

MIB = 2**20
WEIGHTS_SHARE = 0.85
"""Maximum share of device memory for weights. A judgement: engines take 0.9 of it by default (vLLM 0.32
`config/cache.py`, gpu_memory_utilization), and the KV cache and activations need the rest."""
SLICE_WEIGHTS_SHARE = 0.5
"""Maximum share of a MIG instance's memory for weights. A judgement: an engine's other memory (CUDA context, graphs,
activations) is as large in a MIG instance as on a whole device."""
MAX_RANKS = 8
"""Accelerators of a common server (NVIDIA HGX, AMD OAM boards): tensor parallelism across servers is rare."""
CPU_ARCH = "CPU"
"""Architecture of CPUs; their rates are measured on the host."""
ROWS_OF_TILE = 4
"""Sequences that CPUs multiply together; those left over are multiplied one by one. llama.cpp 11549 does so with blocks
of quantized weights (ggml-cpu `repack.cpp`: a GEMM from 4 rows on, GEMVs for the rest): with Q8_0 on one core of an
EPYC steps of 2, 3, 4, 5 and 8 sequences took 1.9, 2.9, 2.6, 3.9 and 4.6 times as long as those of one (2026-11-23)."""


def cpu_name(reported: str, instance_type: str | None) -> str:
    """Return CPUs as hardware: instances of several sizes report one name, and each has rates of its own."""
    return f"{reported} ({instance_type})" if instance_type else reported


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Measured rates of a device with weights of one format."""

    memory_bytes_per_s: float
    flops: float
    attention_flops: float | None = None
    """Of the products of one query with the cached keys and values, as in decode; None where not measured."""
    row_flops: float | None = None
    """Of the products of one sequence in a step, without reading the weights; None where not measured."""
    tile_flops: float | None = None
    """Of the products of `ROWS_OF_TILE` sequences in a step together; None where not measured."""
    expert_flops: float | None = None
    """Of the products of prompts with the experts of a MoE model; None where not measured."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator.

    Rates are dense (no sparsity) in FLOP/s, or integer operations/s for int8. None: the hardware does not support the
    format, or its rate is not known.
    """

    name: str
    reported_names: tuple[str, ...]
    """Names that its driver reports."""
    vendor: str
    arch: str
    compute_capability: str | None
    memory_bytes: int
    """As reported by the driver, not the nominal size."""
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
    measured: Mapping[tuple[str, str], MeasuredRates] = field(default_factory=dict, hash=False)
    """Measured rates by engine and weight dtype, which replace the listed ones. Empty for listed hardware."""

    def peak_flops(self, weight_dtype: str) -> float | None:
        """Return the dense peak GEMM rate with weights of this dtype, FLOP/s; None if not known.

        Weights in a format without hardware support are unpacked to 16 bits.
        """
        rates = dict.fromkeys(("bf16", "fp16", "int2", "int3", "int4", "int5", "int6"), self.fp16_flops)
        rates |= {"fp8": self.fp8_flops or self.fp16_flops, "int8": self.int8_flops or self.fp16_flops}
        rates |= {"fp8_block": rates["fp8"], "fp4": self.fp4_flops or self.fp16_flops}
        return rates.get(weight_dtype)


@dataclass(frozen=True, slots=True)
class PriceFall:
    """Assumed yearly decrease of on-demand list prices, for comparison with commitments over years."""

    per_year: float
    source: str

    def mean_over(self, years: float) -> float:
        """Return the mean price over `years` as a share of the present price."""
        remaining = 1 - self.per_year
        return 1.0 if years <= 0 else (1 - remaining**years) / (-years * log(remaining))

    def years_to(self, share: float) -> float:
        """Return the years until the price is `share` of the present price."""
        return log(share) / log(1 - self.per_year) if share > 0 else inf


@dataclass(frozen=True)
class Market:
    """The read-only catalog, with offers of the provider and region that it was loaded for."""

    accelerators: tuple[Accelerator, ...]
    all_offers: tuple[Offer, ...]
    """Every offer, with older ones of the same key, which price the past."""
    stale_after_days: int
    price_fall: PriceFall
    provider: str | None = None
    region: str | None = None
    measured: tuple[Accelerator, ...] = ()
    """Devices outside the list with measured rates: CPUs."""

    def with_measured(self, devices: Iterable[Accelerator]) -> "Market":
        """Return this market with measured devices; they replace measured devices of the same name."""
        device_by_name = {device.name: device for device in (*self.measured, *devices)}
        return replace(self, measured=tuple(device_by_name.values()))

    def having(self, offers: Iterable[Offer]) -> "Market":
        """Return this market with additional offers, limited to its provider and region."""
        return replace(self, all_offers=(*self.all_offers, *_limited(offers, self.provider, self.region)))

    def accelerator(self, reported_name: str | None) -> Accelerator | None:
        """Return the accelerator by the name that its driver reports, or by its catalog name; None if not listed."""
        listed = _accelerators_by_name().get(_plain(reported_name or ""))
        return listed or next((device for device in self.measured if device.name == reported_name), None)

    def offers(self, accelerator: str, purchase: str = "on_demand") -> tuple[Offer, ...]:
        """Return the offers of an accelerator by its catalog name, cheapest first."""
        return self._newest.get((accelerator, purchase), ())

    def offers_at(self, placement: Placement, purchase: str = "on_demand") -> tuple[Offer, ...]:
        """Return offers of a placement's accelerator at its provider, cheapest first.

        They are limited to its region and instance type if these are known.
        """
        return tuple(
            offer
            for offer in self.offers(placement.accelerator or "", purchase)
            if offer.provider == placement.provider
            and (placement.region is None or offer.region in (placement.region, ANYWHERE))
            and placement.instance_type in (None, offer.instance_type)
        )

    @cached_property
    def _newest(self) -> Mapping[tuple[str, str], tuple[Offer, ...]]:
        """Offers in force by accelerator and purchase, cheapest first."""
        offers: dict[tuple[str, str], list[Offer]] = defaultdict(list)
        for offer in sorted(newest(self.all_offers), key=lambda offer: offer.nano_usd_per_device_hour):
            offers[offer.accelerator, offer.purchase].append(offer)
        return {key: tuple(listed) for key, listed in offers.items()}

    def token_offers(self, model: Model) -> tuple[TokenOffer, ...]:
        """Return the listed token prices of a model by provider; empty for an unknown model.

        They are not limited to the provider and region of this market.
        """
        known_model = self.model(model.name)
        if known_model is None:
            return ()
        offers = (token_offer for token_offer in listed_token_offers() if token_offer.model == known_model.name)
        return tuple(sorted(offers, key=lambda offer: offer.provider))

    def model(self, name: str) -> Model | None:
        """Return a model by its name, an alias, or a path that ends in one; None if not listed.

        Suffixes for tuning and quantization are ignored.
        """
        for key in _model_keys(name):
            if key in _models():
                return _models()[key][0]
        return None

    def takes_images(self, model: Model) -> bool:
        """Return whether the catalog has an image encoder of a model."""
        return image_encoder(model.name) is not None

    def unsuitable(self, present: Model, proposed: Model, *, beside: bool = False) -> tuple[str, str] | None:
        """Return code and reason for a model that published facts speak against; None if nothing is known against it.

        It must not be older, be under a narrower licence, or be below a third of the parameters without a published
        score of both. `beside`: it takes some requests while the present one stays, and may be older.
        """
        size = (proposed.params_total or 0) / present.params_total if present.params_total else 1.0
        return replacement_refusal(self._listed_name(present), self._listed_name(proposed), size, beside=beside)

    def pruned_models(self, model: Model) -> tuple[Model, ...]:
        """Return the published checkpoints that were pruned from a model, largest first."""
        name = self._listed_name(model)
        return _largest_first(
            candidate for candidate in self.models if model_facts()[candidate.name].pruned_from == name
        )

    def students(self, model: Model) -> tuple[Model, ...]:
        """Return the published models that were distilled from a model, largest first."""
        name = self._listed_name(model)
        return _largest_first(
            candidate for candidate in self.models if name in model_facts()[candidate.name].distilled_from
        )

    def comparable_models(self, present: Model) -> tuple[Model, ...]:
        """Return models of any family with a published score beside the first of the present one, best score first."""
        name = self._listed_name(present)
        main = next(iter(model_facts()[name].scores), None) if name in model_facts() else None
        scores = {
            candidate: model_facts()[candidate.name].scores[main]
            for candidate in self.models
            if main is not None and main in model_facts()[candidate.name].scores and candidate.name != name
        }
        return tuple(sorted(scores, key=lambda candidate: (-scores[candidate], candidate.name)))

    def published(self, present: Model, proposed: Model) -> tuple[str, ...]:
        """Return the published evaluation and the licence of a model that would replace the present one."""
        return replacement_notes(self._listed_name(present), self._listed_name(proposed))

    def _listed_name(self, model: Model) -> str:
        known_model = self.model(model.name)
        return model.name if known_model is None else known_model.name

    def engine_line(self, engine: str) -> EngineLine | None:
        """Return the maintenance status of an engine that is no longer developed; None for any other engine."""
        return engine_lines().get(engine)

    def newer_releases(self, engine: str, version: str | None) -> tuple[EngineRelease, ...]:
        """Return the listed releases after a version, oldest first: those that are faster, and the newest known one."""
        return newer_releases(engine, version)

    def multi_token_prediction(self, engine: str, model: Model) -> MultiTokenPrediction | None:
        """Return the published gain of a model's MTP head under an engine; None if none is listed."""
        return multi_token_prediction(engine, self._listed_name(model))

    def not_run(self, engine: str, weight_dtype: str | None, accelerator: str | None) -> str | None:
        """Return why an engine is not proposed with weights of a dtype on an accelerator; None if nothing is known
        against it.
        """
        device = self.accelerator(accelerator)
        return None if device is None else not_run(engine, weight_dtype, device.arch)

    def fewest_ranks(
        self, model: Model, weight_dtype: str | None, accelerator: Accelerator, stages: int = 1
    ) -> int | None:
        """Return the fewest tensor-parallel ranks (1, 2, 4 or 8) whose memory holds the weights of a pipeline stage.

        Some memory remains for a KV cache; the forecast decides whether the engine starts. Return None if the size of
        the weights is not known, or 8 ranks do not hold them.
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

    def ranks(
        self, model: Model, weight_dtype: str | None, accelerator: Accelerator, stages: int = 1
    ) -> tuple[int, ...]:
        """Return the numbers of tensor-parallel ranks to try: `fewest_ranks`, then twice as many, up to one server.

        Empty where the fewest are not known.
        """
        ranks, tried = self.fewest_ranks(model, weight_dtype, accelerator, stages), []
        while ranks is not None and ranks <= MAX_RANKS:
            tried.append(ranks)
            ranks *= 2
        return tuple(tried)

    def slices_for(self, accelerator: Accelerator, *models: tuple[Model, str | None]) -> tuple[str, ...] | None:
        """Return the MIG profiles in which models with weights of these dtypes run side by side on one device.

        Each model gets the smallest profile whose memory is at least twice its weights; the rest is for the KV cache.
        Return None if the size of some weights is not known, or the profiles do not fit on one device.
        """
        profiles = []
        for model, dtype in models:
            if model.params_total is None or dtype not in WEIGHT_BYTES:
                return None
            max_copies = SLICE_WEIGHTS_SHARE * accelerator.memory_bytes / (model.params_total * WEIGHT_BYTES[dtype])
            profiles.append(
                next((profile for profile in slices(accelerator.name) if profile.memory_share * max_copies >= 1), None)
            )
        known_profiles = [profile for profile in profiles if profile is not None]
        if len(known_profiles) < len(profiles) or not fit_together(known_profiles):
            return None
        return tuple(profile.profile for profile in known_profiles)

    def devices_per_instance(self, provider: str, instance_type: str) -> int | None:
        """Return the number of accelerators of an instance type, in any region; None if not listed."""
        sizes = self._sizes.get((provider, instance_type), frozenset())
        return next(iter(sizes)) if len(sizes) == 1 else None

    def instance_size(self, provider: str, instance_type: str) -> InstanceSize | None:
        """Return the listed CPUs and memory of an instance type; None if they are not known."""
        return instance_size(provider, instance_type)

    @cached_property
    def _sizes(self) -> Mapping[tuple[str, str], frozenset[int]]:
        """Numbers of accelerators by (provider, instance type)."""
        counts: dict[tuple[str, str], set[int]] = defaultdict(set)
        for offer in (*listed_offers(), *self.all_offers):
            counts[offer.provider, offer.instance_type].add(offer.n_devices)
        return {key: frozenset(sizes) for key, sizes in counts.items()}

    @property
    def models(self) -> tuple[Model, ...]:
        """All models of the catalog, by name."""
        model_by_name = {model.name: model for model, _ in _models().values()}
        return tuple(model_by_name[name] for name in sorted(model_by_name))

    def family(self, model: Model) -> str | None:
        """Return the family of a model; None for one that the catalog does not know."""
        return next((family for member, family in _models().values() if member.name == model.name), None)

    def smaller_models(self, model: Model) -> tuple[Model, ...]:
        """Return models of the same family with fewer active parameters, largest first; empty for an unknown model."""
        member_by_name = {member.name: (member, family) for member, family in _models().values()}
        if model.name not in member_by_name or model.params_active is None:
            return ()
        family, limit = member_by_name[model.name][1], model.params_active
        smaller = {m.name: m for m, f in member_by_name.values() if f == family and (m.params_active or limit) < limit}
        return tuple(sorted(smaller.values(), key=lambda m: (-(m.params_active or 0), m.name)))


@cache
def load_market(provider: str | None = None, region: str | None = None) -> Market:
    """Return the catalog with offers limited to a provider and a region, if given."""
    name = None if provider is None else provider.strip().lower()
    offers = _limited(listed_offers(), name, region)
    settings = toml_table("market.toml")
    return Market(
        _accelerators(),
        offers,
        settings["staleness"]["max_age_days"],
        PriceFall(settings["price_fall"]["per_year"], settings["price_fall"]["source"]),
        name,
        region,
    )


def _largest_first(models: Iterable[Model]) -> tuple[Model, ...]:
    return tuple(sorted(models, key=lambda model: -(model.params_total or 0)))


def _limited(offers: Iterable[Offer], provider: str | None, region: str | None) -> tuple[Offer, ...]:
    return tuple(
        offer
        for offer in offers
        if provider in (None, offer.provider) and (region is None or offer.region in (region, ANYWHERE))
    )


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", " ", name.strip().casefold())


def _model_keys(name: str) -> Iterable[str]:
    key = name.rstrip("/").rsplit("/", 1)[-1].casefold().removesuffix(".gguf")
    yield key
    suffixes = set(toml_table("market.toml")["model_names"]["ignored_suffixes"])
    while "-" in key and (key.rsplit("-", 1)[1] in suffixes or re.fullmatch(r"q\d\w*", key.rsplit("-", 1)[1])):
        key = key.rsplit("-", 1)[0]
        yield key


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
        for row in rows("accelerators.csv")
    )


@cache
def _accelerators_by_name() -> dict[str, Accelerator]:
    return {
        _plain(name): accelerator
        for accelerator in _accelerators()
        for name in (accelerator.name, *accelerator.reported_names)
    }


def _count(text: str) -> int | None:
    return int(text) if text else None


@cache
def _models() -> dict[str, tuple[Model, str]]:
    """Return models with their family by every known name."""
    model_by_key: dict[str, tuple[Model, str]] = {}
    for row in rows("models.csv"):
        shape = [field.name for field in fields(Model) if field.name != "name" and field.name in row]
        model = Model(row["name"], **{name: _count(row[name]) for name in shape})
        for name in (row["name"], *filter(None, row["aliases"].split(";"))):
            model_by_key.setdefault(next(iter(_model_keys(name))), (model, row["family"]))
    return model_by_key
