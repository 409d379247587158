"""Measured prices of tokens, in the formats of LiteLLM's and Langfuse's price maps.

One price is measured for prompt and generated tokens together: all dollars of a model's devices divided by them. Both
maps use it for either kind, so that their sums are the dollars of the ledger. Models without a known price are left
out. Formats, as of 2026-11: https://docs.litellm.ai/docs/proxy/custom_pricing (model cost map) and
https://langfuse.com/docs/model-usage-and-cost (body of POST /api/public/models)."""

import re
from collections.abc import Sequence
from typing import Any

from pertoken.costs.report.figures import POOLING, ModelFigures

LITELLM, LANGFUSE = "litellm", "langfuse"
MAPS = (LITELLM, LANGFUSE)
DIGITS = 6
"""Significant digits of a price."""


def price_map(kind: str, figures: Sequence[ModelFigures], as_of: str, provider: str = "openai") -> Any:
    """Return the map of a tool as values for JSON. `as_of`: ISO 8601. Raises KeyError for another tool."""
    return {LITELLM: _litellm, LANGFUSE: _langfuse}[kind](_prices(figures), as_of, provider)


def unknown(figures: Sequence[ModelFigures]) -> list[str]:
    """Return a sentence for each model that has no price."""
    return [f"{model.model}: {model.usd_per_mtok.reason}" for model in figures if model.usd_per_mtok.value is None]


def _prices(figures: Sequence[ModelFigures]) -> list[tuple[str, str, float]]:
    return [
        (model.model, model.kind, float(f"{model.usd_per_mtok.value / 1e6:.{DIGITS}g}"))
        for model in figures
        if model.usd_per_mtok.value is not None
    ]


def _litellm(prices: Sequence[tuple[str, str, float]], as_of: str, provider: str) -> dict[str, Any]:
    return {
        model: {
            "litellm_provider": provider,
            "mode": "embedding" if kind == POOLING else "chat",
            "input_cost_per_token": price,
            "output_cost_per_token": 0.0 if kind == POOLING else price,
            "metadata": {"source": "measured by pertoken", "as_of": as_of},
        }
        for model, kind, price in prices
    }


def _langfuse(prices: Sequence[tuple[str, str, float]], as_of: str, provider: str) -> list[dict[str, Any]]:
    return [
        {
            "modelName": model,
            "matchPattern": f"(?i)^({re.escape(model)})$",
            "startDate": as_of,
            "unit": "TOKENS",
            "inputPrice": price,
            "outputPrice": 0.0 if kind == POOLING else price,
        }
        for model, kind, price in prices
    ]
