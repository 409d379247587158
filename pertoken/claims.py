"""Claims of the field, checked with the catalog and the forecast, on a reference or on a fleet.

Front door: `checked` (verdicts), `on_fleet` (figures of services) and `claims_text` (text).
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import TypeVar

from pertoken.advisor.planning import Ground
from pertoken.arrivals import typical
from pertoken.catalog.claims import Claim, Reference, references
from pertoken.catalog.instances import terms
from pertoken.catalog.market import Accelerator, Market
from pertoken.catalog.model_facts import quantized_scores
from pertoken.catalog.offers import Offer
from pertoken.evidence import NotMeasured
from pertoken.forecast.host import Calibration, tier_of
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import BeforeAfter, compare, forecast
from pertoken.forecast.tiers import tiers
from pertoken.proof.recommendation import Recommendation, full_id, short_id
from pertoken.savings.context import Context
from pertoken.savings.size import SizedWorkload, size
from pertoken.state.deployment import WEIGHT_BYTES, Deployment, Model, Placement
from pertoken.state.service import Service, Slo
from pertoken.text.advice_table import bankable, capacity
from pertoken.text.amounts import amount
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
    """Tier of the forecast behind it; None for a published figure."""


Facts = Mapping[str, Callable[..., float | Uncertain]]
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNITS = {"GB": 1e9, "M": 1e6, "DAY_S": 86_400.0}


@dataclass(frozen=True, slots=True)
class ClaimFigure:
    """Value of an expression with its interval."""

    range: Range
    tiers: frozenset[str]
    """Tiers of the forecasts that it is made of; empty for a figure of the catalog alone."""


def value(expression: str, market: Market) -> ClaimFigure:
    """Return the value of an expression, low, likely and high.

    The error of each uncertain fact is independent of the others, so that they add in quadrature; a fact named twice is
    one. Raises KeyError for an unknown name, ValueError for other syntax.
    """
    tree = ast.parse(expression, mode="eval").body
    facts = _named(tree, _facts(market))
    uncertain = {call: fact for call, fact in facts.items() if isinstance(fact, Uncertain)}
    middle = {call: fact.range[1] if isinstance(fact, Uncertain) else fact for call, fact in facts.items()}
    likely = _number(tree, middle)
    changes = [
        [_number(tree, {**middle, call: fact.range[end]}) - likely for end in (0, 2)]
        for call, fact in uncertain.items()
    ]
    below, above = (math.hypot(*(side(0.0, *pair) for pair in changes)) for side in (min, max))
    tiers = frozenset(fact.tier for fact in uncertain.values() if fact.tier is not None)
    return ClaimFigure((likely - below, likely, likely + above), tiers)


def _named(tree: ast.expr, facts: Facts) -> dict[str, float | Uncertain]:
    """Return the facts that an expression names, by the text of their calls."""
    named: dict[str, float | Uncertain] = {}
    for node in reversed([*ast.walk(tree)]):  # arguments before their call
        match node:
            case ast.Call(func=ast.Name(id=name)) if (call := ast.unparse(node)) not in named:
                middle = {call: fact.range[1] if isinstance(fact, Uncertain) else fact for call, fact in named.items()}
                named[call] = facts[name](*(_value(argument, middle) for argument in node.args))
    return named


def _number(node: ast.expr, facts: Mapping[str, float]) -> float:
    number = _value(node, facts)
    if isinstance(number, str):
        raise ValueError(f"not a number: {ast.unparse(node)}")
    return number


def _value(node: ast.expr, facts: Mapping[str, float]) -> str | float:
    """Return the value of a node; `facts` are the values of calls by their text."""
    match node:
        case ast.Constant(value=str() | int() | float() as constant):
            return constant
        case ast.Name(id=name):
            return _UNITS[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATORS[type(operation)](_number(left, facts), _number(right, facts))
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
        "usd_per_hour": lambda provider, instance, region, purchase="on_demand": next(
            offer.nano_usd_per_hour / NANO_USD
            for offer in reversed(market.all_offers)
            if offer.key == (provider, instance, region, purchase)
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
    longest = sum(
        size * (chance_up_to - chance_below)
        for size, chance_below, chance_up_to in zip(tokens, steps, steps[1:], strict=False)
    )
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
    model, workload = _listed(market.model(name), name), SizedWorkload(requests_per_s, prompt, output, OBJECTIVES)
    choices = size(model, workload, market, providers=(provider,), dtypes=[weights]).rented
    rented = next(choice for choice in choices if accelerator in (None, choice.deployment.accelerator))
    low, likely, high = rented.nano_usd_per_hour
    ends = (likely if low is None else low, likely, likely if high is None else high)
    return Uncertain((ends[0] / NANO_USD, ends[1] / NANO_USD, ends[2] / NANO_USD), rented.tier.name)


def _listed(fact: T | None, name: str) -> T:
    if fact is None:
        raise KeyError(f"{name}: not in the catalog")
    return fact


ROUNDING = 0.05
"""Part of a claimed figure by which ours may miss it: articles round to one or two digits."""
CENTRAL_HALF = 0.526
"""Width of the central 50 % of a normal distribution over that of the central 80 %, which intervals state."""
LOAD_NAMES = ("running", "prompt", "output")
"""Names of a load in the table of claims."""


@dataclass(frozen=True, slots=True)
class Case:
    """Our figure of a claim in one situation."""

    words: str
    figure: Range | None
    tier: str | None = None
    """Tier of the forecast; None for a listed, computed or published figure."""
    missing: str | None = None

    def meets(self, claimed: tuple[float, float]) -> bool:
        """Return whether the claimed range, within rounding, overlaps the central half of the interval."""
        if self.figure is None:
            return False
        (low, likely, high), (least, most) = self.figure, claimed
        rounding = 0.0 if math.isinf(most) else ROUNDING * abs(most)
        near_low, near_high = likely - CENTRAL_HALF * (likely - low), likely + CENTRAL_HALF * (high - likely)
        return near_low <= most + rounding and near_high >= least - rounding


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim with our figures and the verdict that follows from them."""

    claim: Claim
    cases: tuple[Case, ...]

    @property
    def verdict(self) -> str:
        """`holds here`, `holds under …`, `does not hold`, `depends on …` or `not checkable`."""
        claimed, figured = self.claim.claimed, [case for case in self.cases if case.figure is not None]
        if claimed is None or not figured:
            return "not checkable"
        meeting = [case for case in figured if case.meets(claimed)]
        if len(meeting) == len(figured):
            return "holds here"
        if meeting:
            return f"holds under: {'; '.join(case.words for case in meeting)}"
        likely = [case.figure[1] for case in figured if case.figure is not None]
        if min(likely) < claimed[0] and max(likely) > claimed[1]:
            return "depends on: " + "; ".join(case.words for case in figured)
        return "does not hold: it is more" if min(likely) > claimed[1] else "does not hold: it is less"


