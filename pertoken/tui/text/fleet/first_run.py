"""What the doctor found on a host where nothing is served yet."""

from collections.abc import Sequence
from typing import Protocol

from pertoken.costs.report.lines import FleetReport
from pertoken.tui.text.words import literal


class Finding(Protocol):
    """One thing that works or does not, as `pertoken doctor` finds it."""

    @property
    def area(self) -> str:
        """`host`, `device`, `engine`, `database`, `jobs` or `settings`."""
        ...

    @property
    def subject(self) -> str:
        """What it is about."""
        ...

    @property
    def ok(self) -> bool:
        """Whether it works."""
        ...

    @property
    def text(self) -> str:
        """What was found."""
        ...

    @property
    def remedy(self) -> str | None:
        """How to switch it on."""
        ...


def finding_lines(
    findings: Sequence[Finding] | None, error: str | None, doing: str | None, report: FleetReport
) -> list[str]:
    """Return what was looked for on this host and what is missing, with its remedy; none once something is served."""
    if report.deployments:
        return []
    if findings is None:
        failed = [] if error is None else [f"This host could not be examined: {literal(error)}"]
        return failed if doing is None else ["Examining this host: devices, drivers, inference servers, database…"]
    works = [each for each in findings if each.ok]
    missing = sorted((each for each in findings if not each.ok), key=lambda each: each.area != "engine")
    areas = ", ".join(dict.fromkeys(each.area for each in works))
    lines = [f"Looked at this host: {len(missing)} missing or not readable; works: {areas or 'nothing'}."]
    for each in missing:
        remedy = f"; {literal(each.remedy)}" if each.remedy else ""
        lines.append(f"✗ {literal(each.area)} {literal(each.subject)}: {literal(each.text)}{remedy}")
    return [*lines, "`pertoken doctor` shows all of it."]
