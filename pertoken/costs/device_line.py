"""One device's, and one host's, line of a report."""

from typing import Any

from pertoken.costs.figures import mean, rate, whole
from pertoken.costs.lines import DeviceLine, HostLine
from pertoken.costs.seen import Seen
from pertoken.store.telemetry import OTHER
from pertoken.units import SHARE


def device_line(seen: Seen, row: Any) -> DeviceLine:
    """The line of a device by its row."""
    recent = seen.recent_devices.get(row.device_id)
    # A MIG device costs its part of what its GPU costs.
    payer = row.device_id if row.parent_id is None else row.parent_id
    part_1e6 = SHARE if row.parent_id is None else row.part_1e6
    price = seen.price(payer) if payer in seen.devices and part_1e6 is not None else None
    per_hour = price.nano_usd_per_device_hour if price else None
    held_by = seen.held_by.get(row.device_id, {})
    holders = [seen.of_epoch.get(each, seen.led.get(each)) for each in sorted(held_by)]
    names = [seen.current[each].served_model for each in holders if each in seen.current]
    return DeviceLine(
        device_id=row.device_id,
        host=row.host_name,
        kind=row.kind,
        name=row.name,
        slot=row.slot,
        util=mean(recent, "util_1e4", 1e4),
        power_w=mean(recent, "power_mw", 1e3),
        memory_used_bytes=whole(mean(recent, "memory_used_bytes", 1)),
        memory_bytes=row.memory_bytes,
        nano_usd_per_hour=None if per_hour is None else per_hour * part_1e6 // SHARE,
        listed_price=price.note if price and price.listed else None,
        held_by=None
        if row.device_id in seen.hidden and not held_by
        else tuple([*dict.fromkeys(names), *(["other processes"] if OTHER in held_by else [])]),
        age_s=seen.now - seen.lost.get(row.device_id, row.newest_ts),
        sm_active=mean(recent, "sm_active_1e4", 1e4),
        sm_occupancy=mean(recent, "sm_occupancy_1e4", 1e4),
        tensor_active=mean(recent, "tensor_active_1e4", 1e4),
        dram_active=mean(recent, "dram_active_1e4", 1e4),
        nvlink_rx_bytes_s=mean(recent, "nvlink_rx_mib_s", 2**-20),
        nvlink_tx_bytes_s=mean(recent, "nvlink_tx_mib_s", 2**-20),
        sm_clock_mhz=mean(recent, "sm_clock_mhz", 1),
        temperature_c=mean(recent, "temperature_c", 1),
        power_source=row.power_source,
        part_of=seen.device_names.get(row.parent_id) if row.parent_id is not None else None,
    )


def host_line(seen: Seen, row: Any) -> HostLine:
    """The line of a host by its row."""
    recent = seen.recent_hosts.get(row.host_id)
    agent = seen.agents.get(row.host_id)
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
        age_s=seen.now - row.newest_ts,
        interval_s=seen.intervals[row.host_id],
        memory_traffic_bytes_s=rate(recent._asdict(), "memory_traffic_bytes") if recent else None,
    )