def checked(claim: Claim, market: Market) -> CheckedClaim:
    """Check a claim on its references, the price lists, the catalog or published measurements."""
    return CheckedClaim(claim, tuple(_WAYS[claim.check](claim, market)))


def _forecast(claim: Claim, market: Market) -> Iterator[Case]:
    for name in claim.references:
        reference = references()[name]
        yield forecast_case(claim, reference.words, *_served(reference, market), market)


def _offer(claim: Claim, market: Market) -> Iterator[Case]:
    """Yield one case for each provider that lists both sides."""
    for provider in sorted({offer.provider for offer in _offers({**claim.before, **claim.after}, market)}):
        after = {**claim.after, "provider": provider}
        if claim.before:
            figure = price_ratios(claim.before, after, market)
            figure = figure and _in_unit(claim, figure)
        else:
            figure = _spread([offer.nano_usd_per_device_hour / NANO_USD for offer in _offers(after, market)])
        if figure is not None:
            yield Case(provider, figure)


def _arithmetic(claim: Claim, market: Market) -> Iterator[Case]:
    for words, expression in claim.cases.items():
        figure = value(expression, market)
        yield Case(words, figure.range, ", ".join(sorted(figure.tiers)) or None)


def _measurement(claim: Claim, market: Market) -> Iterator[Case]:
    for words, (low, high) in claim.measured.items():
        yield Case(words, (low, (low + high) / 2, high))


_WAYS: Mapping[str, Callable[[Claim, Market], Iterator[Case]]] = {
    "forecast": _forecast,
    "offer": _offer,
    "arithmetic": _arithmetic,
    "measurement": _measurement,
    "not checkable": lambda claim, market: iter(()),
}


