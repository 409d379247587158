"""Another load, other prices or other objectives: edits of a gathered `Present` before rules and pricing run."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import TypeVar

from pertoken.advisor.present import Present
from pertoken.costs.prices.book import Price
from pertoken.errors import BadInput
from pertoken.evidence import Evidence
from pertoken.savings.context import Context, EnergyPrice
from pertoken.savings.sensitivity import under_load
from pertoken.state.fleet import Fleet
from pertoken.state.service import Demand, Service, Slo
from pertoken.units import NANO_USD

K = TypeVar("K")
MAX_TRAFFIC = 100.0
MAX_USD_PER_HOUR = 10_000.0
MAX_USD_PER_KWH = 10.0
SYNTAX = "traffic=1.5 price=H100=2.10 tariff=0.12 slo=chat:ttft_p95<800ms"
"""Example of a line with every assumption."""
NO_OVERHEAD = 1.0
"""Power usage effectiveness (PUE) if no price of electricity is configured."""
_OBJECTIVE = re.compile(r"(ttft|tpot)_(p50|p95)<=?([0-9]+(?:\.[0-9]+)?)(ms|s)")
_MS = {"ms": 1.0, "s": 1000.0}


@dataclass(frozen=True)
class WhatIf:
    """Assumptions of a plan that replace measured and configured values."""

    traffic: float = 1.0
    """Factor of the load of every service."""
    slo: Mapping[str, Slo] = field(default_factory=dict)
    """Objectives by service that replace the configured ones; a figure of None keeps the configured one."""
    prices: tuple[Price, ...] = ()
    """Prices that override the configured ones."""
    tariff_usd_per_kwh: float | None = None
    """Price of electricity that replaces the configured one."""

    def __bool__(self) -> bool:
        return self != WhatIf()

    def present(self, gathered: Present) -> Present:
        """Return the gathered fleet and evidence under these assumptions. Raises BadInput for an unknown service."""
        fleet = self._with_slo(gathered.fleet)
        context = self._with_tariff(gathered.context)
        if self.traffic == 1:
            return replace(gathered, fleet=fleet, context=context)
        return replace(
            gathered,
            fleet=replace(fleet, services=tuple(map(self._busier, fleet.services))),
            hosts=self._measured(gathered.hosts),
            windows={length_s: self._measured(measured) for length_s, measured in gathered.windows.items()},
            context=replace(
                context,
                deployments=self._measured(context.deployments),
                services=self._measured(context.services),
                devices=self._measured(context.devices),
            ),
        )

    def _with_tariff(self, context: Context) -> Context:
        if self.tariff_usd_per_kwh is None:
            return context
        pue = context.energy.pue if context.energy is not None else NO_OVERHEAD
        return replace(context, energy=EnergyPrice(round(self.tariff_usd_per_kwh * NANO_USD), pue))

    def _measured(self, evidence_by_key: Mapping[K, Evidence]) -> Mapping[K, Evidence]:
        return {key: under_load(evidence, self.traffic) for key, evidence in evidence_by_key.items()}

    def _with_slo(self, fleet: Fleet) -> Fleet:
        for name in self.slo:
            if name not in fleet.service_of:
                names = ", ".join(fleet.service_of) or "none"
                raise BadInput(f"--slo: there is no service {name!r}; services: {names}")
        changed = (
            replace(service, slo=_over(self.slo[service.name], service.slo)) if service.name in self.slo else service
            for service in fleet.services
        )
        return replace(fleet, services=tuple(changed)) if self.slo else fleet

    def _busier(self, service: Service) -> Service:
        demand: Demand = service.demand
        rate = demand.requests_per_s
        hours = tuple(
            None if requests_per_s is None else requests_per_s * self.traffic
            for requests_per_s in demand.requests_by_hour_of_week
        )
        more = None if rate is None else replace(rate, value=rate.value * self.traffic)
        return replace(service, demand=replace(demand, requests_per_s=more, requests_by_hour_of_week=hours))


def _over(requested: Slo, present: Slo) -> Slo:
    """Return the assumed objectives, completed by the configured ones."""
    return Slo(
        ttft_p50_ms=requested.ttft_p50_ms or present.ttft_p50_ms,
        ttft_p95_ms=requested.ttft_p95_ms or present.ttft_p95_ms,
        tpot_p50_ms=requested.tpot_p50_ms or present.tpot_p50_ms,
        tpot_p95_ms=requested.tpot_p95_ms or present.tpot_p95_ms,
    )


# -- parsing ---------------------------------------------------------------------------------------


def slo_of(text: str) -> tuple[str, Slo]:
    """Return the service and objectives of `chat:ttft_p95<800ms,tpot_p95<50ms`. Raises BadInput."""
    service, separator, objectives = text.rpartition(":")
    limits: dict[str, float] = {}
    for part in objectives.split(","):
        match = _OBJECTIVE.fullmatch(part.replace(" ", ""))
        if not separator or not service or match is None or float(match[3]) <= 0:
            raise BadInput(
                f"--slo {text!r}: write SERVICE:ttft_p95<800ms,tpot_p95<50ms; figures are ttft and tpot, each p50 or "
                "p95, and limits are above 0, in ms or s"
            )
        limits[f"{match[1]}_{match[2]}_ms"] = float(match[3]) * _MS[match[4]]
    return service, Slo(**limits)


def price_of(text: str) -> Price:
    """Return the price of `H100=2.10`, USD per device-hour, in force at any time. Raises BadInput."""
    selector, _, amount = text.rpartition("=")
    usd = _number(amount)
    if not selector.strip() or not 0 <= usd <= MAX_USD_PER_HOUR:
        raise BadInput(
            f"--price {text!r}: write DEVICE=USD, such as H100=2.10: words of a device's name, then dollars per "
            f"device-hour from 0 to {MAX_USD_PER_HOUR:,.0f}"
        )
    return Price(selector.strip(), round(usd * NANO_USD), 0)


def traffic_of(text: str) -> float:
    """Return the factor of `1.5`. Raises BadInput."""
    factor = _number(text)
    if not 0 < factor <= MAX_TRAFFIC:
        raise BadInput(f"--traffic {text!r}: use a number above 0 and up to {MAX_TRAFFIC:g}, such as 1.5")
    return factor


def tariff_of(text: str) -> float:
    """Return the US dollars per kilowatt-hour of `0.12`. Raises BadInput."""
    usd = _number(text)
    if not 0 < usd <= MAX_USD_PER_KWH:
        raise BadInput(f"--tariff {text!r}: use US dollars per kWh above 0 and up to {MAX_USD_PER_KWH:g}, such as 0.12")
    return usd


def _number(text: str) -> float:
    """Return a number; NaN, which is in no range, for other texts."""
    try:
        return float(text)
    except ValueError:
        return nan


def what_if_of(text: str) -> WhatIf:
    """Return the assumptions of a line such as `SYNTAX`; none for an empty line. Raises BadInput."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{text!r}: {error}") from None
    traffic, tariff = 1.0, None
    slo: dict[str, Slo] = {}
    prices: list[Price] = []
    for word in words:
        name, _, value = word.partition("=")
        if name == "traffic":
            traffic = traffic_of(value)
        elif name == "tariff":
            tariff = tariff_of(value)
        elif name == "price":
            prices.append(price_of(value))
        elif name == "slo":
            service, objectives = slo_of(value)
            slo[service] = objectives
        else:
            raise BadInput(f"{word!r} is not an assumption: use the form {SYNTAX}")
    return WhatIf(traffic, slo, tuple(prices), tariff)
