"""Groups of the rows of the fleet, and the engines that ended, which are no rows."""

from collections.abc import Sequence
from typing import Any

from pertoken.costs.report.lines import DeploymentLine, FleetReport
from pertoken.text.amounts import amount, headline, price
from pertoken.text.program.key_names import with_keys
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import UNKNOWN, ago, literal

GROUPS = ("service", "host", "tenant")
"""Groups that every fleet has; bases of owners come after them."""
MANY_HOSTS = 4
"""With more hosts than this the fleet opens by host, because the devices do not fit on a screen."""
MAX_NAMED = 3


def first_group(report: FleetReport) -> str:
    """Return the group that the fleet opens with."""
    return "host" if len(report.hosts) > MANY_HOSTS else "service"


def next_group(group: str, bases: Sequence[str]) -> str:
    """Return the group after `group`. `bases`: by which deployments have an owner; known once a bill was divided."""
    groups = (*GROUPS, *bases)
    return groups[(groups.index(group) + 1) % len(groups)] if group in groups else GROUPS[0]


def group_note(group: str, spend: Any) -> str:
    """Return the line above the rows: their group, and why there are no rows yet. `spend`: the reading of the bill."""
    if group not in ("service", "host"):
        return _spend_note(group, spend)
    return with_keys("By host. {group}: by tenant, then by model.")


def _spend_note(group: str, spend: Any) -> str:
    title = f"By {literal(group)}"
    if spend.value is None or spend.value.by != group:
        return f"{title}: reading…" if spend.error is None else f"{title}: {literal(spend.error)}"
    notes = "".join(f" {literal(note)}" for note in spend.value.notes)
    groups = ("tenant", *spend.value.bases)
    following = "".join(f" {{group}}: by {literal(name)}." for name in groups[groups.index(group) + 1 :][:1])
    tokens = "tokens of gateways" if group == "tenant" else "tokens of engines"
    return f"{title}: whole hours, {tokens}.{notes}{with_keys(following)}"


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
