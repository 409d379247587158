"""Findings of `pertoken doctor` on a host where nothing is served yet."""

from collections.abc import Sequence
from typing import Protocol

from pertoken.costs.report.lines import FleetReport
from pertoken.text.words import literal


class Finding(Protocol):
    """One finding of `pertoken doctor`: something that works or is missing."""

    @property
    def area(self) -> str:
        """`host`, `device`, `engine`, `database`, `jobs` or `settings`."""
        ...

    @property
    def subject(self) -> str:
        """Name of the device, engine or other part."""
        ...

    @property
    def ok(self) -> bool:
        """True: it works; False: it is missing or cannot be read."""
        ...

    @property
    def text(self) -> str:
        """The finding as a sentence."""
        ...

    @property
    def remedy(self) -> str | None:
        """Sentence with what to do; None without a remedy."""
        ...


def finding_lines(
    findings: Sequence[Finding] | None, error: str | None, doing: str | None, report: FleetReport
) -> list[str]:
    """Return the findings as lines: what works, then what is missing, with remedies. Empty once something is served."""
    if report.deployments:
        return []
    if findings is None:
        failed = [] if error is None else [f"This host could not be examined: {literal(error)}"]
        return failed if doing is None else ["Examining this host: devices, drivers, inference servers, database…"]
    works = [finding for finding in findings if finding.ok]
    missing = sorted((finding for finding in findings if not finding.ok), key=lambda finding: finding.area != "engine")
    areas = ", ".join(dict.fromkeys(finding.area for finding in works))
    lines = [f"Examined this host: {len(missing)} missing or not readable; works: {areas or 'nothing'}."]
    for finding in missing:
        remedy = f"; {literal(finding.remedy)}" if finding.remedy else ""
        lines.append(f"✗ {literal(finding.area)} {literal(finding.subject)}: {literal(finding.text)}{remedy}")
    return [*lines, "`pertoken doctor` shows all findings."]
