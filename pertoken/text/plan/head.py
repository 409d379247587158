"""Headline of the plan: its bankable saving with the assumptions, as every screen shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pertoken.text.amounts import amount
from pertoken.text.words import NONE_FOUND, literal
from pertoken.units import NANO_USD

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Money, Plan
    from pertoken.advisor.plan.what_if import WhatIf
    from pertoken.savings.sensitivity import At, Sensitivity


EXAMPLE = "traffic=1.5 price=H100=2.10 tariff=0.12 slo=chat:ttft_p95<800ms"
"""Example of assumptions in the syntax of `advisor.plan.what_if`; tariff is in dollars per kWh."""


def headline(plan: Plan) -> str:
    """Return the bankable saving of all steps together as a sentence."""
    n = len(plan.steps)
    if not plan.spend:
        return "No host has a price: `pertoken prices set` sets the price of a device-hour."
    if not n:
        return f"No step lowers the bill of {amount(plan.spend)} a month."
    ticked = sum(step.accepted for step in plan.steps)
    steps = ("1 step" if n == 1 else f"{n} steps") + (f", {ticked} accepted" if ticked else "")
    if not any(plan.bankable):
        return f"The bill of {amount(plan.spend)} a month stays ({steps})."
    return f"Bankable {money(plan.bankable)} a month of a bill of {amount(plan.spend)} ({steps})."


def capacity_line(plan: Plan) -> str:
    """Return the capacity saving as a sentence; it is never added to the bankable saving."""
    if not any(plan.capacity):
        return "The same bill serves no more than now."
    return f"Capacity {money(plan.capacity)} a month: the same bill serves more; never added."


def weakest(plan: Plan) -> str | None:
    """Return the assumption with the largest effect, and the savings at both of its ends; None without any."""
    return f"Least certain: {sensitivity_line(plan.sensitivity[0])}." if plan.sensitivity else None


def money(known: Money | None) -> str:
    """Return likely dollars with their range: `$1,500 ($1,200 to $1,818)`; `none found` if there are none."""
    if known is None or not any(known):
        return NONE_FOUND
    low, likely, high = map(amount, known)
    return likely if low == high else f"{likely} ({low} to {high})"


def sensitivity_line(sensitivity: Sensitivity) -> str:
    """Return one assumption with the savings at both of its ends."""
    ends = "; ".join(_end(sensitivity, end) for end in (sensitivity.low, sensitivity.high))
    return f"{literal(sensitivity.assumption)} ({ends})"


def end_dollars(sensitivity: Sensitivity, end: At) -> int:
    """Return the saving at one end, nano-USD a month: bankable if the assumption changes it, else capacity."""
    return end.bankable if sensitivity.swing[0] else end.capacity


def _end(sensitivity: Sensitivity, end: At) -> str:
    if end.refused is not None:
        return f"{literal(end.value)}: nothing, {literal(end.refused)}"
    what = "" if sensitivity.swing[0] else " of capacity"
    return f"{literal(end.value)}: {amount(end_dollars(sensitivity, end))}{what}{dropped(end)}"


def dropped(end: At) -> str:
    """Return how many steps are not counted at an end: ` without 2 steps`; empty where all are."""
    steps = "1 step" if len(end.without) == 1 else f"{len(end.without)} steps"
    return f" without {steps}" if end.without else ""


def what_if_words(what_if: WhatIf) -> str:
    """Return assumptions in the syntax that a person types: `traffic=1.5 tariff=0.12`."""
    words = [f"traffic={what_if.traffic:g}"] if what_if.traffic != 1 else []
    words += [
        f"price={_quoted(price.selector)}={(price.nano_usd_per_device_hour or 0) / NANO_USD:g}"
        for price in what_if.prices
    ]
    words += [f"tariff={what_if.tariff_usd_per_kwh:g}"] if what_if.tariff_usd_per_kwh is not None else []
    for service, slo in what_if.slo.items():
        limits = {name.removesuffix("_ms"): getattr(slo, name) for name in _OBJECTIVES}
        parts = [f"{name}<{limit:g}ms" for name, limit in limits.items() if limit is not None]
        words.append(f"slo={_quoted(service)}:{','.join(parts)}")
    return " ".join(words)


_OBJECTIVES = ("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms")


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def values_words(values: Mapping[str, float]) -> str:
    """Return the values that a person set, with their assumptions."""
    return "; ".join(f"{literal(name)} = {value:g}" for name, value in values.items())
