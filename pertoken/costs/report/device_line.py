"""One device's, and one host's, line of a report."""

from typing import Any

from pertoken.costs.bill import Bill
from pertoken.costs.report.lines import DeviceLine, HostLine
from pertoken.metrics import RollUp, rolled
from pertoken.printable import natural_key
from pertoken.store.schema.shared import DEMO_MACHINE, IMPORTED_MACHINE, OTHER
from pertoken.units import SHARE
from pertoken.window.columns import mean, newest, rate, whole

_OTHERS = tuple(
    metric for metric in rolled(RollUp.GAUGE) if metric.stored not in ("util_1e4", "power_mw", "memory_used_bytes")
)
"""Gauges without a column of their own in the table of devices."""


def device_line(priced: Bill, row: Any) -> DeviceLine:
    """Return the line of a device by its row."""
    recent = priced.recent.devices.get(row.device_id)
    # A MIG device costs its part of what its GPU costs.
    payer = row.device_id if row.parent_id is None else row.parent_id
    part = SHARE if row.parent_id is None else row.part_1e6
    price = priced.price_of.get(payer) if part is not None else None
    per_hour = price.nano_usd_per_device_hour if price else None
    held_by = priced.recent.held_by.get(row.device_id, {})
    others = ((metric.stored, mean(recent, metric.stored, metric.per_unit)) for metric in _OTHERS)
    inventory = priced.inventory
    deployment_ids = [
        inventory.deployment_of.get(epoch_id, inventory.heads.get(epoch_id, 0)) for epoch_id in sorted(held_by)
    ]
    names = [inventory.newest[key].served_model for key in deployment_ids if key in inventory.newest]
    return DeviceLine(
        device_id=row.device_id,
        host=row.host_name,
        kind=row.kind,
        name=row.name,
        slot=row.slot,
        util=newest(recent, "device_util"),
        power_w=newest(recent, "power_w"),
        memory_used_bytes=whole(mean(recent, "memory_used_bytes", 1)),
        memory_bytes=row.memory_bytes,
        nano_usd_per_hour=None if per_hour is None else per_hour * part // SHARE,
        listed_price=price.note if price and price.listed else None,
        held_by=None
        if row.device_id in priced.recent.hidden and not held_by
        else tuple([*sorted(set(names), key=natural_key), *(["other processes"] if OTHER in held_by else [])]),
        age_s=priced.window.end - priced.recent.lost.get(row.device_id, priced.recent.newest_ts[row.device_id]),
        values={name: value for name, value in others if value is not None},
        power_source=row.power_source,
        part_of=priced.inventory.device_names.get(row.parent_id) if row.parent_id is not None else None,
    )


def host_line(priced: Bill, row: Any) -> HostLine:
    """Return the line of a host by its row."""
    recent = priced.recent.hosts.get(row.host_id)
    agent = priced.recent.agents.get(row.host_id)
    return HostLine(
        host_id=row.host_id,
        name=row.name,
        cpu_util=mean(recent, "cpu_util_1e4", 1e4),
        load=mean(recent, "load_1e2", 1e2),
        memory_used_bytes=whole(mean(recent, "memory_used_bytes", 1)),
        memory_bytes=row.memory_bytes,
        agent_cpu_share=agent.cpu_ms / agent.duration_ms
        if agent and agent.cpu_ms is not None and agent.duration_ms
        else None,
        agent_rss_bytes=agent.rss_bytes if agent else None,
        age_s=priced.window.end - row.newest_ts,
        interval_s=priced.inventory.intervals_s[row.host_id],
        memory_traffic_bytes_s=rate(recent._asdict(), "memory_traffic_bytes") if recent else None,
        imported=(row.machine_id or "").startswith(IMPORTED_MACHINE),
        generated=(row.machine_id or "").startswith(DEMO_MACHINE),
    )
