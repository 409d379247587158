"""Measured prices of tokens, in the formats of LiteLLM's and Langfuse's price maps.

Each kind of token (computed prompt, cached prompt, generated) has the dollars of the device time that it took, with its
part of the idle dollars, so that prices times tokens are the dollars of the ledger. Where the engine counts no time of
prefill and decode, or no cached tokens, kinds that it does not distinguish have one price. Models without a known
price are left out. Formats, as of 2026-11: https://docs.litellm.ai/docs/proxy/custom_pricing (model cost map) and
https://langfuse.com/docs/model-usage-and-cost (body of POST /api/public/models)."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pertoken.costs.ledger import token_weights
from pertoken.costs.report.figures import POOLING, ModelFigures
from pertoken.units import MTOK, NANO_USD

LITELLM, LANGFUSE = "litellm", "langfuse"
DIGITS = 6
"""Significant digits of a price."""
GTOK = 10**9
"""Tokens to which `TokenWeights` refer."""
LANGFUSE_CACHED = ("input_cached_tokens", "input_cache_read")
"""Usage types by which its integrations report cached tokens, apart from `input`."""


def price_map(kind: str, figures: Sequence[ModelFigures], as_of: str, provider: str = "openai") -> Any:
    """Return the map of a tool as values for JSON. `as_of`: ISO 8601. Raises KeyError for another tool."""
    return {LITELLM: _litellm, LANGFUSE: _langfuse}[kind](_prices(figures), as_of, provider)


def unknown(figures: Sequence[ModelFigures]) -> list[str]:
    """Return a sentence for each model that has no price."""
    return [f"{model.model}: {model.usd_per_mtok.reason}" for model in figures if model.usd_per_mtok.value is None]


class _Prices(NamedTuple):
    """USD per token of one model."""

    model: str
    pooling: bool
    computed: float
    cached: float | None
    """None: no token was cached, or its engine does not count them."""
    generated: float


def _prices(figures: Sequence[ModelFigures]) -> list[_Prices]:
    return [_prices_of(model) for model in figures if model.usd_per_mtok.value is not None]


def _prices_of(figures: ModelFigures) -> _Prices:
    blended, pooling = (figures.usd_per_mtok.value or 0.0) / MTOK, figures.kind == POOLING
    prompt, cached, generated = figures.counts
    weights = token_weights(
        figures.kinds, {"prompt_tokens": prompt, "cached_tokens": cached, "generated_tokens": generated}
    )
    if pooling or isinstance(weights, str) or figures.kinds is None:
        return _Prices(figures.model, pooling, _digits(blended), None, 0.0 if pooling else _digits(blended))
    scale = figures.kinds.total / (figures.kinds.busy - figures.kinds.unsplit) / NANO_USD / GTOK
    computed, of_cached, of_generated, _ = (_digits(weight * scale) for weight in weights)
    return _Prices(figures.model, False, computed, of_cached if cached else None, of_generated)


def _digits(usd: float) -> float:
    return float(f"{usd:.{DIGITS}g}")


def _litellm(prices: Sequence[_Prices], as_of: str, provider: str) -> dict[str, Any]:
    return {
        price.model: {
            "litellm_provider": provider,
            "mode": "embedding" if price.pooling else "chat",
            "input_cost_per_token": price.computed,
            **({} if price.cached is None else {"cache_read_input_token_cost": price.cached}),
            "output_cost_per_token": price.generated,
            "metadata": {"source": "measured by pertoken", "as_of": as_of},
        }
        for price in prices
    }


def _langfuse(prices: Sequence[_Prices], as_of: str, provider: str) -> list[dict[str, Any]]:
    return [
        {
            "modelName": price.model,
            "matchPattern": f"(?i)^({re.escape(price.model)})$",
            "startDate": as_of,
            "unit": "TOKENS",
            **_langfuse_prices(price),
        }
        for price in prices
    ]


def _langfuse_prices(price: _Prices) -> dict[str, Any]:
    """Return the prices of a model: flat ones, or one tier where cached tokens have a price of their own."""
    if price.cached is None:
        return {"inputPrice": price.computed, "outputPrice": price.generated}
    prices = {"input": price.computed, **dict.fromkeys(LANGFUSE_CACHED, price.cached), "output": price.generated}
    tier = {"name": "Standard", "isDefault": True, "priority": 0, "conditions": [], "prices": prices}
    return {"pricingTiers": [tier]}