def forecast_case(
    claim: Claim,
    words: str,
    deployment: Deployment,
    load: Load,
    market: Market,
    calibration: Calibration | None = None,
) -> Case:
    """Return the figure of a claim on one deployment under one load; the reason where it is not forecast."""
    present, present_load = _changed(deployment, load, claim.before, market)
    changed, changed_load = _changed(deployment, load, {**claim.before, **claim.after}, market)
    if claim.figure != "tokens/s" and (present, present_load) == (changed, changed_load):
        return Case(words, None, missing="it is so already")
    used_calibration = calibration or Calibration()
    try:
        figure = _ratio(claim.figure, (present, present_load), (changed, changed_load), market, used_calibration)
        if claim.figure == "cost":
            price = _price_ratio(present, changed, market)
            figure = figure[0] / price, figure[1] / price, figure[2] / price
        return Case(words, _in_unit(claim, figure), tier_of(changed, used_calibration, market).name)
    except Abstained as reason:
        return Case(words, None, missing=str(reason))


def _served(reference: Reference, market: Market) -> tuple[Deployment, Load]:
    shape = _listed(market.model(reference.model), reference.model)
    placement = Placement(accelerator=reference.accelerator)
    deployment = Deployment(shape, "vllm", placement=placement, tp=reference.tp, weight_dtype=reference.weights)
    acceptance = reference.acceptance
    return deployment, Load(1.0, reference.prompt, reference.output, reference.running, acceptance=acceptance)


def _changed(
    deployment: Deployment, load: Load, changes: Mapping[str, object], market: Market
) -> tuple[Deployment, Load]:
    """Return a deployment and its load with the changes of one side of a claim."""
    load = replace(
        load,
        running=_size(changes, "running", load.running),
        prompt_len=_size(changes, "prompt", load.prompt_len),
        generated_len=_size(changes, "output", load.generated_len),
    )
    knobs = {name: setting for name, setting in changes.items() if name not in (*LOAD_NAMES, "accelerator", "model")}
    if "model" in changes:
        knobs["model"] = market.model(str(changes["model"]))
    if deployment.max_num_seqs is not None and deployment.max_num_seqs < _size(changes, "running", 0):
        knobs["max_num_seqs"] = changes["running"]
    if "accelerator" in changes:
        deployment = deployment.on(Placement(accelerator=str(changes["accelerator"])))
    return deployment.but(**knobs) if knobs else deployment, load


def _size(changes: Mapping[str, object], name: str, present: float) -> float:
    size = changes.get(name, present)
    if not isinstance(size, int | float):
        raise ValueError(f"{name}: not a number: {size!r}")
    return float(size)


Served = tuple[Deployment, Load]


def _ratio(figure: str, present: Served, changed: Served, market: Market, calibration: Calibration) -> Range:
    """Return after over before of tokens/s, of time, or of the sequences that fit; `tokens/s` alone as they are.

    Two loads of one deployment share its error: only the width after the change is counted. Raises Abstained.
    """
    if figure in ("rate", "cost") and present[1] == changed[1]:
        change = compare(present[0], changed[0], present[1], market, calibration)
        if isinstance(change, BeforeAfter):
            return change.ratio
        raise Abstained(change.refusal or "it would not start")
    present_forecast, changed_forecast = (forecast(*served, market, calibration) for served in (present, changed))
    if present_forecast.running is None or changed_forecast.running is None:
        raise Abstained(present_forecast.refusal or changed_forecast.refusal or "it would not start")
    if figure == "tokens/s":
        return changed_forecast.running.tok_s
    if figure == "sequences":
        ratio = changed_forecast.max_concurrency / present_forecast.max_concurrency
        return ratio, ratio, ratio
    name = {"latency": "tpot_ms", "first token": "ttft_ms"}.get(figure, "tok_s")
    likely = getattr(present_forecast.running, name)[1]
    low, middle, high = (end / likely for end in getattr(changed_forecast.running, name))
    return low, middle, high


def _price_ratio(present: Deployment, changed: Deployment, market: Market) -> float:
    """Return the list price after over before, the median of providers. Raises Abstained where none lists both."""
    devices = (changed.n_devices or 1) / (present.n_devices or 1)
    if present.accelerator == changed.accelerator:
        return devices
    ratios = price_ratios({"accelerator": present.accelerator}, {"accelerator": changed.accelerator}, market)
    if ratios is None:
        raise Abstained(f"no provider lists both {present.accelerator} and {changed.accelerator}")
    return ratios[1] * devices


