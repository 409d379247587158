"""FOCUS 1.4 rows: each device-day split by allocation (data-generator-calculated split cost allocation).

https://focus.finops.org/focus-specification/

Front door: `focus_rows`, `columns` and `energy_by_day`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import groupby

from pertoken.config import Settings
from pertoken.costs.fleet import service_name
from pertoken.costs.lines import BUSY, IDLE, OTHER_WORK, UNALLOCATED, AllocatedLine
from pertoken.costs.month import month_of
from pertoken.printable import csv_cell
from pertoken.reports.figures import DAY, Period, ReportFigures
from pertoken.reports.markdown import dollars, utc
from pertoken.store.connect.open import Store
from pertoken.store.query.read import KnownEpoch
from pertoken.units import HOUR_MS, NANO_USD, apportion
from pertoken.window.energy import EpochEnergy
from pertoken.window.reading import Window

VERSION = "1.4"


@dataclass(frozen=True, slots=True)
class FocusColumn:
    """One column."""

    name: str
    level: str
    """`mandatory`, `conditional` or `recommended` by FOCUS; `own` with the prefix `x_`."""
    nullable: bool
    type: str


@cache
def columns() -> tuple[FocusColumn, ...]:
    """Return the columns in their order."""
    text = (files("pertoken.reports") / "focus_columns.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(FocusColumn(row["column"], row["level"], row["nulls"] == "yes", row["type"]) for row in rows)


DailyEnergy = Mapping[tuple[int, int], EpochEnergy]
"""(first instant of the day in the period, epoch) -> energy of its devices."""


def energy_by_day(store: Store, period: Period) -> DailyEnergy:
    """Read the energy of each day of a period. Raises StoreError."""
    daily: dict[tuple[int, int], EpochEnergy] = {}
    with store.read() as connection:
        for day in period.days():
            start, end = max(day, period.start), min(day + DAY, period.end)
            dated = period.dated or end < period.end
            for epoch_id, energy in Window(connection, start, end, dated=dated).energy().items():
                daily[start, epoch_id] = energy
    return daily


METHOD = "pertoken-device-time-1"
"""Split by the time for which a device was allocated to each deployment, busy and idle apart."""
PROVIDERS = {"aws": "AWS", "gcp": "Google Cloud", "azure": "Microsoft"}
SELF_HOSTED = "Self-hosted"
RATIO = 10**12
JOULES_PER_KWH = 3_600_000
PURCHASES = {"on_demand": "Standard", "spot": "Dynamic", "reserved": "Standard", "owned": "Other"}
"""Pricing category by purchase; the discount of a reservation is in its price, without a row of its own."""
_DESCRIPTIONS = {
    BUSY: "worked for",
    IDLE: "reserved by and idle for",
    OTHER_WORK: "used by another program than an inference server",
    UNALLOCATED: "not allocated",
}

Row = Mapping[str, str]
"""Text by column; empty is null."""


def focus_csv(report: ReportFigures, settings: Settings, energy: DailyEnergy) -> str:
    """Return the rows as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [column.name for column in columns()], lineterminator="\n")
    writer.writeheader()
    writer.writerows(focus_rows(report, settings, energy))
    return out.getvalue()


def focus_rows(report: ReportFigures, settings: Settings, energy: DailyEnergy) -> Iterator[Row]:
    """Yield the rows by day and device."""
    counts, owners = _Counts(report, energy), _owners(report)
    for (start, device_id), group in groupby(report.charges.lines, key=lambda line: (line.start_ts, line.device_id)):
        lines = list(group)
        origin = _origin(report, settings, start, device_id, lines)
        nano = [line.nano_usd for line in lines]
        device_hours = -(-report.charges.time_ms[start, device_id] * NANO_USD // HOUR_MS)
        hours, ratios = apportion(device_hours, nano), apportion(RATIO, nano)
        for line, part, ratio in zip(lines, hours, ratios, strict=True):
            cost, quantity = dollars(line.nano_usd), dollars(part)
            details = {"AllocatedRatio": ratio / RATIO, "UsageUnit": "Hours", "UsageQuantity": part / NANO_USD}
            yield {
                **origin,
                **_allocated(report, settings, line, owners),
                **counts.of(line),
                "AllocatedMethodId": METHOD,
                "AllocatedMethodDetails": json.dumps({"Elements": [details]}),
                **dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), cost),
                "PricingQuantity": quantity,
                "ConsumedQuantity": quantity,
                "x_OriginCost": dollars(sum(nano)),
            }


