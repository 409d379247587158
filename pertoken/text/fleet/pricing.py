"""The device of a row that has no price."""

from collections.abc import Sequence

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport, HostUse

MAX_USD_PER_HOUR = 10_000
"""Highest price that is accepted; a higher one is taken for a typing error."""
PRICED = "This row has a price; `pertoken prices set` changes it, and shows first which past costs change with it."
WITHOUT_DEVICES = "Prices belong to devices: select a host, a device, or a server that runs on one."


def why_not_priced(line: object, report: FleetReport) -> str | None:
    """Return the reason why no price can be entered on a row; None if one can."""
    if not _devices(line, report):
        return WITHOUT_DEVICES
    return PRICED if unpriced_device(line, report) is None else None


def unpriced_device(line: object, report: FleetReport) -> str | None:
    """Return the name in `pertoken prices` of the first device of a row without a price; None if there is none."""
    unpriced = next((device for device in _devices(line, report) if device.nano_usd_per_hour is None), None)
    if unpriced is None:
        return None
    return "cpu" if unpriced.kind == "cpu" else unpriced.name


def _devices(line: object, report: FleetReport) -> Sequence[DeviceLine]:
    """Return the devices whose prices make the dollars of a row: of a host with accelerators not its CPUs."""
    if isinstance(line, DeviceLine):
        return [line]
    if isinstance(line, DeploymentLine):
        return [device for device in report.devices if device.host == line.host and _labelled(device) in line.devices]
    if isinstance(line, HostUse):
        devices = [device for device in report.devices if device.host == line.name]
        return [device for device in devices if device.kind != "cpu"] or devices
    return []


def _labelled(line: DeviceLine) -> str:
    return line.name if line.slot is None else f"{line.name} #{line.slot}"
