"""Inputs of pricing beside two fleets: evidence, prices, the market, and settings that bind every change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from pertoken.catalog.market import Market
from pertoken.catalog.offers import Offer
from pertoken.evidence import Evidence
from pertoken.savings.forecasts import Forecasts
from pertoken.savings.saving import NOTHING as NOTHING
from pertoken.savings.saving import Money as Money
from pertoken.state.service import Slo


@dataclass(frozen=True, slots=True)
class EnergyPrice:
    """Price of a kilowatt-hour for the owner of the hardware."""

    nano_usd_per_kwh: int
    pue: float
    """Power usage effectiveness: facility energy over device energy, 1 or more."""


@dataclass(frozen=True, slots=True)
class Context:
    """Evidence and prices of one advice run."""

    market: Market
    now_ts: int
    """Epoch seconds, UTC: commitments that ended before are over; listed prices age against it."""
    deployments: Mapping[int, Evidence] = field(default_factory=dict)
    """Evidence by deployment id."""
    services: Mapping[str, Evidence] = field(default_factory=dict)
    """Evidence of the sum of each service's deployments, minute by minute, by service name."""
    devices: Mapping[int, Evidence] = field(default_factory=dict)
    """Evidence by device id."""
    nano_usd_per_hour: Mapping[int, int | None] = field(default_factory=dict)
    """Price by device id, in force now; of a partition its share of the device's. None where no price is set."""
    slo: Slo = field(default_factory=Slo)
    """Objectives of services that have none of their own."""
    listed: Mapping[int, str] = field(default_factory=dict)
    """By device id, whose list price it is, of when and with what marks, where nobody set a price."""
    priced_by: Mapping[int, Offer] = field(default_factory=dict)
    """The list price itself, for the same device ids."""
    allowed_regions: frozenset[str] = frozenset()
    """Regions that a service may move to, beside the one it runs in."""
    token_apis: frozenset[str] = frozenset()
    """Serverless APIs whose answers a person compared, and that prompts may be sent to."""
    energy: EnergyPrice | None = None
    destination_end: int | None = None
    """End of the interval of prices elsewhere at which the likely bill is: 0 (low) or 2 (high); None: its middle."""
    forecasts: Forecasts = field(default_factory=Forecasts, compare=False, repr=False)
    """Those of this run."""

    @property
    def today(self) -> date:
        """The day of `now_ts`, UTC."""
        return datetime.fromtimestamp(self.now_ts, UTC).date()

    def evidence(self, deployment_id: int) -> Evidence:
        """Return what was measured on a deployment; nothing for one that does not run yet."""
        seen = self.deployments.get(deployment_id)
        return Evidence({}) if seen is None else seen
