"""Which device a row lacks a price of."""

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport, HostUse

MAX_USD_PER_HOUR = 10_000
"""Above it a price of one device is a slip of the hand."""
PRICED = "It has a price; `pertoken prices set` changes it, and shows first which past costs that changes."


def unpriced_device(line: object, report: FleetReport) -> str | None:
    """Return what `pertoken prices` calls the first device of a row that has no price; None if each has one."""
    if isinstance(line, DeviceLine):
        devices = [line]
    elif isinstance(line, DeploymentLine):
        devices = [each for each in report.devices if each.host == line.host and _labelled(each) in line.devices]
    elif isinstance(line, HostUse):
        devices = [each for each in report.devices if each.host == line.name and each.kind != "cpu"]
    else:
        return None
    found = next((each for each in devices if each.nano_usd_per_hour is None), None)
    if found is None:
        return None
    return "cpu" if found.kind == "cpu" else found.name


def _labelled(line: DeviceLine) -> str:
    return line.name if line.slot is None else f"{line.name} #{line.slot}"
