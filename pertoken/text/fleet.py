"""Text of the fleet: tables, charts and notes of hosts, devices and deployments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pertoken.costs.ledger import BillTotal
from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport, HostLine, HostUse
from pertoken.metrics import DEVICE
from pertoken.proof.recommendation import Recommendation
from pertoken.text.advice_table import open_advice
from pertoken.text.amounts import amount, caption, headline, no_rate, price
from pertoken.text.columns import Column
from pertoken.text.keys import key_name, with_keys
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import (
    UNKNOWN,
    ago,
    at_least,
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
from pertoken.window.figures import STALE_TICKS

if TYPE_CHECKING:
    from pertoken.advisor.plan.plan import Plan
    from pertoken.costs.spend import Spend
    from pertoken.proof.judging.receipts import Banked


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
    return fresh(name, rank, lambda line: shown(value(line)), value, stale)


def fresh(
    name: str,
    rank: int,
    text: Callable[[OneLine], str],
    value: Callable[[OneLine], float | None],
    stale: Callable[[Line], bool],
) -> Column[OneLine]:
    """Return a column as `present` does, with the text of a line instead of its figure."""
    return Column(
        name,
        lambda line: UNKNOWN if stale(line) else text(line),
        rank,
        lambda line: None if stale(line) else value(line),
    )


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

    def state(line: DeploymentLine) -> str:
        return ", ".join(filter(None, ("fault" if line.fault else "", age(stale, line, older_s))))

    columns: tuple[Column[DeploymentLine], ...] = (
        Column("model", lambda line: literal(line.model), 0, min_cells=11, keep_end=True),
        Column("state", state, 2),
        Column(headline().caption, headline_price, 1, price),
        Column("seen", _seen, 2),
        present("tok/s", 3, format_count, lambda line: line.generated_tok_s_now, stale),
        Column("busy", busy_share, 4, lambda line: line.busy),
        fresh("run/wait now", 6, _queue, lambda line: line.running_now, stale),
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
        Column("devices", lambda line: literal(", ".join(line.devices)) or UNKNOWN, 10, min_cells=24, keep_end=True),
    )
    return columns if len(report.hosts) > 1 else tuple(column for column in columns if column.name != "host")


def device_columns(report: FleetReport, older_s: float = 0.0, *, last: bool = False) -> tuple[Column[DeviceLine], ...]:
    """Return the columns of devices; with `last`, a stale line keeps the figures of its last reading."""
    stale = staleness(report, older_s)
    silent = _never if last else stale

    def activity(stored: str) -> Callable[[DeviceLine], float | None]:
        return lambda line: line.values.get(stored)

    def users(line: DeviceLine) -> str:
        return UNKNOWN if line.held_by is None else literal(", ".join(line.held_by)) or "nothing"

    columns: tuple[Column[DeviceLine], ...] = (
        Column("device", lambda line: literal(label(line)), 0, min_cells=14, keep_end=True),
        Column("state", lambda line: age(stale, line, older_s), 2),
        present("util", 3, percent, lambda line: line.util, silent),
        *(present(heading, 7, percent, activity(stored), silent) for stored, heading in ACTIVITY.items()),
        present("power", 4, watts, lambda line: line.power_w, silent),
        fresh("memory", 6, _memory, lambda line: line.memory_used_bytes, silent),
        present("$/hour", 1, amount, lambda line: line.nano_usd_per_hour, silent),
        Column("used by", users, 5, min_cells=13, keep_end=True),
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
        fresh("memory", 3, _memory, lambda line: line.memory_used_bytes, silent),
        present("agent CPU", 5, percent, lambda line: line.agent_cpu_share, silent),
        fresh(
            "agent memory",
            6,
            lambda line: format_bytes(line.agent_rss_bytes),
            lambda line: line.agent_rss_bytes,
            silent,
        ),
    )


def with_peak(values: Sequence[float | None], cells: int) -> str:
    """Return a sparkline followed by its highest value, the scale of the bars."""
    top = peak(values)
    return f"{sparkline(values, cells)} {top}" if top else ""


def age(stale: Callable[[Line], bool], line: Line, older_s: float) -> str:
    """Return `stale 21s` for a stale line, else an empty text."""
    if not stale(line):
        return ""
    return "stale, never read" if line.age_s is None else f"stale {format_duration(line.age_s + older_s)}"


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


def _memory(line: DeviceLine | HostLine) -> str:
    if line.memory_used_bytes is None and line.memory_bytes is None:
        return UNKNOWN
    return f"{format_bytes(line.memory_used_bytes)} of {format_bytes(line.memory_bytes)}"


@dataclass(frozen=True, slots=True)
class AdviceCounts:
    """Numbers of open proposals by host and deployment."""

    hosts: Counter[int] = field(default_factory=Counter)
    """By host id; proposals for deployments on the host count too."""
    deployments: Counter[int] = field(default_factory=Counter)


def advice_counts(advice: Sequence[Recommendation], report: FleetReport) -> AdviceCounts:
    """Count open proposals; one for a service counts for each deployment that serves its model."""
    counts = AdviceCounts()
    if not advice:  # as in the first frame, which waits for no module of advice
        return counts
    host_ids = {host.name: host.host_id for host in report.hosts}
    for row in open_advice(advice):
        if row.target_kind == "host":
            counts.hosts[int(row.target_key)] += 1
            continue
        touched: set[int] = set()
        for line in report.deployments:
            serves = row.target_kind == "service" and row.target_key == line.model
            if line.deployment_id == row.deployment_id or serves:
                counts.deployments[line.deployment_id] += 1
                touched.add(host_ids.get(line.host, 0))
        counts.hosts.update(touched)
    return counts


def host_use_columns(report: FleetReport, counts: AdviceCounts, older_s: float = 0.0) -> tuple[Column[HostUse], ...]:
    """Return the columns of hosts."""
    stale = staleness(report, older_s)
    return (
        Column("host", lambda use: literal(use.name), 0, min_cells=14),
        Column("state", lambda use: age(stale, use, older_s), 1),
        Column("GPUs", lambda use: str(use.accelerators), 6, lambda use: use.accelerators),
        present("util", 3, percent, lambda use: use.util, stale),
        present("SM", 5, percent, lambda use: use.sm_active, stale),
        present("mem BW", 5, percent, lambda use: use.dram_active, stale),
        present("power", 4, watts, lambda use: use.power_w, stale),
        present("tok/s", 2, format_count, lambda use: use.generated_tok_s_now, stale),
        present("$/hour", 3, amount, lambda use: use.nano_usd_per_hour, stale),
        Column(headline().caption, lambda use: amount(price(use)), 1, price),
        Column(
            "advice",
            lambda use: str(counts.hosts[use.host.host_id] or ""),
            4,
            lambda use: counts.hosts[use.host.host_id],
        ),
        Column(
            f"tok/s in {format_duration(report.window_s)}, peak",
            lambda use: with_peak(use.spark, SPARK_CELLS),
            7,
            wide=lambda use, cells: stretched(use.spark, cells),
            is_plot=True,
        ),
        present("CPU", 8, percent, lambda use: use.host.cpu_util, stale),
        Column("models", lambda use: literal(", ".join(use.models)), 6, min_cells=12),
    )


GROUPS = ("service", "host", "tenant")
"""Groups that every fleet has; bases of owners come after them."""
MANY_HOSTS = 4
"""With more hosts than this the fleet opens by host, because the devices do not fit on a screen."""
MAX_NAMED = 3


def first_group(report: FleetReport) -> str:
    """Return the group that the fleet opens with."""
    return "host" if len(report.hosts) > MANY_HOSTS else "service"


def next_group(group: str, bases: Sequence[str]) -> str:
    """Return the group after `group`. `bases`: by which deployments have an owner; known once a bill was divided."""
    groups = (*GROUPS, *bases)
    return groups[(groups.index(group) + 1) % len(groups)] if group in groups else GROUPS[0]


def group_note(group: str, bill: Spend | None, error: str | None = None) -> str:
    """Return the line above the rows: their group, and why there are no rows yet. `error`: of reading the bill."""
    if group in ("service", "host"):
        return with_keys("By host. {group}: by tenant, then by model.")
    title = f"By {literal(group)}"
    if bill is None or bill.by != group:
        return f"{title}: reading…" if error is None else f"{title}: {literal(error)}"
    notes = "".join(f" {literal(note)}" for note in bill.notes)
    groups = ("tenant", *bill.bases)
    following = "".join(f" {{group}}: by {literal(name)}." for name in groups[groups.index(group) + 1 :][:1])
    tokens = "tokens of gateways" if group == "tenant" else "tokens of engines"
    return f"{title}: whole hours, {tokens}.{notes}{with_keys(following)}"


def running(report: FleetReport) -> Sequence[DeploymentLine]:
    """Return the running deployments; the sequence of the report itself if none ended."""
    lines = [line for line in report.deployments if not line.ended]
    return lines if len(lines) < len(report.deployments) else report.deployments


def _ended(report: FleetReport) -> list[DeploymentLine]:
    return [line for line in report.deployments if line.ended]


def ended_line(report: FleetReport) -> str | None:
    """Return one line about all engines that ended in the window; None if none ended."""
    ended = _ended(report)
    if not ended:
        return None
    dollars = [line.nano_usd for line in ended if line.nano_usd is not None]
    names = ", ".join(f"{literal(line.model)} on {literal(line.host)}" for line in ended[:MAX_NAMED])
    more = f" and {len(ended) - MAX_NAMED} more" if len(ended) > MAX_NAMED else ""
    cost = f", {amount(sum(dollars))} of the bill" if dollars else ""
    return f"{len(ended)} ended{cost}: {names}{more}"


def ended_sheet(report: FleetReport) -> Sheet:
    """Return a sheet of the engines that ended in the window."""
    facts = tuple(
        (
            f"{literal(line.model)} on {literal(line.host)}",
            f"last read {ago(line.age_s)}, {amount(line.nano_usd)} in the window, "
            f"{amount(price(line), UNKNOWN)} per {headline().unit}",
        )
        for line in _ended(report)
    )
    return sheet(Section("Engines that ended in the window", facts))


_BARS = " ▁▂▃▄▅▆▇█"
MIN_HEIGHT = 3
MAX_HEIGHT = 10


def chart(title: str, values: Sequence[float | None], width: int, height: int) -> tuple[str, ...]:
    """Return at most `height` lines: the title with the scale, and bars from 0 to the highest value over `width` cells.

    A slice without a value is blank; one of 0 has the lowest bar. Empty if no slice has a value.
    """
    observed = [value for value in values if value is not None]
    if not observed or height < MIN_HEIGHT:
        return ()
    top, rows, n = max(observed) or 1.0, min(height, MAX_HEIGHT) - 1, len(values)
    steps = len(_BARS) - 1
    cells = [values[i * n // width] for i in range(width)]
    levels = [0 if value is None else max(1, round(value / top * rows * steps)) for value in cells]
    lines = [
        "".join(_BARS[min(steps, max(0, level - (rows - 1 - row) * steps))] for level in levels) for row in range(rows)
    ]
    return (f"{title}: 0 to {peak(values)}", *lines)


MAX_USD_PER_HOUR = 10_000
"""Highest price that is accepted; a higher one is taken for a typing error."""
PRICED = "This row has a price; `pertoken prices set` changes it, and shows first which past costs change with it."
WITHOUT_DEVICES = "Prices belong to devices: select a host, a device, or a server that runs on one."


def why_not_priced(line: object, report: FleetReport) -> str | None:
    """Return the reason why no price can be entered on a row; None if one can."""
    if not _unpriced_devices(line, report):
        return WITHOUT_DEVICES
    return PRICED if unpriced_device(line, report) is None else None


def unpriced_device(line: object, report: FleetReport) -> str | None:
    """Return the name in `pertoken prices` of the first device of a row without a price; None if there is none."""
    unpriced = next((device for device in _unpriced_devices(line, report) if device.nano_usd_per_hour is None), None)
    if unpriced is None:
        return None
    return "cpu" if unpriced.kind == "cpu" else unpriced.name


def _unpriced_devices(line: object, report: FleetReport) -> Sequence[DeviceLine]:
    """Return the priced devices of a row: of a host with accelerators, not its CPUs."""
    if isinstance(line, DeviceLine):
        return [line]
    if isinstance(line, DeploymentLine):
        return [device for device in report.devices if device.host == line.host and label(device) in line.devices]
    if isinstance(line, HostUse):
        devices = [device for device in report.devices if device.host == line.name]
        return [device for device in devices if device.kind != "cpu"] or devices
    return []


CAPTION_CELLS = 18
"""Cells of a caption under large digits at 80 columns."""


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """One value with unit and caption. The caption of an unknown value is the reason."""

    value: str
    unit: str
    caption: str

    @property
    def sentence(self) -> str:
        """Value and unit; of an unknown value, the reason."""
        return self.caption if self.value == UNKNOWN else f"{self.value}{self.unit}"


def figures(report: FleetReport) -> tuple[ShownFigure, ...]:
    """Return the main figures, in this order.

    The headline (dollars per Mtok) over the window, with its observed share; dollars per hour and tokens per second
    now, of the hosts that report; the idle share of the bill; and watts.
    """
    window = f"{observed(report.coverage)} of {format_duration(report.window_s)}"
    silent = sum(host.stale for host in report.hosts)
    reporting = len(report.hosts) - silent
    part = f", {reporting} of {len(report.hosts)} hosts" if silent else " now"

    def of_hosts(unit: str) -> str:
        full = f"{unit}{part}"
        return full if len(full) <= CAPTION_CELLS else f"{unit}, {reporting} host{'' if reporting == 1 else 's'}"

    no_reports = "no reports" if report.hosts and not reporting else None
    per_hour = amount(report.nano_usd_per_hour)
    without = report.unpriced_n
    power = UNKNOWN if report.power_w is None else f"{report.power_w:,.0f}"
    shown, missing = headline(), {"per_request": "no requests", "good": "no SLO"}
    no_mtok = no_rate() or ("no price" if report.bill is None else missing.get(shown.name, "no tokens"))
    return (
        _figure(
            amount(price(report)),
            f"{shown.caption.removeprefix('$')} ({window})",
            caption(f"{shown.caption}, {window}"),
            caption(f"{shown.caption}: {no_mtok}"),
        ),
        _figure(
            per_hour,
            "/hour",
            caption(f"$/hour, {without} unpriced" if without else of_hosts("$/hour") if silent else "$/hour now"),
            caption(f"$/hour: {no_reports or no_rate() or 'no price'}"),
        ),
        _figure(
            format_count(report.generated_tok_s_now),
            " tok/s",
            of_hosts("tok/s") if silent else "tokens/s now",
            f"tok/s: {no_reports or 'no engine'}",
        ),
        _figure(_idle(report.bill), " idle or unallocated", "idle + unallocated", "idle: no price"),
        _figure(power, " W", f"watts{part}", f"watts: {no_reports or 'not read'}"),
    )


def _idle(bill: BillTotal | None) -> str:
    """Return the share of the bill without work: idle while reserved, and unallocated."""
    if bill is None or not bill.paid:
        return UNKNOWN
    share = (bill.idle + bill.unallocated) / bill.paid
    return (at_least if bill.busy_is_bound else percent)(share)


def savings_line(plan: Plan | None, banked: Banked | None, no_advice: str | None = None) -> str:
    """Return the bankable saving of the plan under its least certain assumption, and the measured savings.

    `plan` is None while it is being composed; `no_advice` says why no rule has run, and when one does.
    """
    measured = None if banked is None else banked.nano_usd
    saved = "being read" if banked is None else "nothing yet" if measured is None else amount(measured[1])
    if no_advice:
        return literal(no_advice.removeprefix("No rule has run yet. "))
    if plan is None:
        return f"Bankable: the plan is being composed · banked: {saved}"
    if not any(plan.bankable):
        return f"No step lowers the bill ({key_name('savings')} shows why) · banked: {saved}"
    weakest = f" if {literal(plan.sensitivity[0].assumption)}" if plan.sensitivity else ""
    low, likely, high = map(amount, plan.bankable)
    dollars = likely if low == high else f"{likely} ({low}–{high})"  # short, to leave space for the assumption
    return f"Bankable {dollars}/month{weakest} · banked: {saved}"


def _figure(value: str, unit: str, caption: str, unknown: str) -> ShownFigure:
    return ShownFigure(value, unit, unknown if value == UNKNOWN else caption)
