"""Columns of the fleet: deployments, devices, hosts."""

from collections.abc import Callable

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport, HostLine
from pertoken.tui.text.columns import Column
from pertoken.tui.text.words import UNKNOWN, ago, at_most, literal, number, observed, percent, seconds, sparkline, watts
from pertoken.units import format_bytes, format_count, format_duration, format_usd
from pertoken.window.inventory import STALE_TICKS

Line = DeploymentLine | DeviceLine | HostLine
SPARK_CELLS = 15
UNKNOWN_INTERVAL_S = 60
"""Of the ticks of a host that is not in the report."""


def staleness(report: FleetReport) -> Callable[[Line], bool]:
    """Tells of a line whether nothing was heard of it for longer than its host's ticks explain."""
    interval_s = {host.name: host.interval_s for host in report.hosts}

    def stale(line: Line) -> bool:
        name = line.name if isinstance(line, HostLine) else line.host
        return line.age_s is None or line.age_s > STALE_TICKS * interval_s.get(name, UNKNOWN_INTERVAL_S)

    return stale


def label(line: DeviceLine) -> str:
    """A device as deployments name it: `NVIDIA H100 #3`."""
    return line.name if line.slot is None else f"{line.name} #{line.slot}"


def usd_per_mtok(line: DeploymentLine) -> str:
    """Its price of a million tokens, with a star where unseen tokens make it an upper bound."""
    return format_usd(line.nano_usd_per_mtok) + ("*" if line.incomplete and line.nano_usd_per_mtok else "")


def busy_share(line: DeploymentLine) -> str:
    """How busy its engine was; `≤12%` where that is an upper bound."""
    return (at_most if line.busy_is_bound else percent)(line.busy)


def deployment_columns(report: FleetReport) -> tuple[Column[DeploymentLine], ...]:
    """Deployments; state, and how much was seen, only show up where they are worth a word."""
    window, stale = format_duration(report.window_s), staleness(report)
    columns: tuple[Column[DeploymentLine], ...] = (
        Column("model", lambda line: literal(line.model), 0, least=11, keep_end=True),
        Column("state", lambda line: _state(stale, line), 2),
        Column("$/Mtok", usd_per_mtok, 1, lambda line: line.nano_usd_per_mtok),
        Column("seen", _seen, 2),
        Column("tok/s", lambda line: format_count(line.generated_tok_s_now), 3, lambda line: line.generated_tok_s_now),
        Column("busy", busy_share, 4, lambda line: line.busy),
        Column("run/wait", _queue, 6, lambda line: line.running_now),
        Column("TTFT p95", lambda line: seconds(line.ttft_p95_s), 7, lambda line: line.ttft_p95_s),
        Column(f"tok/s in {window}", lambda line: sparkline(line.spark, SPARK_CELLS), 8),
        Column("engine", lambda line: literal(line.engine), 9),
        Column("host", lambda line: literal(line.host), 5, least=6),
        Column("devices", _devices, 10, least=24, keep_end=True),
    )
    return columns if len(report.hosts) > 1 else tuple(column for column in columns if column.name != "host")


def device_columns(report: FleetReport) -> tuple[Column[DeviceLine], ...]:
    """Devices."""
    stale = staleness(report)
    columns: tuple[Column[DeviceLine], ...] = (
        Column("device", lambda line: literal(label(line)), 0, least=14, keep_end=True),
        Column("state", lambda line: _age(stale, line), 2),
        Column("util", lambda line: percent(line.util), 3, lambda line: line.util),
        Column("power", lambda line: watts(line.power_w), 4, lambda line: line.power_w),
        Column("memory", _memory, 6, lambda line: line.memory_used_bytes),
        Column("$/hour", lambda line: format_usd(line.nano_usd_per_hour), 1, lambda line: line.nano_usd_per_hour),
        Column("held by", _held, 5, least=13, keep_end=True),
        Column("host", lambda line: literal(line.host), 2, least=6),
    )
    return columns if len(report.hosts) > 1 else tuple(column for column in columns if column.name != "host")


def host_columns(report: FleetReport) -> tuple[Column[HostLine], ...]:
    """Hosts."""
    stale = staleness(report)
    return (
        Column("host", lambda line: literal(line.name), 0, least=10),
        Column("state", lambda line: _age(stale, line), 1),
        Column("CPU", lambda line: percent(line.cpu_util), 2, lambda line: line.cpu_util),
        Column("load", lambda line: number(line.load), 4, lambda line: line.load),
        Column("memory", _memory, 3, lambda line: line.memory_used_bytes),
        Column("agent CPU", lambda line: percent(line.agent_cpu_share), 5, lambda line: line.agent_cpu_share),
        Column("agent memory", lambda line: format_bytes(line.agent_rss_bytes), 6, lambda line: line.agent_rss_bytes),
    )


def _age(stale: Callable[[Line], bool], line: Line) -> str:
    return ago(line.age_s) if stale(line) else ""


def _state(stale: Callable[[Line], bool], line: DeploymentLine) -> str:
    return ", ".join(filter(None, ("fault" if line.fault else "", _age(stale, line))))


def _seen(line: DeploymentLine) -> str:
    """How much of the window its figures are of, where that is not all."""
    share = observed(line.coverage)
    return "" if share == "100%" else share


def _queue(line: DeploymentLine) -> str:
    if line.running_now is None and line.waiting_now is None:
        return UNKNOWN
    return f"{number(line.running_now)}/{number(line.waiting_now)}"


def _devices(line: DeploymentLine) -> str:
    return literal(", ".join(line.devices)) or UNKNOWN


def _held(line: DeviceLine) -> str:
    return UNKNOWN if line.held_by is None else literal(", ".join(line.held_by)) or "nothing"


def _memory(line: DeviceLine | HostLine) -> str:
    if line.memory_used_bytes is None and line.memory_bytes is None:
        return UNKNOWN
    return f"{format_bytes(line.memory_used_bytes)} of {format_bytes(line.memory_bytes)}"
