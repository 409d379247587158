"""Demand of a service: arrivals, lengths and cache shares, each with its provenance."""

import math
from dataclasses import dataclass, replace
from typing import Any

from pertoken.provenance import Provenance
from pertoken.state.errors import InvalidEdit

HOURS_OF_WEEK = 168
"""Hours of a week, Monday 00:00 UTC first."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its origin. An assumed quantity yields a break-even and enters no total until a person confirms
    it."""

    value: float
    provenance: Provenance
    source: str = ""
    confirmed: bool = False
    """For an assumed quantity: whether a person supplied it, so that it is priced."""

    def __post_init__(self) -> None:
        _check("a quantity of", self.value)


@dataclass(frozen=True, slots=True)
class Times:
    """A change relative to the present; see `times`."""

    factor: float
    source: str = ""
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class To:
    """A change to a value; see `to`."""

    value: float
    source: str = ""
    confirmed: bool = False


def times(factor: float, source: str = "", *, confirmed: bool = False) -> Times:
    """Multiply the present value: `service.serving(output_len=times(0.7))`. `source` names where the factor is from.

    `confirmed`: a person supplied the factor, in an option of the rule. Only then a change of demand is priced.
    """
    _check("times", factor)
    return Times(factor, source, confirmed)


def to(value: float, source: str = "", *, confirmed: bool = False) -> To:
    """Replace the present value: `service.serving(response_cache_share=to(0.2))`. `confirmed` as in `times`."""
    _check("to", value)
    return To(value, source, confirmed)


SHARES = ("cached_share", "response_cache_share")
"""Fields of `Demand` that are parts of a whole, 0 to 1."""
LIMITS = {"requests_per_s": (1e-9, 1e6), "prompt_len": (1.0, 1e8), "output_len": (1.0, 1e8)}
"""Range that a proposal may give a field: a service that gets no requests is released, not forecast."""
EDITABLE = (*LIMITS, *SHARES)
"""Fields of `Demand` that `serving()` changes."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests that clients send to a service. None is unknown."""

    requests_per_s: Quantity | None = None
    """95th percentile over the minutes of the window, of all deployments together."""
    requests_by_hour_of_week: tuple[float | None, ...] = (None,) * HOURS_OF_WEEK
    """Mean requests/s of each hour of the week, Monday 00:00 UTC first; None where the window has no such hour."""
    prompt_len: Quantity | None = None
    """Mean prompt tokens per request, cached included."""
    output_len: Quantity | None = None
    """Mean generated tokens per request."""
    cached_share: Quantity | None = None
    """Part of the prompt tokens found in the prefix cache."""
    response_cache_share: Quantity | None = None
    """Part of the requests answered from a response cache, which no engine sees."""
    tenants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.requests_by_hour_of_week) != HOURS_OF_WEEK:
            raise InvalidEdit(f"a week has {HOURS_OF_WEEK} hours, not {len(self.requests_by_hour_of_week)}")
        for name in SHARES:
            share = getattr(self, name)
            if share is not None and share.value > 1:
                raise InvalidEdit(f"{name}={share.value:g} is not possible: use a share from 0 to 1")

    def serving(self, **changes: Times | To) -> "Demand":
        """Return this demand with changed fields, each by `times(x)` or `to(x)`; what is changed is assumed.

        Raises InvalidEdit for another field, a bare number, `times` of an unknown value, or a result out of range.
        """
        demand = self
        for name, change in changes.items():
            if name not in EDITABLE:
                raise InvalidEdit(f"{name!r} is not a field of a demand; known: {', '.join(EDITABLE)}")
            if not isinstance(change, Times | To):
                raise InvalidEdit(f"{name}={change!r}: use times(x), relative to the present, or to(x), a new value")
            changed: Any = {name: _changed(name, getattr(self, name), change)}
            demand = replace(demand, **changed)
        if "requests_per_s" in changes:
            demand = replace(demand, requests_by_hour_of_week=_scaled(self, demand))
        return demand


def _check(what: str, number: object) -> None:
    if type(number) not in (int, float) or not math.isfinite(number) or number < 0:  # type: ignore[arg-type,operator]
        raise InvalidEdit(f"{what} {number!r} is not possible: use a finite number, 0 or more")


def _changed(name: str, present: Quantity | None, change: Times | To) -> Quantity:
    if isinstance(change, To):
        value = change.value
    elif present is None:
        raise InvalidEdit(f"{name} is unknown, so that times() has nothing to multiply; use to()")
    else:
        value = present.value * change.factor
    low, high = LIMITS.get(name, (0.0, math.inf))  # shares are checked by the demand
    if not low <= value <= high:
        raise InvalidEdit(f"{name}={value:g} is not possible: use a number from {low:g} to {high:g}")
    return Quantity(value, Provenance.ASSUMED, change.source, change.confirmed)


def _scaled(before: Demand, after: Demand) -> tuple[float | None, ...]:
    if before.requests_per_s is None or after.requests_per_s is None or before.requests_per_s.value == 0:
        return (None,) * HOURS_OF_WEEK
    factor = after.requests_per_s.value / before.requests_per_s.value
    return tuple(None if value is None else value * factor for value in before.requests_by_hour_of_week)
