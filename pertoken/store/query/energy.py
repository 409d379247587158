"""Energy and power of devices by week."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, case, func, select

from pertoken.store.query.fast_rows import Rows
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rollup_tables import HOUR

WEEK_S = 7 * 86_400
MONDAY_S = 4 * 86_400
"""1970-01-05, the first Monday of the epoch."""


def weekly_energy(connection: Connection, device_ids: Collection[int]) -> Rows:
    """Return (device, start of the week, millijoules, milliseconds in which they were measured, sum and number of power
    samples in milliwatts), oldest first.

    Energy is that of the device's counter, else of its power over time. Weeks begin on Monday 00:00 UTC.
    """
    hours = t.device_rollup[HOUR]
    energy = func.coalesce(hours.c.energy_counter_mj, hours.c.energy_integral_mj)
    week = _week(hours.c.ts)
    sampled = func.coalesce(hours.c.power_mw_n, hours.c.samples)  # NULL: every sample had a value
    measured_ms = func.sum(case((energy.is_not(None), hours.c.duration_ms), else_=0))
    return connection.execute(
        select(
            hours.c.device_id,
            week,
            func.sum(energy),
            measured_ms,
            func.sum(hours.c.power_mw_sum),
            func.sum(case((hours.c.power_mw_sum.is_not(None), sampled))),
        )
        .where(hours.c.device_id.in_(list(device_ids)))
        .group_by(hours.c.device_id, week)
        .order_by(hours.c.device_id, week)
    ).all()


def weekly_plug_energy(connection: Connection, host_ids: Collection[int]) -> Rows:
    """Return (host, start of the week, millijoules at the plug, milliseconds of their measurement), oldest first."""
    hours = t.host_rollup[HOUR]
    week = _week(hours.c.ts)
    return connection.execute(
        select(hours.c.host_id, week, func.sum(hours.c.plug_mj), func.sum(hours.c.plug_ms))
        .where(hours.c.host_id.in_(list(host_ids)), hours.c.plug_ms > 0)
        .group_by(hours.c.host_id, week)
        .order_by(hours.c.host_id, week)
    ).all()


def _week(ts: Any) -> Any:
    return ((ts - MONDAY_S) // WEEK_S * WEEK_S + MONDAY_S).label("week")
