"""The load of a deployment or service, from its evidence, as the serving model takes it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pertoken.arrivals import Arrivals, Lengths, from_buckets, typical
from pertoken.evidence import Evidence, NotMeasured, Series
from pertoken.forecast.formats import defaults
from pertoken.forecast.served import Load, acceptance
from pertoken.forecast.serving import Z_80, Range
from pertoken.provenance import Provenance, worst

MIN_BUSY_SHARE = 0.05
"""Share of busy time below which a device's activity over all time does not determine its activity while busy."""
LATENCY_SHARES = (0.5, 0.95)
"""Quantiles of latency that have objectives."""


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """A measured load with the assumptions it needed."""

    load: Load
    """Its `generated_tok_s` is the 95th percentile: a change must still hold it."""
    busy: float
    """Share of the observed time, 0 to 1."""
    busy_tok_s: float
    """Generated tokens per second of busy time."""
    tpot_ms: float | None
    ttft_ms: float | None
    kv_use: float | None
    """Share of the KV cache in use while busy."""
    memory_active: float | None
    """Share of the memory bandwidth used while busy: as the device reports it, else by the bytes its engine counts."""
    gemm_active: float | None
    """Share of the tensor cores' time used while busy: as the device reports it, else by the FLOPs its engine
    counts."""
    provenance: Provenance
    assumptions: tuple[str, ...]
    evidence: Evidence = field(compare=False, repr=False)
    """Evidence that it was measured from."""
    latency_ms: Mapping[str, Range] = field(default_factory=dict)
    """Quantiles of its latency over the window, by the name of their objective; one that was not measured is absent."""
    calibrated_on: "MeasuredLoad | None" = None
    """The measured load, where this one is assumed; None where it is itself."""


def measured_load(seen: Evidence) -> MeasuredLoad:
    """Return the load in the evidence. Lengths that an engine does not report come from its counters, or are assumed.

    Raises NotMeasured without generated tokens, running requests or busy time.
    """
    generated, busy, rate = seen.generated_tok_s, seen.busy, seen.busy_generated_tok_s
    assumptions = []
    if not seen.has("running") and seen.has("tpot_s"):
        # Little's law: each sequence that runs generates one token per TPOT.
        running, counted = rate.mean * seen.tpot_s.mean, seen.tpot_s
        assumptions.append(f"{running:.1f} requests running while busy, from tokens/s and TPOT")
    else:
        running, counted = seen.running.mean, seen.running
    origins = [series.provenance for series in (generated, counted, busy, rate)]
    share = min(1.0, max(0.0, busy.mean))
    if seen.has("generated_len"):
        generated_len = seen.generated_len.mean
    else:
        generated_len = defaults().generated_len
        assumptions.append(f"{generated_len:.0f} tokens generated per request (its engine reports no lengths)")
        origins.append(Provenance.ASSUMED)
    if seen.has("prompt_len"):
        prompt_len = seen.prompt_len.mean
    elif seen.has("prompt_tok_s") and generated.mean > 0:
        prompt_len = generated_len * seen.prompt_tok_s.mean / generated.mean
        assumptions.append(f"{prompt_len:.0f} tokens per prompt, from the ratio of prompt to generated tokens")
    else:
        prompt_len = defaults().prompt_len
        assumptions.append(f"{prompt_len:.0f} tokens per prompt (its engine reports no lengths)")
        origins.append(Provenance.ASSUMED)
    images = _images(seen)
    if images:
        side = defaults().image_side
        assumptions.append(
            f"each of {images:.3g} media items per request is an image of {side} x {side} pixels (the engine counts "
            "images, videos and sounds together, and no sizes)"
        )
        origins.append(Provenance.ASSUMED)
    return MeasuredLoad(
        load=Load(
            generated_tok_s=generated.p95,
            prompt_len=prompt_len,
            generated_len=generated_len,
            running=running,
            waiting=seen.waiting.mean if seen.has("waiting") else 0.0,
            cached_share=min(1.0, max(0.0, seen.cached_share.mean)) if seen.has("cached_share") else 0.0,
            images=images,
            acceptance=_acceptance(seen),
        ),
        busy=share,
        busy_tok_s=rate.mean,
        tpot_ms=_above_0(seen, "tpot_s", 1000),
        ttft_ms=_above_0(seen, "ttft_s", 1000),
        kv_use=_above_0(seen, "kv_use", 1),
        memory_active=_while_busy(seen, "dram_active", share) or _engine_says(seen, "mbu"),
        gemm_active=_while_busy(seen, "tensor_active", share) or _engine_says(seen, "mfu"),
        provenance=worst(origins),
        assumptions=tuple(assumptions),
        evidence=seen,
        latency_ms=measured_latency(seen),
        calibrated_on=None if seen.measured is seen else measured_load(seen.measured),
    )