def price_ratios(
    present_knobs: Mapping[str, object], changed_knobs: Mapping[str, object], market: Market
) -> Range | None:
    """Return the lowest, median and highest ratio of offers after over before, of one provider and region.

    Two purchases of one accelerator are compared on the same instance. None where no provider lists both.
    """
    same_instance = present_knobs.get("accelerator", changed_knobs["accelerator"]) == changed_knobs["accelerator"]
    ratios = [
        late.nano_usd_per_device_hour / early.nano_usd_per_device_hour
        for early in _offers({**changed_knobs, **present_knobs}, market)
        for late in _offers({**present_knobs, **changed_knobs}, market)
        if (early.provider, early.region) == (late.provider, late.region)
        and (not same_instance or early.instance_type == late.instance_type)
    ]
    return _spread(ratios)


def _spread(figures: Sequence[float]) -> Range | None:
    return (min(figures), statistics.median(figures), max(figures)) if figures else None


def _offers(where: Mapping[str, object], market: Market) -> list[Offer]:
    return [
        offer
        for offer in market.offers(str(where["accelerator"]), str(where.get("purchase", "on_demand")))
        if where.get("provider") in (None, offer.provider)
    ]


def _in_unit(claim: Claim, ratio: Range) -> Range:
    """Return a ratio in the unit of the claim: `less` is the share of the cost that falls away."""
    if claim.unit != "less":
        return ratio
    if claim.check == "forecast":
        return 1 - 1 / ratio[0], 1 - 1 / ratio[1], 1 - 1 / ratio[2]
    return 1 - ratio[2], 1 - ratio[1], 1 - ratio[0]


@dataclass(frozen=True, slots=True)
class OnService:
    """A claim on one service of a fleet."""

    service: str
    case: Case
    running: float | None
    """Requests at once while busy; None where they are not measured."""
    advice: tuple[Recommendation, ...]
    """Recommendations of the rules that would realise the claim, for this service."""


def on_fleet(claim: Claim, ground: Ground) -> tuple[OnService, ...]:
    """Return the claim on each service that it is forecast for or that advice would realise it on."""
    rows: list[OnService] = []
    for service in ground.gathered.fleet.services:
        ids = {deployment.deployment_id for deployment in service.deployments}
        realising = tuple(
            row
            for row in ground.rows
            if row.rule_id in claim.rules
            and row.best is not None
            and (row.deployment_id in ids or row.target_key == service.name)
        )
        if claim.check == "forecast" and (claim.figure != "tokens/s" or _as_referenced(claim, service)):
            case, running = _case(claim, service, ground.gathered.context)
            rows.append(OnService(service.name, case, running, realising))
        elif realising:
            missing = "this claim is not forecast for a service"
            rows.append(OnService(service.name, Case(service.name, None, missing=missing), None, realising))
    return tuple(rows)


def _as_referenced(claim: Claim, service: Service) -> bool:
    """Return whether a service runs a model of the claim's references on their device: a rate is a claim on both."""
    layouts = {(references()[name].model, references()[name].accelerator) for name in claim.references}
    return any((deployment.model.name, deployment.accelerator) in layouts for deployment in service.deployments)


def _case(claim: Claim, service: Service, context: Context) -> tuple[Case, float | None]:
    """Return the figure on the deployment of a service with the most requests at once."""
    missing = "it has no deployment"
    measured = []
    for deployment in service.deployments:
        try:
            measured.append((deployment, context.forecasts.load(context.evidence(deployment.deployment_id))))
        except NotMeasured as reason:
            missing = str(reason)
    if not measured:
        return Case(service.name, None, missing=missing), None
    deployment, load = max(measured, key=lambda pair: pair[1].load.running)
    try:
        calibration = context.forecasts.calibration(deployment, load, context.market)
    except (Abstained, ValueError) as reason:
        return Case(service.name, None, missing=str(reason)), load.load.running
    # From the present batch of the service instead of a stated one.
    start = {name: setting for name, setting in claim.before.items() if name != "running"}
    from_present = replace(claim, before=start)
    case = forecast_case(from_present, service.name, deployment, load.load, context.market, calibration)
    batched = claim.after.get("running")
    if isinstance(batched, int | float) and load.load.running >= batched:
        case = Case(service.name, None, missing="it batches as many already")
    return case, load.load.running


WIDTH = 100
Row = tuple[CheckedClaim, tuple[OnService, ...]]


