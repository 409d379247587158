"""Tables and roll-ups of each type of sample."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any

from sqlalchemy import Table

from pertoken.store.schema import rows
from pertoken.store.schema import telemetry as t


@dataclass(frozen=True, eq=False)
class Stored:
    """Table of one type of sample, and the roll-up that its rows make dirty (None: none)."""

    table: Table
    rollup: str | None
    values: Callable[[Any], tuple[Any, ...]]
    """Columns of the table in their order, of one sample."""

    @cached_property
    def key(self) -> Callable[[tuple[Any, ...]], Any]:
        """Primary key of a row."""
        names = [column.name for column in self.table.columns]
        return itemgetter(*(names.index(column.name) for column in self.table.primary_key))

    @cached_property
    def owner_and_ts(self) -> Callable[[tuple[Any, ...]], tuple[int, int]]:
        """Owner and time of a row."""
        return itemgetter(0, [column.name for column in self.table.columns].index("ts"))


def _stored(table: Table, rollup: str | None, whole: str | None = None) -> Stored:
    names = [column.name for column in table.columns]
    get: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
    if whole is None:
        return Stored(table, rollup, get)
    # A value with a type of its own is stored, and summed, as the integer it is.
    at = names.index(whole)

    def values(sample: Any) -> tuple[Any, ...]:
        row = get(sample)
        return (*row[:at], int(row[at]), *row[at + 1 :])

    return Stored(table, rollup, values)


SAMPLES = {
    rows.DeviceSample: _stored(t.device_sample, "device"),
    rows.HostSample: _stored(t.host_sample, "host"),
    rows.AgentSample: _stored(t.agent_sample, None),
    rows.DeploymentSample: _stored(t.deployment_sample, "deployment", whole="complete"),
    rows.DeviceShare: _stored(t.device_share, "share", whole="provenance"),
    rows.HistogramSample: _stored(t.histogram_sample, "histogram"),
    rows.EngineCounterSample: _stored(t.engine_counter_sample, "engine_counter"),
}