def measured_latency(seen: Evidence) -> dict[str, Range]:
    """Return the measured quantiles of TTFT and TPOT, milliseconds, by the name of their objective.

    Each is as the engine measures it: TPOT is the time between two tokens, or a mean of each request.
    """
    return {
        f"{metric}_p{100 * share:.0f}_ms": _quantile_ms(series, share)
        for metric in ("ttft", "tpot")
        if (series := seen.peek(f"{metric}_s")) is not None
        for share in LATENCY_SHARES
        if _quantile_ms(series, share)[0] > 0
    }


def _quantile_ms(series: Series, share: float) -> Range:
    """Return a quantile with the 80 % interval of its sample."""
    half = Z_80 * math.sqrt(share * (1 - share) / max(1, series.n))
    likely = series.p50 if share == 0.5 else series.p95
    low, high = series.quantile(max(0.0, share - half)), series.quantile(min(1.0, share + half))
    return 1000 * min(low, likely), 1000 * likely, 1000 * max(high, likely)


@dataclass(frozen=True, slots=True)
class MeasuredArrivals:
    """Arrivals of requests with the assumptions they needed."""

    arrivals: Arrivals
    provenance: Provenance
    assumptions: tuple[str, ...]


def measured_arrivals(seen: Evidence) -> MeasuredArrivals:
    """Return the arrival rate at the p95 of generated tokens/s (the mean of a host that is mostly idle), with the
    lengths of prompts and outputs.

    Lengths come from the engine's histograms; where it has none, from its counts of tokens and requests, spread as in
    a published conversation trace. Raises NotMeasured where it counts neither.
    """
    prompt, prompt_origin = _lengths(seen, "prompt_len", "prompt_tok_s", typical("conversation")[0])
    generated, origin = _lengths(seen, "generated_len", "generated_tok_s", typical("conversation")[1])
    spread = "spread as in a published conversation trace (its engine exposes no histogram)"
    named = (("prompts", prompt, prompt_origin), ("outputs", generated, origin))
    return MeasuredArrivals(
        Arrivals(max(seen.generated_tok_s.p95, seen.generated_tok_s.mean) / generated.mean, prompt, generated),
        worst([prompt_origin, origin, seen.generated_tok_s.provenance]),
        tuple(
            f"{name} of {lengths.mean:.0f} tokens on average, {spread}"
            for name, lengths, its in named
            if its is Provenance.ASSUMED
        ),
    )


def _images(seen: Evidence) -> float:
    """Return the images per request that the engine had to decode; 0 where it counts none."""
    hits = _above_0(seen, "media_hit_rate", 1) or 0.0
    return (_above_0(seen, "media_per_request", 1) or 0.0) * max(0.0, 1 - hits)


def _acceptance(seen: Evidence) -> float | None:
    """Return the acceptance of drafted tokens by its engine's counts of drafts; None where it counts none."""
    rate, length = (_above_0(seen, f"spec_acceptance_{name}", 1) for name in ("rate", "length"))
    if rate is None or length is None:
        return None
    return acceptance(length, max(1.0, (length - 1) / rate))


def _lengths(seen: Evidence, name: str, tokens_per_s: str, shape: Lengths) -> tuple[Lengths, Provenance]:
    if seen.has(name):
        histogram = getattr(seen, name)
        if histogram.buckets:
            return from_buckets(*zip(*histogram.buckets, strict=True)), histogram.provenance
        return shape.scaled_to(histogram.mean), Provenance.ASSUMED
    if not seen.has("requests_s") or seen.requests_s.mean <= 0 or getattr(seen, tokens_per_s).mean <= 0:
        raise NotMeasured(name, "needs an engine that counts requests, or has histograms of their lengths")
    return shape.scaled_to(getattr(seen, tokens_per_s).mean / seen.requests_s.mean), Provenance.ASSUMED


def _above_0(seen: Evidence, name: str, unit: float) -> float | None:
    """Return the mean of a series, if it was measured and is more than nothing."""
    mean = float(getattr(seen, name).mean) * unit if seen.has(name) else 0.0
    return mean if mean > 0 else None


def _while_busy(seen: Evidence, name: str, busy: float) -> float | None:
    """Return a device's activity while busy, from its activity over all time; None where it was busy too little."""
    mean = _above_0(seen, name, 1)
    return min(1.0, mean / busy) if mean is not None and busy >= MIN_BUSY_SHARE else None


def _engine_says(seen: Evidence, name: str) -> float | None:
    """Return the share of peak while busy by an engine's own FLOP or byte counter; None where it has none."""
    mean = _above_0(seen, name, 1)
    return min(1.0, mean) if mean is not None else None
