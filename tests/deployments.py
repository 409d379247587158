"""Deployments of catalog models for tests, with knobs that may be unknown (None), which no edit makes."""

from dataclasses import replace
from typing import Any

from pertoken.catalog.market import load_market
from pertoken.state.deployment import Deployment, Model, Placement

MARKET = load_market()


def model(name: str) -> Model:
    market_model = MARKET.model(name)
    assert market_model is not None
    return market_model


def deployment(
    served: Model | str = "Llama-3.1-8B", accelerator: str | None = "H100 SXM5", engine: str = "vllm", **fields: Any
) -> Deployment:
    """Return a deployment on one accelerator of 16-bit weights; `fields` are any of its fields."""
    shape = model(served) if isinstance(served, str) else served
    return with_fields(
        Deployment(shape, engine, placement=Placement(accelerator=accelerator), tp=1, weight_dtype="bf16"), **fields
    )


def with_fields(known: Deployment, **fields: Any) -> Deployment:
    """Return the deployment with any fields set, unchecked."""
    return replace(known, **fields)
