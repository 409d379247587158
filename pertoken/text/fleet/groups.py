"""Groups of the rows of the fleet, and the engines that ended, which are no rows."""

from collections.abc import Sequence
from typing import Any

from pertoken.costs.report.lines import DeploymentLine, FleetReport
from pertoken.text.amounts import amount, headline, price
from pertoken.text.program.key_names import with_keys
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import UNKNOWN, ago, literal

GROUPS = ("service", "host", "tenant")
MANY_HOSTS = 4
"""With more hosts than this the fleet opens by host, because the devices do not fit on a screen."""
MAX_NAMED = 3


def first_group(report: FleetReport) -> str:
    """Return the group that the fleet opens with."""
    return "host" if len(report.hosts) > MANY_HOSTS else "service"


def next_group(group: str) -> str:
    """Return the group after `group`."""
    return GROUPS[(GROUPS.index(group) + 1) % len(GROUPS)]


def group_note(group: str, tenants: Any) -> str:
    """Return the line above the rows: their group, and why there are no rows yet."""
    if group != "tenant":
        return with_keys("By host. {group}: by tenant, then by model.")
    if tenants.value is None:
        return "By tenant: reading…" if tenants.error is None else f"By tenant: {literal(tenants.error)}"
    notes = "".join(f" {literal(note)}" for note in tenants.value.notes)
    return f"By tenant: whole hours, tokens of gateways.{notes}"


def running(report: FleetReport) -> Sequence[DeploymentLine]:
    """Return the running deployments; the sequence of the report itself if none ended."""
    lines = [line for line in report.deployments if not line.ended]
    return lines if len(lines) < len(report.deployments) else report.deployments


def _ended(report: FleetReport) -> list[DeploymentLine]:
    return [line for line in report.deployments if line.ended]


def ended_line(report: FleetReport) -> str | None:
    """Return one line about all engines that ended in the window; None if none ended."""
    ended = _ended(report)
    if not ended:
        return None
    dollars = [line.nano_usd for line in ended if line.nano_usd is not None]
    names = ", ".join(f"{literal(line.model)} on {literal(line.host)}" for line in ended[:MAX_NAMED])
    more = f" and {len(ended) - MAX_NAMED} more" if len(ended) > MAX_NAMED else ""
    cost = f", {amount(sum(dollars))} of the bill" if dollars else ""
    return f"{len(ended)} ended{cost}: {names}{more}"


def ended_sheet(report: FleetReport) -> Sheet:
    """Return a sheet of the engines that ended in the window."""
    facts = tuple(
        (
            f"{literal(line.model)} on {literal(line.host)}",
            f"last read {ago(line.age_s)}, {amount(line.nano_usd)} in the window, "
            f"{amount(price(line), UNKNOWN)} per {headline().unit}",
        )
        for line in _ended(report)
    )
    return sheet(Section("Engines that ended in the window", facts))
