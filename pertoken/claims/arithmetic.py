"""Expressions over facts of the catalog: `params("Llama-3.1-70B") * 2 / GB`."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pertoken.catalog.market import Accelerator, Market
from pertoken.forecast.queue.load import typical
from pertoken.forecast.serving import Load, forecast
from pertoken.state.deployment import Deployment
from pertoken.state.model import WEIGHT_BYTES, Model
from pertoken.state.placement import Placement
from pertoken.units import NANO_USD

T = TypeVar("T")
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNITS = {"GB": 1e9, "M": 1e6, "DAY_S": 86_400.0}


def value(expression: str, market: Market) -> float:
    """Return the value of an expression. Raises KeyError for an unknown name, ValueError for other syntax."""
    return float(_value(ast.parse(expression, mode="eval").body, _facts(market)))


def _value(node: ast.expr, facts: Mapping[str, Callable[..., float]]) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float()):
            return node.value
        case ast.Name(id=name):
            return _UNITS[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATORS[type(operation)](_value(left, facts), _value(right, facts))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return facts[name](*(_value(argument, facts) for argument in arguments))
    raise ValueError(f"not an expression over the catalog: {ast.unparse(node)}")


def _facts(market: Market) -> Mapping[str, Callable[..., float]]:
    """Return the facts that expressions name, each a function of names in the catalog."""

    def model(name: str) -> Model:
        return _listed(market.model(name), name)

    def device(name: str) -> Accelerator:
        return _listed(market.accelerator(name), name)

    return {
        "params": lambda name: _listed(model(name).params_total, name),
        "active": lambda name: _listed(model(name).params_active, name),
        "kv_values": lambda name: _listed(model(name).kv_values_per_token, name),
        "kv_heads": lambda name: _listed(model(name).n_kv_heads, name),
        "experts": lambda name: _listed(model(name).n_experts, name),
        "bytes_of": lambda dtype: WEIGHT_BYTES[dtype],
        "memory": lambda name: float(device(name).memory_bytes),
        "bandwidth": lambda name: device(name).memory_bytes_per_s,
        "flops": lambda name, dtype: _listed(device(name).peak_flops(dtype), name),
        "watts": lambda name: _listed(device(name).tdp_w, name),
        "usd_per_hour": lambda provider, instance, region, purchase="on_demand": _usd(
            market, provider, instance, region, purchase
        ),
        "usd_per_mtok": lambda provider, name: next(
            offer.input / NANO_USD for offer in market.token_offers(model(name)) if offer.provider == provider
        ),
        "turn_tokens": lambda: sum(lengths.mean for lengths in typical("conversation")),
        "static_use": _static_use,
        "tok_s": lambda *layout: _rates(market, *layout)[0],
        "total_tok_s": lambda *layout: _rates(market, *layout)[1],
    }


def _static_use(batch: int) -> float:
    """Return the mean share of slots in use while a static batch waits for its longest output."""
    generated = typical("conversation")[1]
    tokens = sorted(generated.tokens)
    steps = [(rank / len(tokens)) ** batch for rank in range(len(tokens) + 1)]
    longest = sum(size * (after - before) for size, before, after in zip(tokens, steps, steps[1:], strict=False))
    return float(generated.mean / longest)


def _rates(market: Market, name: str, accelerator: str, tp: int, weights: str, running: float) -> tuple[float, float]:
    """Return the likely tokens/s of a deployment: generated, and with those of prompts; 1,000 in and 250 out."""
    shape = _listed(market.model(name), name)
    where = Placement(accelerator=accelerator)
    deployment = Deployment(shape, "vllm", placement=where, tp=tp, weight_dtype=weights)
    point = _listed(forecast(deployment, Load(1.0, 1000, 250, running), market).running, f"{name} on {accelerator}")
    return point.tok_s[1], point.tok_s[1] * (1000 + 250) / 250


def _usd(market: Market, provider: str, instance: str, region: str, purchase: str) -> float:
    key = provider, instance, region, purchase
    return next(offer.nano_usd_per_hour / NANO_USD for offer in reversed(market.all_offers) if offer.key == key)


def _listed(fact: T | None, name: str) -> T:
    if fact is None:
        raise KeyError(f"{name}: not in the catalog")
    return fact