def _origin(
    report: ReportFigures, settings: Settings, start: int, device_id: int, lines: Sequence[AllocatedLine]
) -> dict[str, str]:
    """Return the columns of the origin charge, which its parts share."""
    device = report.inventory.devices[device_id]
    host = report.inventory.host.get(device.host_id)
    configured = next((host for host in settings.hosts if host.name == device.host_name), None)
    provider = (configured and configured.provider) or (host.cloud if host is not None else None)
    region = (configured and configured.region) or (host.region if host is not None else None) or ""
    purchase = (configured and configured.purchase) or (host.purchase if host is not None else None)
    name = PROVIDERS.get(provider or "", provider or SELF_HOSTED)
    month_start, month_end = month_of(start)
    resource = f"{configured.resource_id if configured and configured.resource_id else device.host_name}/{device.uuid}"
    return {
        "BillingAccountId": "self-hosted-inference",
        "BillingAccountName": "Self-hosted inference",
        "BillingCurrency": "USD",
        "BillingPeriodStart": utc(month_start),
        "BillingPeriodEnd": utc(month_end),
        "ChargePeriodStart": utc(start),
        "ChargePeriodEnd": utc(lines[0].end_ts),
        "ChargeCategory": "Usage",
        "ChargeClass": "",
        "CommitmentDiscountStatus": "",
        "InvoiceId": "",
        "InvoiceDetailId": "",
        "ChargeFrequency": "Usage-Based",
        **dict.fromkeys(("HostProviderName", "InvoiceIssuerName", "ServiceProviderName"), csv_cell(name)),
        "PricingCategory": PURCHASES.get(purchase or "", "Other"),
        "PricingUnit": "Hours",
        "ConsumedUnit": "Hours",
        "RegionId": csv_cell(region),
        "RegionName": csv_cell(region),
        "ResourceId": csv_cell(resource),
        "ResourceName": csv_cell(report.inventory.device_names[device_id]),
        "ResourceType": "CPU" if device.kind == "cpu" else "GPU",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "ServiceName": "LLM inference",
        "Tags": json.dumps({"host": device.host_name}),
        "x_HostName": csv_cell(device.host_name),
        "x_OriginChargeId": csv_cell(f"{device.uuid}/{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H}"),
    }


def _allocated(
    report: ReportFigures, settings: Settings, line: AllocatedLine, owners: Mapping[int, Mapping[str, str]]
) -> dict[str, str]:
    """Return the columns of the allocation of a charge."""
    use, epoch_id = line.use, line.epoch_id
    device = report.inventory.device_names[line.device_id]
    what = f"{device} {_DESCRIPTIONS[use]}"
    if epoch_id is None:
        return {
            "AllocatedResourceId": use,
            "AllocatedResourceName": use,
            "AllocatedTags": json.dumps({"use": use}),
            "ChargeDescription": csv_cell(what),
            "x_Use": use,
            **dict.fromkeys(("x_Model", "x_Service", "x_Engine"), ""),
        }
    row = _deployment(report, epoch_id)
    service = service_name(row.served_model, settings)
    tags = {"model": row.served_model, "service": service, "use": use, **owners.get(epoch_id, {})}
    return {
        "AllocatedResourceId": f"{row.deployment_id % 2**64:016x}",
        "AllocatedResourceName": csv_cell(f"{row.served_model} on {row.host_name}"),
        "AllocatedTags": json.dumps(tags),
        "ChargeDescription": csv_cell(f"{what} {row.served_model}"),
        "x_Use": use,
        "x_Model": csv_cell(row.served_model),
        "x_Service": csv_cell(service),
        "x_Engine": csv_cell(row.engine_kind),
    }


def _owners(report: ReportFigures) -> dict[int, dict[str, str]]:
    """Return the owners of each epoch by basis, as tags."""
    tags: dict[int, dict[str, str]] = {}
    for spend in report.owners:
        for epoch_id, owner in report.inventory.owners(spend.by).items():
            if owner is not None:
                tags.setdefault(epoch_id, {})[spend.by] = owner
    return tags


def _deployment(report: ReportFigures, epoch_id: int) -> KnownEpoch:
    """Return the row of an epoch; for a worker rank that of its head rank."""
    head = report.inventory.heads.get(epoch_id)
    if head is not None and head in report.inventory.newest:
        return report.inventory.newest[head]
    return next(row for row in report.inventory.epochs if row.epoch_id == epoch_id)


class _Counts:
    """Tokens and energy of lines: sums of an epoch and day, split among its devices in proportion to dollars."""

    def __init__(self, report: ReportFigures, energy: DailyEnergy) -> None:
        self._of: dict[AllocatedLine, dict[str, str]] = {}
        by_epoch: dict[tuple[int, int], list[AllocatedLine]] = {}
        for line in report.charges.lines:
            if line.epoch_id is not None:
                by_epoch.setdefault((line.start_ts, line.epoch_id), []).append(line)
        for key, lines in by_epoch.items():
            tokens = None if key[1] in report.inventory.heads else report.charges.tokens.get(key)
            joules = energy.get(key)
            worked = [line for line in lines if line.use == BUSY] or lines
            columns = (("x_PromptTokens", "prompt"), ("x_CachedTokens", "cached"), ("x_GeneratedTokens", "generated"))
            for column, name in columns:
                count = None if tokens is None else getattr(tokens, name)
                if count is not None:
                    self._split(column, count, worked, str)
            if joules is not None and joules.measured_ms:
                nano_kwh = round(joules.joules / JOULES_PER_KWH * NANO_USD)
                self._split("x_MeasuredEnergyKwh", nano_kwh, lines, dollars)

    def _split(self, column: str, count: int, lines: Sequence[AllocatedLine], text: Callable[[int], str]) -> None:
        for line, part in zip(lines, apportion(count, [charge.nano_usd for charge in lines]), strict=True):
            self._of.setdefault(line, {})[column] = text(part)

    def of(self, line: AllocatedLine) -> Mapping[str, str]:
        """Return the counts of a line; unknown counts are left out."""
        return self._of.get(line, {})
