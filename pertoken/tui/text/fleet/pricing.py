"""The device of a row that has no price."""

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport, HostUse

MAX_USD_PER_HOUR = 10_000
"""Highest price that is accepted; a higher one is taken for a typing error."""
PRICED = "This row has a price; `pertoken prices set` changes it, and shows first which past costs change with it."


def unpriced_device(line: object, report: FleetReport) -> str | None:
    """Return the name in `pertoken prices` of the first device of a row without a price; None if all have one."""
    if isinstance(line, DeviceLine):
        devices = [line]
    elif isinstance(line, DeploymentLine):
        devices = [
            device for device in report.devices if device.host == line.host and _labelled(device) in line.devices
        ]
    elif isinstance(line, HostUse):
        devices = [device for device in report.devices if device.host == line.name and device.kind != "cpu"]
    else:
        return None
    unpriced = next((device for device in devices if device.nano_usd_per_hour is None), None)
    if unpriced is None:
        return None
    return "cpu" if unpriced.kind == "cpu" else unpriced.name


def _labelled(line: DeviceLine) -> str:
    return line.name if line.slot is None else f"{line.name} #{line.slot}"