def claims_text(rows: Iterable[Row]) -> str:
    """Return checked claims for a terminal, one paragraph each, and the error of each tier that they name."""
    shown = list(rows)
    named = {case.tier for row, services in shown for case in (*row.cases, *(on.case for on in services))}
    errors = [line for tier in tiers().values() if tier.name in named for line in wrap(tier.words, WIDTH)]
    return "\n\n".join(["\n".join(_paragraph(*row)) for row in shown] + ["\n".join(errors)] * bool(errors))


def claims_values(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Return checked claims as JSON values; an open end of a claimed range is null."""
    return [_values(row, services) for row, services in rows]


def claims_table(rows: Iterable[CheckedClaim]) -> str:
    """Return the Markdown table of the documentation."""
    lines = ["| the claim | verdict | our figure | why | check |", "|---|---|---|---|---|"]
    for row in rows:
        figures = "; ".join(case_text(row, case) for case in row.cases)
        source = f"{row.claim.check}; {row.claim.source.split(',')[0]}"
        lines.append(f"| {row.claim.text} | {row.verdict} | {figures} | {row.claim.why} | {source} |")
    return "\n".join(lines) + "\n"


def case_text(row: CheckedClaim, case: Case) -> str:
    """Return the figure of one case in the unit of its claim, or why there is none."""
    if case.figure is None:
        return f"{case.words}: {case.missing}"
    low, likely, high = (number(end, row.claim.unit) for end in case.figure)
    interval = "" if low == high else f" ({low} to {high})"
    tier = "" if case.tier is None else f", {case.tier}"
    unit = "" if row.claim.unit == "less" else f" {row.claim.unit}"
    return f"{case.words}: {likely}{unit}{interval}{tier}"


def number(figure: float, unit: str) -> str:
    """Return a figure with two or three digits: `28 % less`, `20 % more`, `1.4`."""
    if unit == "less":
        percent = abs(100 * figure)
        return f"{f'{percent:.0f}' if percent >= 1 else f'{percent:.1g}'} % {'less' if figure >= 0 else 'more'}"
    if abs(figure) >= 1000:
        return f"{float(f'{figure:.3g}'):,.0f}"
    return f"{figure:.3g}"


def _paragraph(row: CheckedClaim, services: Sequence[OnService]) -> Iterator[str]:
    claim = row.claim
    yield from wrap(claim.text, WIDTH)
    for line in (f"{row.verdict}. {claim.why}", *(case_text(row, case) for case in row.cases)):
        yield from wrap(line, WIDTH, initial_indent="  ", subsequent_indent="    ")
    for on in services:
        running = "" if on.running is None else f", because it runs {on.running:.3g} at once"
        yield from wrap(f"on {case_text(row, on.case)}{running}", WIDTH, initial_indent="  ", subsequent_indent="    ")
        for advice in on.advice:
            yield from wrap(_worth(advice), WIDTH, initial_indent="    ", subsequent_indent="      ")
    origin = f"{claim.check}; {claim.source}, {claim.as_of}"
    yield from wrap(origin, WIDTH, initial_indent="  ", subsequent_indent="    ")


def _worth(advice: Recommendation) -> str:
    dollars = [
        f"{amount(money[1])} a month {words}"
        for money, words in ((bankable(advice), "off the bill"), (capacity(advice), "of capacity"))
        if money is not None and money[1]
    ]
    return f"{short_id(advice)} {advice.change}: {', '.join(dollars) or 'no dollars yet'}"


def _values(row: CheckedClaim, services: Sequence[OnService]) -> dict[str, object]:
    claim = row.claim
    return {
        "id": claim.id,
        "topic": claim.topic,
        "claim": claim.text,
        "claimed": claim.claimed and [None if math.isinf(end) else end for end in claim.claimed],
        "unit": claim.unit,
        "check": claim.check,
        "verdict": row.verdict,
        "why": claim.why,
        "cases": [_case_values(case) for case in row.cases],
        "services": [
            {
                "service": on.service,
                **_case_values(on.case),
                "running": on.running,
                "recommendations": [
                    {
                        "id": full_id(advice),
                        "rule": advice.rule_id,
                        "change": advice.change,
                        "net": bankable(advice),
                        "capacity": capacity(advice),
                    }
                    for advice in on.advice
                ],
            }
            for on in services
        ],
        "source": claim.source,
        "as_of": claim.as_of.isoformat(),
    }


def _case_values(case: Case) -> dict[str, object]:
    forecast = next((asdict(tier) for tier in tiers().values() if tier.name == case.tier), None)
    return {"case": case.words, "figure": case.figure, "tier": case.tier, "forecast": forecast, "missing": case.missing}
