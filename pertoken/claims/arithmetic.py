"""Expressions over facts of the catalog: `params("Llama-3.1-70B") * 2 / GB`."""

import ast
import math
import operator
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pertoken.arrivals import typical
from pertoken.catalog.instances import terms
from pertoken.catalog.market import Accelerator, Market
from pertoken.catalog.model_facts import quantized_scores
from pertoken.forecast.host import Calibration, tier_of
from pertoken.forecast.served import Load
from pertoken.forecast.serving import forecast
from pertoken.savings.size import Workload, size
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.model import WEIGHT_BYTES, Model
from pertoken.state.service import Slo
from pertoken.units import NANO_USD

T = TypeVar("T")
Range = tuple[float, float, float]
"""Low, likely, high."""
OBJECTIVES = Slo(ttft_p95_ms=2000, tpot_p95_ms=100)
"""Latencies that rented devices hold."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A fact with an interval."""

    range: Range
    tier: str | None = None
    """Tier of the forecast behind it; None for what was published."""


Facts = Mapping[str, Callable[..., float | Uncertain]]
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNITS = {"GB": 1e9, "M": 1e6, "DAY_S": 86_400.0}


@dataclass(frozen=True, slots=True)
class Figure:
    """Value of an expression with its interval."""

    range: Range
    tiers: frozenset[str]
    """Tiers of the forecasts that it is made of; empty for a figure of the catalog alone."""


def value(expression: str, market: Market) -> Figure:
    """Return the value of an expression, low, likely and high.

    The error of each uncertain fact is independent of the others, so that they add in quadrature; a fact named twice is
    one. Raises KeyError for an unknown name, ValueError for other syntax.
    """
    tree = ast.parse(expression, mode="eval").body
    facts = _named(tree, _facts(market))
    uncertain = {call: fact for call, fact in facts.items() if isinstance(fact, Uncertain)}
    middle = {call: fact.range[1] if isinstance(fact, Uncertain) else fact for call, fact in facts.items()}
    likely = float(_value(tree, middle))
    changes = [
        [float(_value(tree, {**middle, call: fact.range[end]})) - likely for end in (0, 2)]
        for call, fact in uncertain.items()
    ]
    below, above = (math.hypot(*(side(0.0, *pair) for pair in changes)) for side in (min, max))
    tiers = frozenset(fact.tier for fact in uncertain.values() if fact.tier is not None)
    return Figure((likely - below, likely, likely + above), tiers)


def _named(tree: ast.expr, facts: Facts) -> dict[str, float | Uncertain]:
    """Return the facts that an expression names, by the text of their calls."""
    named: dict[str, float | Uncertain] = {}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for node in reversed(calls):  # arguments before what they are arguments of
        middle = {call: fact.range[1] if isinstance(fact, Uncertain) else fact for call, fact in named.items()}
        name = node.func.id  # type: ignore[attr-defined]  # a Name, by the condition above
        call = ast.unparse(node)
        if call not in named:
            named[call] = facts[name](*(_value(argument, middle) for argument in node.args))
    return named


def _value(node: ast.expr, facts: Mapping[str, float]) -> Any:
    """Return the value of a node; `facts` are the values of calls by their text."""
    match node:
        case ast.Constant(value=str() | int() | float()):
            return node.value
        case ast.Name(id=name):
            return _UNITS[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATORS[type(operation)](_value(left, facts), _value(right, facts))
        case ast.Call(func=ast.Name(), keywords=[]):
            return facts[ast.unparse(node)]
    raise ValueError(f"not an expression over the catalog: {ast.unparse(node)}")


def _facts(market: Market) -> Facts:
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
        "owned": lambda term: terms()[term].value,
        "watts": lambda name: _listed(device(name).tdp_w, name),
        "usd_per_hour": lambda provider, instance, region, purchase="on_demand": _usd(
            market, provider, instance, region, purchase
        ),
        "usd_per_mtok": lambda provider, name: next(
            offer.input / NANO_USD for offer in market.token_offers(model(name)) if offer.provider == provider
        ),
        "prompt_tokens": lambda: typical("conversation")[0].mean,
        "output_tokens": lambda: typical("conversation")[1].mean,
        "static_use": _static_use,
        "accuracy_lost": _accuracy_lost,
        "tok_s": lambda *layout: _tok_s(market, *layout),
        "rented_usd_per_hour": lambda *workload: _rented_usd_per_hour(market, *workload),
    }


def _static_use(batch: int) -> float:
    """Return the mean share of slots in use while a static batch waits for its longest output."""
    generated = typical("conversation")[1]
    tokens = sorted(generated.tokens)
    steps = [(rank / len(tokens)) ** batch for rank in range(len(tokens) + 1)]
    longest = sum(size * (after - before) for size, before, after in zip(tokens, steps, steps[1:], strict=False))
    return float(generated.mean / longest)


def _accuracy_lost(dtype: str) -> Uncertain:
    """Return the least, median and largest share of accuracy that published checkpoints in this format lost."""
    lost = sorted(
        1 - score.quantized / score.unquantized
        for (_, weight_dtype), score in quantized_scores().items()
        if weight_dtype == dtype
    )
    return Uncertain((lost[0], statistics.median(lost), lost[-1]))


def _tok_s(market: Market, name: str, accelerator: str, tp: int, weights: str, running: float) -> Uncertain:
    """Return the generated tokens/s of a deployment at 1,000 tokens in and 250 out."""
    shape = _listed(market.model(name), name)
    deployment = Deployment(shape, "vllm", placement=Placement(accelerator=accelerator), tp=tp, weight_dtype=weights)
    point = _listed(forecast(deployment, Load(1.0, 1000, 250, running), market).running, f"{name} on {accelerator}")
    return Uncertain(point.tok_s, tier_of(deployment, Calibration(), market).name)


def _rented_usd_per_hour(
    market: Market,
    name: str,
    requests_per_s: float,
    prompt: float,
    output: float,
    weights: str,
    provider: str,
    accelerator: str | None = None,
) -> Uncertain:
    """Return $ an hour of the cheapest whole instances that hold `OBJECTIVES` for a workload."""
    model, workload = _listed(market.model(name), name), Workload(requests_per_s, prompt, output, OBJECTIVES)
    choices = size(model, workload, market, providers=(provider,), dtypes=[weights]).rented
    rented = next(choice for choice in choices if accelerator in (None, choice.deployment.accelerator))
    low, likely, high = rented.nano_usd_per_hour
    ends = (likely if low is None else low, likely, likely if high is None else high)
    return Uncertain((ends[0] / NANO_USD, ends[1] / NANO_USD, ends[2] / NANO_USD), rented.tier.name)


def _usd(market: Market, provider: str, instance: str, region: str, purchase: str) -> float:
    key = provider, instance, region, purchase
    return next(offer.nano_usd_per_hour / NANO_USD for offer in reversed(market.all_offers) if offer.key == key)


def _listed(fact: T | None, name: str) -> T:
    if fact is None:
        raise KeyError(f"{name}: not in the catalog")
    return fact
