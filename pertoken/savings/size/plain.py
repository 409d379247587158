"""A sizing as plain values for JSON: dollars are floats, what is not known is None."""

from dataclasses import asdict
from datetime import date
from typing import Any

from pertoken.catalog.offers import Offer, TokenOffer, marks
from pertoken.savings.size.choices import Rented
from pertoken.savings.size.ends import Bounds, Figures
from pertoken.savings.size.ranking import Miss, Sizing
from pertoken.state.deployment import Deployment
from pertoken.units import NANO_USD


def plain(sizing: Sizing, today: date, stale_after_days: int) -> dict[str, Any]:
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
                **(_rented(choice) if isinstance(choice, Rented) else {"kind": "serverless", "slo": "unknown"}),
                "price": _price(choice.offer, today, stale_after_days),
            }
            for choice in sizing.choices
        ],
        "nearest_miss": None if sizing.nearest_miss is None else _miss(sizing.nearest_miss),
        "break_even_share": sizing.break_even,
        "left_out": dict(sizing.left_out),
    }


def _rented(rented: Rented) -> dict[str, Any]:
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


def _layout(deployment: Deployment) -> dict[str, Any]:
    return {
        "accelerator": deployment.accelerator,
        "engine": deployment.engine,
        "tp": deployment.tp,
        "weight_dtype": deployment.weight_dtype,
        "max_model_len": deployment.max_model_len,
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {"ttft_p95_ms": _bounds(figures.ttft_p95_ms), "tpot_p95_ms": _bounds(figures.tpot_p95_ms)}


def _miss(miss: Miss) -> dict[str, Any]:
    figures = {"ttft_p95_ms": None, "tpot_p95_ms": None} if miss.figures is None else _figures(miss.figures)
    return {**_layout(miss.deployment), **figures, "over": miss.over}


def _price(offer: Offer | TokenOffer, today: date, stale_after_days: int) -> dict[str, Any]:
    listed: dict[str, Any] = {
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
