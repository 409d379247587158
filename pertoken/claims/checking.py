"""Verdicts on claims: one function for each way of checking, and the comparison of claimed and computed figures."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pertoken.catalog.claims import Claim, Reference, references
from pertoken.catalog.market import Market
from pertoken.catalog.offers import Offer
from pertoken.claims.arithmetic import Range, value
from pertoken.forecast.host import Calibration, tier_of
from pertoken.forecast.served import Abstained, Load
from pertoken.forecast.serving import Change, compare, forecast
from pertoken.state.deployment import Deployment, Placement
from pertoken.units import NANO_USD

ROUNDING = 0.05
"""Part of a claimed figure by which ours may miss it: articles round to one or two digits."""
CENTRAL_HALF = 0.526
"""Width of the central 50 % of a normal distribution over that of the central 80 %, which intervals state."""
LOAD_FIELDS: Mapping[str, str] = {"running": "running", "prompt": "prompt_len", "output": "generated_len"}
"""Names of a load in the table -> fields of `Load`."""


@dataclass(frozen=True, slots=True)
class Case:
    """Our figure of a claim in one situation."""

    words: str
    figure: Range | None
    tier: str | None = None
    """Tier of the forecast; None of what is listed, computed or published."""
    missing: str | None = None
    """Why there is no figure."""

    def meets(self, claimed: tuple[float, float]) -> bool:
        """Return whether the claimed range, within rounding, overlaps the central half of the interval."""
        if self.figure is None:
            return False
        (low, likely, high), (least, most) = self.figure, claimed
        rounding = 0.0 if math.isinf(most) else ROUNDING * abs(most)
        near_low, near_high = likely - CENTRAL_HALF * (likely - low), likely + CENTRAL_HALF * (high - likely)
        return near_low <= most + rounding and near_high >= least - rounding


@dataclass(frozen=True, slots=True)
class Checked:
    """A claim with our figures and the verdict that follows from them."""

    claim: Claim
    cases: tuple[Case, ...]

    @property
    def verdict(self) -> str:
        """`holds here`, `holds under …`, `does not hold`, `depends on …` or `not checkable`."""
        claimed, known = self.claim.claimed, [case for case in self.cases if case.figure is not None]
        if claimed is None or not known:
            return "not checkable"
        meeting = [case for case in known if case.meets(claimed)]
        if len(meeting) == len(known):
            return "holds here"
        if meeting:
            return f"holds under: {'; '.join(case.words for case in meeting)}"
        likely = [case.figure[1] for case in known if case.figure is not None]
        if min(likely) < claimed[0] and max(likely) > claimed[1]:
            return "depends on: " + "; ".join(case.words for case in known)
        return "does not hold: it is more" if min(likely) > claimed[1] else "does not hold: it is less"


def checked(claim: Claim, market: Market) -> Checked:
    """Check a claim on its references, the price lists, the catalog or published measurements."""
    return Checked(claim, tuple(_WAYS[claim.check](claim, market)))


def _forecast(claim: Claim, market: Market) -> Iterator[Case]:
    for name in claim.references:
        reference = references()[name]
        yield forecast_case(claim, reference.words, *_served(reference, market), market)


def _offer(claim: Claim, market: Market) -> Iterator[Case]:
    """Yield one case for each provider that lists what is compared."""
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
    now, load_now = _changed(deployment, load, claim.before, market)
    to, load_after = _changed(deployment, load, {**claim.before, **claim.after}, market)
    if claim.figure != "tokens/s" and (now, load_now) == (to, load_after):
        return Case(words, None, missing="it is so already")
    known = calibration or Calibration()
    try:
        figure = _ratio(claim.figure, (now, load_now), (to, load_after), market, known)
        if claim.figure == "cost":
            price = _price_ratio(now, to, market)
            figure = figure[0] / price, figure[1] / price, figure[2] / price
        return Case(words, _in_unit(claim, figure), tier_of(to, known, market).name)
    except Abstained as reason:
        return Case(words, None, missing=str(reason))


def _served(reference: Reference, market: Market) -> tuple[Deployment, Load]:
    shape = market.model(reference.model)
    if shape is None:
        raise KeyError(f"{reference.model}: not in the catalog of models")
    placement = Placement(accelerator=reference.accelerator)
    deployment = Deployment(shape, "vllm", placement=placement, tp=reference.tp, weight_dtype=reference.weights)
    acceptance = reference.acceptance
    return deployment, Load(1.0, reference.prompt, reference.output, reference.running, acceptance=acceptance)


def _changed(deployment: Deployment, load: Load, changes: Mapping[str, Any], market: Market) -> tuple[Deployment, Load]:
    """Return a deployment and its load with the changes of one side of a claim."""
    sizes: dict[str, Any] = {LOAD_FIELDS[name]: float(size) for name, size in changes.items() if name in LOAD_FIELDS}
    load = replace(load, **sizes)
    knobs = {name: setting for name, setting in changes.items() if name not in (*LOAD_FIELDS, "accelerator", "model")}
    if "model" in changes:
        knobs["model"] = market.model(changes["model"])
    if deployment.max_num_seqs is not None and deployment.max_num_seqs < changes.get("running", 0):
        knobs["max_num_seqs"] = changes["running"]
    if "accelerator" in changes:
        deployment = deployment.on(Placement(accelerator=changes["accelerator"]))
    return deployment.but(**knobs) if knobs else deployment, load


Served = tuple[Deployment, Load]


def _ratio(figure: str, now: Served, to: Served, market: Market, calibration: Calibration) -> Range:
    """Return after over before of tokens/s, of time, or of the sequences that fit; `tokens/s` alone as they are.

    Two loads of one deployment share its error: only the width after the change is counted. Raises Abstained.
    """
    if figure in ("rate", "cost") and now[1] == to[1]:
        change = compare(now[0], to[0], now[1], market, calibration)
        if isinstance(change, Change):
            return change.ratio
        raise Abstained(change.refusal or "it would not start")
    before, after = (forecast(*served, market, calibration) for served in (now, to))
    if before.running is None or after.running is None:
        raise Abstained(before.refusal or after.refusal or "it would not start")
    if figure == "tokens/s":
        return after.running.tok_s
    if figure == "sequences":
        ratio = after.max_concurrency / before.max_concurrency
        return ratio, ratio, ratio
    name = {"latency": "tpot_ms", "first token": "ttft_ms"}.get(figure, "tok_s")
    likely = getattr(before.running, name)[1]
    low, middle, high = (end / likely for end in getattr(after.running, name))
    return low, middle, high


def _price_ratio(now: Deployment, to: Deployment, market: Market) -> float:
    """Return the list price after over before, the median of providers. Raises Abstained where none lists both."""
    devices = (to.n_devices or 1) / (now.n_devices or 1)
    if now.accelerator == to.accelerator:
        return devices
    ratios = price_ratios({"accelerator": now.accelerator}, {"accelerator": to.accelerator}, market)
    if ratios is None:
        raise Abstained(f"no provider lists both {now.accelerator} and {to.accelerator}")
    return ratios[1] * devices


def price_ratios(before: Mapping[str, Any], after: Mapping[str, Any], market: Market) -> Range | None:
    """Return the lowest, median and highest ratio of offers after over before, of one provider and region.

    Two purchases of one accelerator are compared on the same instance. None where no provider lists both.
    """
    same_instance = before.get("accelerator", after["accelerator"]) == after["accelerator"]
    ratios = [
        late.nano_usd_per_device_hour / early.nano_usd_per_device_hour
        for early in _offers({**after, **before}, market)
        for late in _offers({**before, **after}, market)
        if (early.provider, early.region) == (late.provider, late.region)
        and (not same_instance or early.instance_type == late.instance_type)
    ]
    return _spread(ratios)


def _spread(figures: Sequence[float]) -> Range | None:
    return (min(figures), statistics.median(figures), max(figures)) if figures else None


def _offers(where: Mapping[str, Any], market: Market) -> list[Offer]:
    return [
        offer
        for offer in market.offers(where["accelerator"], where.get("purchase", "on_demand"))
        if where.get("provider") in (None, offer.provider)
    ]


def _in_unit(claim: Claim, ratio: Range) -> Range:
    """Return a ratio in the unit of the claim: `less` is the share of the cost that falls away."""
    if claim.unit != "less":
        return ratio
    if claim.check == "forecast":
        return 1 - 1 / ratio[0], 1 - 1 / ratio[1], 1 - 1 / ratio[2]
    return 1 - ratio[2], 1 - ratio[1], 1 - ratio[0]
