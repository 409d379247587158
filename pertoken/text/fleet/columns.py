"""Columns of the fleet: deployments, devices, hosts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport, HostLine, HostUse
from pertoken.metrics import DEVICE
from pertoken.text.amounts import amount, headline, price
from pertoken.text.columns import Column
from pertoken.text.words import (
    UNKNOWN,
    at_most,
    literal,
    number,
    observed,
    peak,
    percent,
    seconds,
    sparkline,
    stretched,
    watts,
)
from pertoken.units import format_bytes, format_count, format_duration
from pertoken.window.columns import STALE_TICKS

Line = DeploymentLine | DeviceLine | HostLine | HostUse
OneLine = TypeVar("OneLine", DeploymentLine, DeviceLine, HostLine, HostUse)
SPARK_CELLS = 15
ACTIVITY = {metric.stored: metric.heading for metric in DEVICE if metric.heading and metric.series != "device_util"}
"""Shares of devices with a column of their own, beside utilization."""
UNKNOWN_INTERVAL_S = 60
"""Interval assumed for a host that is not in the report."""


def staleness(report: FleetReport, older_s: float = 0.0) -> Callable[[Line], bool]:
    """Return a test for stale lines: older than a few intervals of their host's agent.

    `older_s` is the age of the report in seconds.
    """
    interval_s = {host.name: host.interval_s for host in report.hosts}

    def stale(line: Line) -> bool:
        name = line.name if isinstance(line, HostLine | HostUse) else line.host
        return line.age_s is None or line.age_s + older_s > STALE_TICKS * interval_s.get(name, UNKNOWN_INTERVAL_S)

    return stale


def present(
    name: str,
    rank: int,
    shown: Callable[[float | None], str],
    value: Callable[[OneLine], float | None],
    stale: Callable[[Line], bool],
) -> Column[OneLine]:
    """Return a column of a present figure: a stale line has none, its details have the last one."""

    def known(line: OneLine) -> float | None:
        return None if stale(line) else value(line)

    return Column(name, lambda line: shown(known(line)), rank, known)


def label(line: DeviceLine) -> str:
    """Return the name of a device as deployments list it: `NVIDIA H100 #3`."""
    return line.name if line.slot is None else f"{line.name} #{line.slot}"


def headline_price(line: DeploymentLine) -> str:
    """Return the price by the headline, with a star if unseen tokens make it an upper bound."""
    nano_usd = price(line)
    return amount(nano_usd) + ("*" if line.incomplete and nano_usd else "")


def busy_share(line: DeploymentLine) -> str:
    """Return the busy share of the engine: `12%`, or `≤12%` if it is an upper bound."""
    return (at_most if line.busy_is_bound else percent)(line.busy)


def deployment_columns(
    report: FleetReport, older_s: float = 0.0, advice: Mapping[int, int] | None = None
) -> tuple[Column[DeploymentLine], ...]:
    """Return the columns of deployments; state and seen are empty for fresh and fully observed lines."""
    window, stale = format_duration(report.window_s), staleness(report, older_s)
    columns: tuple[Column[DeploymentLine], ...] = (
        Column("model", lambda line: literal(line.model), 0, min_cells=11, keep_end=True),
        Column("state", lambda line: _state(stale, line, older_s), 2),
        Column(headline().caption, headline_price, 1, price),
        Column("seen", _seen, 2),
        present("tok/s", 3, format_count, lambda line: line.generated_tok_s_now, stale),
        Column("busy", busy_share, 4, lambda line: line.busy),
        Column(
            "run/wait now",
            lambda line: UNKNOWN if stale(line) else _queue(line),
            6,
            lambda line: None if stale(line) else line.running_now,
        ),
        Column("TTFT p95", lambda line: seconds(line.ttft_p95_s), 7, lambda line: line.ttft_p95_s),
        Column(
            f"tok/s in {window}, peak",
            lambda line: with_peak(line.spark, SPARK_CELLS),
            8,
            wide=lambda line, cells: stretched(line.spark, cells),
            is_plot=True,
        ),
        present("power", 9, watts, lambda line: line.power_w, stale),
        Column(
            "advice",
            lambda line: str((advice or {}).get(line.deployment_id) or ""),
            7,
            lambda line: (advice or {}).get(line.deployment_id, 0),
        ),
        Column("engine", lambda line: literal(line.engine), 9),
        Column("host", lambda line: literal(line.host), 5, min_cells=14),
        Column("devices", _devices, 10, min_cells=24, keep_end=True),
    )
    return columns if len(report.hosts) > 1 else tuple(column for column in columns if column.name != "host")


def device_columns(report: FleetReport, older_s: float = 0.0, *, last: bool = False) -> tuple[Column[DeviceLine], ...]:
    """Return the columns of devices; with `last`, a stale line keeps the figures of its last reading."""
    stale = staleness(report, older_s)
    silent = _never if last else stale
    columns: tuple[Column[DeviceLine], ...] = (
        Column("device", lambda line: literal(label(line)), 0, min_cells=14, keep_end=True),
        Column("state", lambda line: age(stale, line, older_s), 2),
        present("util", 3, percent, lambda line: line.util, silent),
        *(present(heading, 7, percent, partial(_value, stored), silent) for stored, heading in ACTIVITY.items()),
        present("power", 4, watts, lambda line: line.power_w, silent),
        Column(
            "memory",
            lambda line: UNKNOWN if silent(line) else _memory(line),
            6,
            lambda line: None if silent(line) else line.memory_used_bytes,
        ),
        present("$/hour", 1, usd_per_hour, lambda line: line.nano_usd_per_hour, silent),
        Column("used by", _used_by, 5, min_cells=13, keep_end=True),
        Column("host", lambda line: literal(line.host), 1, min_cells=14),
    )
    return columns if len(report.hosts) > 1 else tuple(column for column in columns if column.name != "host")


def host_columns(report: FleetReport, older_s: float = 0.0, *, last: bool = False) -> tuple[Column[HostLine], ...]:
    """Return the columns of hosts; with `last`, a stale line keeps the figures of its last reading."""
    stale = staleness(report, older_s)
    silent = _never if last else stale
    return (
        Column("host", lambda line: literal(line.name), 0, min_cells=10),
        Column("state", lambda line: age(stale, line, older_s), 1),
        present("CPU", 2, percent, lambda line: line.cpu_util, silent),
        present("load", 4, number, lambda line: line.load, silent),
        Column(
            "memory",
            lambda line: UNKNOWN if silent(line) else _memory(line),
            3,
            lambda line: None if silent(line) else line.memory_used_bytes,
        ),
        present("agent CPU", 5, percent, lambda line: line.agent_cpu_share, silent),
        Column(
            "agent memory",
            lambda line: UNKNOWN if silent(line) else format_bytes(line.agent_rss_bytes),
            6,
            lambda line: None if silent(line) else line.agent_rss_bytes,
        ),
    )


def usd_per_hour(nano_usd: float | None) -> str:
    """Return nano-USD an hour as dollars."""
    return amount(None if nano_usd is None else int(nano_usd))


def with_peak(values: Sequence[float | None], cells: int) -> str:
    """Return a sparkline followed by its highest value, the scale of the bars."""
    top = peak(values)
    return f"{sparkline(values, cells)} {top}" if top else ""


def age(stale: Callable[[Line], bool], line: Line, older_s: float) -> str:
    """Return `stale 21s` for a stale line, else an empty text."""
    if not stale(line):
        return ""
    return "stale, never read" if line.age_s is None else f"stale {format_duration(line.age_s + older_s)}"


def _value(stored: str, line: DeviceLine) -> float | None:
    return line.values.get(stored)


def _state(stale: Callable[[Line], bool], line: DeploymentLine, older_s: float) -> str:
    return ", ".join(filter(None, ("fault" if line.fault else "", age(stale, line, older_s))))


def _never(_: Line) -> bool:
    return False


def _seen(line: DeploymentLine) -> str:
    """Return the observed share of the window; empty if all of it was observed."""
    share = observed(line.coverage)
    return "" if share == "100%" else share


def _queue(line: DeploymentLine) -> str:
    if line.running_now is None and line.waiting_now is None:
        return UNKNOWN
    return f"{number(line.running_now)}/{number(line.waiting_now)}"


def _devices(line: DeploymentLine) -> str:
    return literal(", ".join(line.devices)) or UNKNOWN


def _used_by(line: DeviceLine) -> str:
    return UNKNOWN if line.held_by is None else literal(", ".join(line.held_by)) or "nothing"


def _memory(line: DeviceLine | HostLine) -> str:
    if line.memory_used_bytes is None and line.memory_bytes is None:
        return UNKNOWN
    return f"{format_bytes(line.memory_used_bytes)} of {format_bytes(line.memory_bytes)}"
